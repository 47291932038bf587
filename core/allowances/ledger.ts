import { type AppId, type UserId } from '../platform/ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import { periodAt } from '../plans/period.ts'
import * as accounts from './account.ts'
import { adjust as adjustAccount } from './adjustment.ts'
import type { UserCharge } from './charge.ts'
import { type NewAdjustment, insertAdjustment } from './adjustment-store.ts'
import * as store from './store.ts'
import type { Account, Grant, GrantSource } from './types.ts'

export interface NewGrant {
  readonly amount: UsdAttos
  readonly source: GrantSource
  readonly featureKey: string | null
}

interface User {
  readonly appId: AppId
  readonly userId: UserId
}

const defaultPriority = 10
const expireBatch = 500
// The ticket that provisions a user was signed before the user was known: a first period has no lower end.
const beginning = new Date(0)
// Events come late. For 15 minutes what a grant could still pay for when it ended is kept for their tickets, spendable
// by nobody else; a late ticket and a balance read may then come in either order. A ticket that comes later still finds
// what was left only while nobody has locked the account since: expiry is booked after each charge and before every
// other change, so that such a ticket may become overage that it would not have been in time.
const lateMs = 15 * 60_000
const ended = (at: Date) => ({ until: new Date(at.getTime() - lateMs), at })

/**
 * Changes balances. Every function runs inside the caller's transaction, locks the users it touches in id order,
 * and writes balance heads, grants and ledger entries together or not at all.
 */
export function createLedger() {
  /** Opens the account of a user who was just subscribed and gives the first period's included usage. */
  async function open(db: Db, user: User, at: Date): Promise<void> {
    const [terms] = await store.currentTerms(db, [user])
    if (!terms) throw new Error(`user ${user.userId} has no subscription`)
    const period = periodAt(terms.anchorAt, terms.cycle, at)
    await store.insertBalance(db, { ...user, ...period, at })
    const [account] = await store.lockAccounts(db, [user])
    if (!account || account.seq > 0n) return
    accounts.enterPeriod(account, period, beginning)
    creditIncluded(account, terms.includedAttos, at)
    await store.saveAccounts(db, [account], at)
  }

  /** Adds credit on top of everything that is there. Returns the account as it stands then. */
  async function grant(
    db: Db,
    request: User & NewGrant,
    at: Date,
  ): Promise<{ account: Account; grant: Grant }> {
    const account = await lockCurrent(db, request, at)
    const granted: Grant = {
      id: uuidV7(at.getTime()),
      kind: 'grant',
      source: request.source,
      featureKey: request.featureKey,
      amount: request.amount,
      remaining: request.amount,
      priority: defaultPriority,
      effectiveAt: at,
      expiresAt: null,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    }
    accounts.credit(account, granted, at)
    await store.saveAccounts(db, [account], at)
    return { account, grant: granted }
  }

  /** Books a correction. Returns what of a debit no allowance covered, which it has then booked as overage. */
  async function adjust(
    db: Db,
    {
      user,
      adjustment,
      feature,
    }: {
      user: User
      adjustment: NewAdjustment
      feature: { pipeline: string; modelId: string } | null
    },
  ): Promise<{ account: Account; overage: UsdAttos }> {
    const { at } = adjustment
    const account = await lockCurrent(db, user, at)
    const overage = adjustAccount(account, { ...adjustment, feature })
    await insertAdjustment(db, account, adjustment)
    await store.saveAccounts(db, [account], at)
    return { account, overage }
  }

  /**
   * Burns allowances for tickets, in the order of decision 33, as one charge for each user; none comes twice. What no
   * allowance covers is overage. Returns the users that have nothing left to spend on just anything.
   */
  async function charge(
    db: Db,
    charges: readonly UserCharge[],
    options: { id: string; at: Date },
  ): Promise<UserId[]> {
    const byUser = new Map(charges.map((charge) => [charge.userId, charge]))
    const locked = await store.lockAccounts(db, charges)
    if (locked.length !== charges.length) throw new Error('a charged user has no account')
    await enterPeriods(db, locked, options.at)
    for (const account of locked) {
      const charge = byUser.get(account.userId)
      if (charge) accounts.burn(account, { ...charge, ...options })
      accounts.expire(account, ended(options.at))
    }
    await store.saveAccounts(db, locked, options.at)
    return locked
      .filter((account) => accounts.spendableAt(account.grants, options.at) === 0n)
      .map((account) => account.userId)
  }

  /** The account as it stands at `at`, with its period entered and its passed grants expired. Locks it. */
  async function lockCurrent(db: Db, user: User, at: Date): Promise<Account> {
    const [account] = await store.lockAccounts(db, [user])
    if (!account) throw new Error(`user ${user.userId} has no account`)
    await enterPeriods(db, [account], at)
    accounts.expire(account, ended(at))
    return account
  }

  /** Reads an account; when its period is over, moves it into the running one first. */
  async function read(pool: Pool, user: User, at: Date): Promise<Account> {
    const find = await readMany(pool, [user], at)
    return find(user)
  }

  /** The same for many users, in one round trip unless a period is over. */
  async function readMany(
    pool: Pool,
    users: readonly User[],
    at: Date,
  ): Promise<(user: User) => Promise<Account>> {
    const unique = new Map(users.map((user) => [user.userId, user]))
    const found = new Map(
      (await store.readAccounts(pool, [...unique.values()])).map((account) => [
        account.userId,
        account,
      ]),
    )
    return async (user) => {
      const account = found.get(user.userId)
      return account && account.periodEnd > at ? account : enter(pool, user, at)
    }
  }

  function enter(pool: Pool, user: User, at: Date): Promise<Account> {
    return tx(pool, async (db) => {
      const current = await lockCurrent(db, user, at)
      await store.saveAccounts(db, [current], at)
      return current
    })
  }

  /** Books what has expired, up to a bound; returns how many users it touched. */
  async function sweep(pool: Pool, at: Date): Promise<number> {
    return tx(pool, async (db) => {
      const users = await store.usersToExpire(db, ended(at).until, expireBatch)
      const unique = [...new Map(users.map((user) => [user.userId, user])).values()]
      if (unique.length === 0) return 0
      const locked = await store.lockAccounts(db, unique)
      await enterPeriods(db, locked, at)
      for (const account of locked) accounts.expire(account, ended(at))
      await store.saveAccounts(db, locked, at)
      return locked.length
    })
  }

  return { open, grant, adjust, charge, read, readMany, sweep }
}

export type Ledger = ReturnType<typeof createLedger>

/** Moves accounts whose period is over into the running one, with its included usage. */
async function enterPeriods(db: Db, locked: readonly Account[], at: Date): Promise<void> {
  const due = locked.filter((account) => account.periodEnd <= at)
  if (due.length === 0) return
  const terms = new Map((await store.currentTerms(db, due)).map((term) => [term.userId, term]))
  for (const account of due) {
    const term = terms.get(account.userId)
    if (!term) throw new Error(`user ${account.userId} has no subscription`)
    accounts.enterPeriod(account, periodAt(term.anchorAt, term.cycle, at))
    creditIncluded(account, term.includedAttos, at)
  }
}

function creditIncluded(account: Account, included: bigint, at: Date): void {
  if (included === 0n) return
  accounts.credit(
    account,
    {
      id: uuidV7(at.getTime()),
      kind: 'included',
      source: 'plan_adjustment',
      featureKey: null,
      amount: usdAttos(included),
      remaining: usdAttos(included),
      priority: 0,
      effectiveAt: account.periodCountsFrom,
      expiresAt: account.periodEnd,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    },
    at,
  )
}
