import { uuidV7 } from '../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import { type Ahead, type Clocks, later, realTime } from '../platform/clocks/clocks.ts'
import { type AppId, type UserId } from '../platform/ids.ts'
import * as accounts from './account.ts'
import { type Account, type Credit, type CreditSource, type Return, toAppTime } from './account.ts'
import type { Resubscribe } from '../plans/subscriptions/ports.ts'
import type { ChargeOptions, ChargeResult, UserCharge } from '../metering/ingest/charges.ts'
import { readPeriods } from './period-store.ts'
import { createReplay } from './replay.ts'
import { shareCharge } from './shares.ts'
import { createLeases } from './escrow/leases.ts'
import { type SettlementStore, createSettlement } from './escrow/settlement.ts'
import { escrowStore } from './escrow/store.ts'
import * as sqlAccounts from './store.ts'
import {
  type FreePeriod,
  type IncludedUsage,
  type Terms,
  calendarDaysMax,
  raiseBetween,
  withheldFrom,
} from './terms.ts'
import { simulateLedger } from './trial.ts'
import { currentTerms, freePeriods } from './terms-store.ts'

export interface NewCredit {
  readonly amount: UsdAttos
  readonly source: CreditSource
  readonly featureKey: string | null
}

const sqlStore = { ...sqlAccounts, currentTerms, freePeriods }

/**
 * The storage that the ledger needs. Implemented by PostgreSQL and, for the model checker, in
 * memory.
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

interface User {
  readonly appId: AppId
  readonly userId: UserId
}

interface TimedUser extends User {
  readonly aheadMs: number
}

interface LedgerParts {
  readonly store?: AccountStore
  readonly escrow?: SettlementStore
  readonly clocks?: Clocks
  /** Restores missing subscriptions. Without it, a missing subscription is an error. */
  readonly resubscribe?: Resubscribe | undefined
}

/** A raise of included usage between two versions of a plan. */
export interface Raise {
  readonly versions: readonly IncludedUsage[]
  readonly from: number
  /** Tickets signed since this version was created may use the raise. */
  readonly to: IncludedUsage
}

export interface Correction {
  readonly user: User
  readonly adjustment: sqlAccounts.NewAdjustment
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
  /** Returns the parts that a ticket burned and that were not given back, in burn order. */
  readonly refund?: (() => Promise<readonly Return[]>) | undefined
}

const defaultPriority = 10
const expireBatch = 500
const renewBatch = 500
// The ticket that provisions a user was signed before the user existed, so the first period has no
// lower bound.
const beginning = new Date(0)
const ended = (at: Date) => ({ until: new Date(at.getTime() - accounts.lateMs), at })

/**
 * Changes balances. Every function runs inside the caller's transaction, locks users in id order,
 * and writes balances, credits and ledger entries together or not at all.
 *
 * A function that changes a locked account takes the time of the account's app (`toAppTime`); all
 * others take real time.
 */
