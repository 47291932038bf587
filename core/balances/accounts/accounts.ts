import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Ahead, type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { lateMs } from '../../shared/late-tickets.ts'
import { type Account, expire, toAppTime } from './account.ts'
import { type PeriodsDeps, createPeriods, enter } from './periods.ts'
import * as readStore from './read-store.ts'
import * as writeStore from './store.ts'
import { currentTerms, freePeriods } from './terms-store.ts'

/** Accounts in PostgreSQL. */
export const sqlStore = { ...readStore, ...writeStore, currentTerms, freePeriods }

/**
 * The storage of accounts. Implemented by PostgreSQL and, for the model checker, in memory.
 */
export type AccountStore = Pick<
  typeof sqlStore,
  | 'currentTerms'
  | 'freePeriods'
  | 'insertBalances'
  | 'lockAccounts'
  | 'readAccounts'
  | 'saveAccounts'
  | 'usersToExpire'
  | 'lockDue'
  | 'insertAdjustment'
  | 'rebuildBalance'
>

export interface AccountsParts extends Pick<PeriodsDeps, 'resubscribe' | 'findCeilings'> {
  readonly store?: AccountStore
  readonly clocks?: Clocks
}

const expireBatch = 500
const renewBatch = 500
// The ticket that provisions a user was signed before the user existed, so the first period has no
// lower bound.
const beginning = new Date(0)
const ended = (at: Date) => ({ until: new Date(at.getTime() - lateMs), at })

/** Expires the credits that ended by `at`, a time of the account's app. */
export const expireEnded = (account: Account, at: Date): void => expire(account, ended(at))

/**
 * Opens, locks and reads accounts, and keeps them current: enters periods and expires credits.
 * Locks users in id order. Takes real time.
 */