export function createLedger({
  store = sqlStore,
  escrow = escrowStore,
  clocks = realTime,
  resubscribe,
}: LedgerParts = {}) {
  const { settle } = createSettlement(escrow)

  /**
   * Opens accounts for newly subscribed users without one, and adds the included usage of their
   * first periods.
   */
  async function open(db: Db, users: readonly User[], at: Date): Promise<void> {
    if (users.length === 0) return
    const ahead = await clocks.ahead(db, users)
    const timed = users.map((user) => ({ ...user, aheadMs: aheadOf(ahead, user) }))
    const termsOf = await readTerms(db, timed, at)
    const inserted = await store.insertBalances(
      db,
      users.map((user) => ({ ...user, ...termsOf(user).period })),
      at,
    )
    const isNew = ({ userId }: User): boolean => inserted.has(userId)
    const opened = await lockAccounts(db, users.filter(isNew))
    for (const account of opened)
      enter(account, { ...termsOf(account), countsFrom: beginning }, toAppTime(account, at))
    await store.saveAccounts(db, opened, at)
  }

  async function lockAccounts(db: Db, users: readonly User[]): Promise<Account[]> {
    return withClocks(db, await store.lockAccounts(db, users))
  }

  async function withClocks(db: Db, read: Account[]): Promise<Account[]> {
    const ahead = await clocks.ahead(db, read)
    if (ahead.size > 0) for (const account of read) account.aheadMs = aheadOf(ahead, account)
    return read
  }

  async function readTerms(
    db: Db,
    users: readonly TimedUser[],
    at: Date,
  ): Promise<(user: User) => Terms> {
    const byUser = new Map<UserId, Terms>()
    async function readOf(some: readonly TimedUser[]): Promise<void> {
      for (const [aheadMs, same] of Map.groupBy(some, (user) => user.aheadMs))
        for (const term of await store.currentTerms(db, same, later(at, aheadMs)))
          byUser.set(term.userId, term)
    }
    await readOf(users)
    // A user without a subscription must not stop the batch for all others.
    const lost = users.filter(({ userId }) => !byUser.has(userId))
    if (resubscribe && lost.length > 0) await resubscribe(db, lost).then(() => readOf(lost))
    return ({ userId }) => {
      const term = byUser.get(userId)
      if (!term) throw new Error(`user ${userId} has no subscription`)
      return term
    }
  }

  /** Adds a credit to a locked account, which the caller saves. Returns the credit. */
  function credit(account: Account, { amount, source, featureKey }: NewCredit, at: Date): Credit {
    const credit: Credit = {
      id: uuidV7(at.getTime()),
      kind: 'grant',
      source,
      featureKey,
      amount,
      remaining: amount,
      priority: defaultPriority,
      effectiveAt: at,
      expiresAt: null,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    }
    return accounts.addCredit(account, credit, at)
  }

  /**
   * Corrects a balance. Returns the uncovered part of a debit, which the ledger records as overage.
   * With `refund`, which is called after the account is locked, gives back the parts that it
   * returns.
   */
  async function adjust(
    db: Db,
    { user, adjustment: requested, feature, refund }: Correction,
  ): Promise<{ account: Account; overage: UsdAttos }> {
    const account = await lockCurrent(db, user, requested.at)
    const at = toAppTime(account, requested.at)
    const adjustment = { ...requested, at }
    if (refund) return giveBack(db, account, { adjustment, parts: await refund() })
    const overage = accounts.adjust(account, { ...adjustment, feature })
    await store.insertAdjustment(db, account, adjustment)
    await store.saveAccounts(db, [account], at)
    return { account, overage }
  }

  async function giveBack(
    db: Db,
    account: Account,
    { adjustment, parts }: { adjustment: sqlAccounts.NewAdjustment; parts: readonly Return[] },
  ): Promise<{ account: Account; overage: UsdAttos }> {
    const { id, at } = adjustment
    accounts.giveBack(account, { id, at, parts })
    const amount = usdAttos(parts.reduce((sum, part) => sum + part.amount, 0n))
    await store.insertAdjustment(db, account, { ...adjustment, amount })
    await store.saveAccounts(db, [account], at)
    return { account, overage: usdAttos(0n) }
  }

  /**
   * Settles what was held for the tickets' calls, then burns credits for the tickets in the order
   * of decision 33, as one charge per user. `charges` must name each user once. What no credit
   * covers is overage.
   */
  async function charge(
    db: Db,
    charges: readonly UserCharge[],
    options: ChargeOptions,
  ): Promise<ChargeResult> {
    if (charges.length === 0) return { exhausted: [], settlement: null }
    const byUser = new Map(charges.map((charge) => [charge.userId, charge]))
    const locked = await lockAccounts(db, charges)
    if (locked.length !== charges.length) throw new Error('a charged user has no account')
    await enterPeriods(db, locked, options.at)
    options.confirm(locked)
    const settlement = await settle(db, { accounts: locked, charges }, options)
    for (const account of locked) {
      const charge = byUser.get(account.userId)
      const at = toAppTime(account, options.at)
      if (charge) book(account, charge, { ...options, at })
      accounts.expire(account, ended(at))
    }
    for (const { account, adjustment } of settlement?.givenBack ?? [])
      await store.insertAdjustment(db, account, adjustment)
    await store.saveAccounts(db, locked, options.at)
    const exhausted = locked
      .filter(
        (account) => accounts.spendableAt(account.credits, toAppTime(account, options.at)) === 0n,
      )
      .map((account) => account.userId)
    return { exhausted, settlement: settlement?.sums ?? null }
  }

  async function lockCurrent(db: Db, user: User, at: Date): Promise<Account> {
    const [account] = await lock(db, [user], at)
    if (!account) throw new Error(`user ${user.userId} has no account`)
    return account
  }

  /**
   * Locks the accounts of different users in id order and updates them to `at`: enters the running
   * period and expires ended credits. Omits users without an account. The caller saves the returned
   * accounts.
   */
  async function lock(db: Db, users: readonly User[], at: Date): Promise<Account[]> {
    const locked = await lockAccounts(db, users)
    await enterPeriods(db, locked, at)
    for (const account of locked) accounts.expire(account, ended(toAppTime(account, at)))
    return locked
  }

  /** Moves accounts whose period is over into the running period and adds its included usage. */
  async function enterPeriods(db: Db, locked: readonly Account[], at: Date): Promise<void> {
    const due = locked.filter((account) => account.periodEnd <= toAppTime(account, at))
    if (due.length === 0) return
    const termsOf = await withhold(db, due, await readTerms(db, due, at))
    for (const account of due) enter(account, termsOf(account), toAppTime(account, at))
  }

  /**
   * Adds to the terms what free plans gave before. Sends no query if no subscription of a free plan
   * begins.
   */
  async function withhold(
    db: Db,
    locked: readonly Account[],
    termsOf: (user: User) => Terms,
  ): Promise<(account: Account) => Terms> {
    const starting = locked.filter((account) => termsOf(account).freeCycle)
    if (starting.length === 0) return termsOf
    const starts = starting.map((account) => termsOf(account).period.start.getTime())
    const since = new Date(Math.min(...starts) - calendarDaysMax * 86_400_000)
    const saved = await store.freePeriods(db, starting, since)
    return (account) => {
      const terms = termsOf(account)
      const periods = [...(saved.get(account.userId) ?? []), ...enteredFree(account)]
      return { ...terms, withheldAttos: withheldFrom(terms, periods) }
    }
  }

  /**
   * Ends the running period of a locked account after another subscription took its slot, and
   * enters the period of `terms`, which begins at once. The old included usage still pays for
   * tickets signed before. The caller saves the account.
   */
  async function changePlan(
    db: Db,
    account: Account,
    { terms, at }: { terms: Terms; at: Date },
  ): Promise<void> {
    const termsOf = await withhold(db, [account], () => terms)
    accounts.endIncluded(account, terms.period.start)
    enter(account, termsOf(account), at)
  }

  /**
   * Recalls the leases of a locked account from sidecars (docs/escrow.md). The caller saves the
   * account. Returns false, without a change, if no lease is open.
   */
  async function recall(db: Db, account: Account, at: Date): Promise<boolean> {
    const leases = createLeases(await escrow.findLeases(db, [account]))
    if (leases.of(account.userId).every(({ endsAt }) => endsAt <= at)) return false
    leases.recall(account, { missing: 0n, at })
    await escrow.saveLeases(db, leases.changes())
    return true
  }

  /**
   * Gives a locked account what version `to` of its plan includes beyond what it got in the running
   * period, which began with version `from`. Applies once per version. The caller saves the
   * account. Returns whether anything was given.
   */
  function raise(account: Account, { versions, from, to }: Raise, at: Date): boolean {
    const amount = raiseBetween(versions, { from, to })
    const isThere = account.credits.some(
      ({ kind, effectiveAt }) =>
        kind === 'included' && effectiveAt.getTime() === to.createdAt.getTime(),
    )
    if (amount <= 0n || isThere) return false
    creditIncluded(account, { included: amount, effectiveAt: to.createdAt }, at)
    return true
  }

  /** Locks the accounts of different users and enters the periods running at `at`. */
  async function enterRunning(db: Db, users: readonly User[], at: Date): Promise<void> {
    const locked = await lock(db, users, at)
    const changed = locked.filter(
      ({ periods, entries }) => periods.length > 0 || entries.length > 0,
    )
    if (changed.length > 0) await store.saveAccounts(db, changed, at)
  }

  /** Reads an account. If its period is over, enters the running one first. */
  async function read(pool: Pool, user: User, at: Date): Promise<Account> {
    const find = await readMany(pool, [user], at)
    return find(user)
  }

  /** Like `read`, for many users. Takes one round trip unless a period is over. */
  async function readMany(
    pool: Pool,
    users: readonly User[],
    at: Date,
  ): Promise<(user: User) => Promise<Account>> {
    const unique = new Map(users.map((user) => [user.userId, user]))
    const stored = await withClocks(pool, await store.readAccounts(pool, [...unique.values()]))
    const byUser = new Map(stored.map((account) => [account.userId, account]))
    return async (user) => {
      const account = byUser.get(user.userId)
      return account && account.periodEnd > toAppTime(account, at)
        ? account
        : readLocked(pool, user, at)
    }
  }

  function readLocked(pool: Pool, user: User, at: Date): Promise<Account> {
    return tx(pool, async (db) => {
      const current = await lockCurrent(db, user, at)
      await store.saveAccounts(db, [current], at)
      return current
    })
  }

  /** Like `read`, in the caller's transaction. Locks the account only if its period is over. */
  async function readWithin(db: Db, user: User, at: Date): Promise<Account> {
    const [account] = await withClocks(db, await store.readAccounts(db, [user]))
    if (account && account.periodEnd > toAppTime(account, at)) return account
    const current = await lockCurrent(db, user, at)
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
      const unique = [...new Map(users.map((user) => [user.userId, user])).values()]
      if (unique.length === 0) return 0
      const locked = await lock(db, unique, at)
      await store.saveAccounts(db, locked, at)
      return locked.length
    })
  }

  /**
   * Enters the running period for a bounded number of users whose period is over, the longest ago
   * first. Skips users that another transaction has locked. Covers all apps by real time, or one
   * app by its clock. Returns the number of users.
   */
  async function renew(pool: Pool, at: Date, app: AppId | null = null): Promise<number> {
    return tx(pool, async (db) => {
      const users = await store.lockDue(db, await dueAt(db, app, at), { app, limit: renewBatch })
      if (users.length === 0) return 0
      const locked = await lock(db, users, at)
      await store.saveAccounts(db, locked, at)
      return locked.length
    })
  }

  const dueAt = async (db: Db, app: AppId | null, at: Date): Promise<Date> =>
    app === null ? at : clocks.timeOf(db, app, at)

  /**
   * Returns what may back a payment at the real instant `at`, in atto-dollars, without held money.
   */
  const spendable = (account: Account, at: Date): UsdAttos =>
    accounts.unheldAt(account, toAppTime(account, at))

  return {
    open,
    credit,
    adjust,
    charge,
    lock,
    save: store.saveAccounts,
    insertAdjustment: store.insertAdjustment,
    read,
    readMany,
    readWithin,
    spendable,
    toAppTime,
    nextStart: accounts.nextStart,
    changePlan,
    recall,
    raise,
    sweep,
    renew,
    rebuildBalance: store.rebuildBalance,
    createReplay,
    shareCharge,
    simulateLedger,
    readPeriods,
    enterPeriods: enterRunning,
  }
}