export function createAccounts(parts: AccountsParts = {}) {
  const { store = sqlStore, clocks = realTime } = parts
  const periods = createPeriods({ ...parts, store })
  const { readTerms, enterRunning, setCeilings } = periods

  /**
   * Opens accounts for newly subscribed users without one, and adds the included usage of their
   * first periods.
   */
  async function open(db: Db, users: readonly UserKey[], at: Date): Promise<void> {
    if (users.length === 0) return
    const ahead = await clocks.ahead(db, users)
    const timed = users.map((user) => ({ ...user, aheadMs: aheadOf(ahead, user) }))
    const termsOf = await readTerms(db, timed, at)
    const inserted = await store.insertBalances(
      db,
      users.map((user) => ({ ...user, ...termsOf(user).period })),
      at,
    )
    const opened = await lockStored(
      db,
      users.filter(({ userId }) => inserted.has(userId)),
    )
    for (const account of opened)
      enter(account, { ...termsOf(account), countsFrom: beginning }, toAppTime(account, at))
    await setCeilings(db, opened, termsOf)
    await store.saveAccounts(db, opened, at)
  }

  /** Locks accounts as they are stored, perhaps in a period that is over. */
  async function lockStored(db: Db, users: readonly UserKey[]): Promise<Account[]> {
    return withClocks(clocks, db, await store.lockAccounts(db, users))
  }

  /** Reads accounts as they are stored, without locks, perhaps in a period that is over. */
  async function readStored(db: Db, users: readonly UserKey[]): Promise<Account[]> {
    return withClocks(clocks, db, await store.readAccounts(db, users))
  }

  async function lockOne(db: Db, user: UserKey, at: Date): Promise<Account> {
    const [account] = await lock(db, [user], at)
    if (!account) throw new Error(`user ${user.userId} has no account`)
    return account
  }

  /**
   * Locks the accounts of different users in id order and updates them to `at`: enters the running
   * period and expires ended credits. Omits users without an account. The caller saves the returned
   * accounts.
   */
  async function lock(db: Db, users: readonly UserKey[], at: Date): Promise<Account[]> {
    const locked = await lockStored(db, users)
    await enterRunning(db, locked, at)
    for (const account of locked) expireEnded(account, toAppTime(account, at))
    return locked
  }

  /** Locks the accounts of different users and saves those that `lock` changes. */
  async function enterPeriods(db: Db, users: readonly UserKey[], at: Date): Promise<void> {
    const locked = await lock(db, users, at)
    const changed = locked.filter(
      ({ periods, entries }) => periods.length > 0 || entries.length > 0,
    )
    if (changed.length > 0) await store.saveAccounts(db, changed, at)
  }

  /** Reads an account. If its period is over, enters the running one first. */
  async function read(pool: Pool, user: UserKey, at: Date): Promise<Account> {
    const find = await readMany(pool, [user], at)
    return find(user)
  }

  /** Like `read`, for many users. Takes one round trip unless a period is over. */
  async function readMany(
    pool: Pool,
    users: readonly UserKey[],
    at: Date,
  ): Promise<(user: UserKey) => Promise<Account>> {
    const unique = new Map(users.map((user) => [user.userId, user]))
    const stored = await readStored(pool, [...unique.values()])
    const byUser = new Map(stored.map((account) => [account.userId, account]))
    return async (user) => {
      const account = byUser.get(user.userId)
      return isCurrent(account, at) ? account : tx(pool, (db) => readLocked(db, user, at))
    }
  }

  /** Like `read`, in the caller's transaction. Locks the account only if its period is over. */
  async function readWithin(db: Db, user: UserKey, at: Date): Promise<Account> {
    const [account] = await readStored(db, [user])
    return isCurrent(account, at) ? account : readLocked(db, user, at)
  }

  async function readLocked(db: Db, user: UserKey, at: Date): Promise<Account> {
    const current = await lockOne(db, user, at)
    await store.saveAccounts(db, [current], at)
    return current
  }

  /**
   * Expires ended credits for a bounded number of users: in all apps by real time, or in one app by
   * its clock. Returns the number of users touched.
   */
  async function sweep(pool: Pool, at: Date, app: AppId | null = null): Promise<number> {
    return tx(pool, async (db) => {
      const { until } = ended(await dueAt(db, app, at))
      const users = await store.usersToExpire(db, until, { app, limit: expireBatch })
      return update(db, [...new Map(users.map((user) => [user.userId, user])).values()], at)
    })
  }

  /**
   * Enters the running period for a bounded number of users whose period is over, the longest ago
   * first. Skips users that another transaction has locked. Covers all apps by real time, or one
   * app by its clock. Returns the number of users.
   */
  async function renew(pool: Pool, at: Date, app: AppId | null = null): Promise<number> {
    return tx(pool, async (db) =>
      update(db, await store.lockDue(db, await dueAt(db, app, at), { app, limit: renewBatch }), at),
    )
  }

  async function update(db: Db, users: readonly UserKey[], at: Date): Promise<number> {
    if (users.length === 0) return 0
    const locked = await lock(db, users, at)
    await store.saveAccounts(db, locked, at)
    return locked.length
  }

  const dueAt = async (db: Db, app: AppId | null, at: Date): Promise<Date> =>
    app === null ? at : clocks.timeOf(db, app, at)

  return {
    ...periods,
    open,
    lockStored,
    readStored,
    lockOne,
    lock,
    enterPeriods,
    read,
    readMany,
    readWithin,
    sweep,
    renew,
    save: store.saveAccounts,
    insertAdjustment: store.insertAdjustment,
    rebuildBalance: store.rebuildBalance,
  }
}

export type Accounts = ReturnType<typeof createAccounts>

/** Sets the accounts' clocks. */
async function withClocks(clocks: Clocks, db: Db, read: Account[]): Promise<Account[]> {
  const ahead = await clocks.ahead(db, read)
  if (ahead.size > 0) for (const account of read) account.aheadMs = aheadOf(ahead, account)
  return read
}

const aheadOf = (ahead: Ahead, { appId }: Pick<UserKey, 'appId'>): number => ahead.get(appId) ?? 0

const isCurrent = (account: Account | undefined, at: Date): account is Account =>
  account !== undefined && account.periodEnd > toAppTime(account, at)