const aheadOf = (ahead: Ahead, { appId }: Pick<User, 'appId'>): number => ahead.get(appId) ?? 0

/** Books the tickets of a charge. If all of them wait for a price, only counts them as unpriced. */
function book(account: Account, charge: UserCharge, options: ChargeOptions): void {
  if (charge.tickets > 0) accounts.burn(account, { ...charge, ...options })
  else if (charge.unpriced > 0)
    accounts.recordUnpriced(account, { ...options, unpriced: charge.unpriced })
}

export type Ledger = ReturnType<typeof createLedger>

/** Unsaved periods of free plans. */
const enteredFree = ({ periods }: Account): FreePeriod[] =>
  periods
    .filter(({ terms }) => terms.isFree)
    .map(({ start, terms: { planId, includedAttos, withheldAttos } }) => ({
      planId,
      start,
      givenAttos: includedAttos - (withheldAttos ?? 0n),
    }))

/** Enters a period and adds its included usage. */
function enter(
  account: Account,
  { period, countsFrom, ...terms }: Terms & { readonly countsFrom?: Date },
  at: Date,
): void {
  accounts.enterPeriod(account, {
    ...period,
    ...(countsFrom && { countsFrom }),
    enteredAt: at,
    terms,
  })
  creditIncluded(
    account,
    {
      included: terms.includedAttos - (terms.withheldAttos ?? 0n),
      effectiveAt: account.periodCountsFrom,
    },
    at,
  )
}

function creditIncluded(
  account: Account,
  { included, effectiveAt }: { readonly included: bigint; readonly effectiveAt: Date },
  at: Date,
): void {
  if (included === 0n) return
  accounts.addCredit(
    account,
    {
      id: uuidV7(at.getTime()),
      kind: 'included',
      source: 'plan_adjustment',
      featureKey: null,
      amount: usdAttos(included),
      remaining: usdAttos(included),
      priority: 0,
      effectiveAt,
      expiresAt: account.periodEnd,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    },
    at,
  )
}
