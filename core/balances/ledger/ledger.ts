import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import type { ChargeOptions, ChargeResult, UserCharge } from '../../metering/ingest/charges.ts'
import {
  type Account,
  addCredit,
  endIncluded,
  nextStart,
  toAppTime,
  unusedIncluded,
} from '../accounts/account.ts'
import { type AccountsParts, createAccounts, expireEnded } from '../accounts/accounts.ts'
import { type Return, adjust, giveBack } from '../accounts/adjusting.ts'
import { burn, burnForOwner, recordUnpriced } from '../accounts/burning.ts'
import { type Credit, type CreditSource, spendableAt, unheldAt } from '../accounts/credits.ts'
import { readPeriods } from '../accounts/period-store.ts'
import { type Ceiling, uninvoiced } from '../accounts/credit-line.ts'
import { type DebtPayment, limitDebt, pay } from '../accounts/paying.ts'
import { creditIncluded, enter } from '../accounts/periods.ts'
import { type Spending, spendingAt } from '../accounts/spending.ts'
import {
  type ExposureStore,
  type Exposures,
  type FindPayingOwners,
  createExposures,
  spendingWith,
  unbounded,
} from '../exposure/exposure.ts'
import * as exposureStore from '../exposure/store.ts'
import type { NewAdjustment } from '../accounts/store.ts'
import { type IncludedUsage, type Terms, raiseBetween } from '../accounts/terms.ts'
import { createLeases } from '../escrow/leases.ts'
import { type SettlementStore, createSettlement } from '../escrow/settlement.ts'
import { escrowStore } from '../escrow/store.ts'
import { readCredits } from '../accounts/read-store.ts'
import { createReplay } from './replay.ts'
import { shareCharge } from './shares.ts'
import { simulateLedger } from './trial.ts'

export interface NewCredit {
  readonly amount: UsdAttos
  readonly source: CreditSource
  readonly featureKey: string | null
}

interface LedgerParts extends AccountsParts {
  readonly escrow?: SettlementStore
  /** Default: no owner pays. */
  readonly findPayingOwners?: FindPayingOwners
  /** Bounds what the apps of an owner may cost. Default: owners are charged, but not bounded. */
  readonly bounding?: {
    /** From a decision until its ticket is booked, at the latest. */
    readonly horizonSeconds: number
    readonly store?: ExposureStore
  }
}

/** A raise of included usage between two versions of a plan. */
export interface Raise {
  readonly versions: readonly IncludedUsage[]
  readonly from: number
  /** Tickets signed since this version was created may use the raise. */
  readonly to: IncludedUsage
}

export interface Correction {
  readonly user: UserKey
  readonly adjustment: NewAdjustment
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
  /** Returns the parts that a ticket burned and that were not given back, in burn order. */
  readonly refund?: (() => Promise<readonly Return[]>) | undefined
}

const defaultPriority = 10

/**
 * Changes balances. Every function runs inside the caller's transaction, locks users in id order,
 * and writes balances, credits and ledger entries together or not at all.
 *
 * A function that changes a locked account takes the time of the account's app (`toAppTime`); all
 * others take real time.
 */
export function createLedger({
  escrow = escrowStore,
  findPayingOwners = async () => noOwners,
  bounding,
  ...parts
}: LedgerParts = {}) {
  const accounts = createAccounts(parts)
  const { settle } = createSettlement(escrow)
  const exposures = bounding
    ? createExposures({ store: exposureStore, ...bounding, accounts, findPayingOwners })
    : unbounded

  /**
   * Corrects a balance. Returns the uncovered part of a debit, which the ledger records as overage.
   * With `refund`, which is called after the account is locked, gives back the parts that it
   * returns.
   */
  async function correct(
    db: Db,
    { user, adjustment: requested, feature, refund }: Correction,
  ): Promise<{ account: Account; overage: UsdAttos }> {
    const account = await accounts.lockOne(db, user, requested.at)
    const at = toAppTime(account, requested.at)
    const refunded = refund && (await refund())
    const amount = refunded ? sumOf(refunded) : requested.amount
    const adjustment = { ...requested, at, amount }
    if (refunded) giveBack(account, { id: adjustment.id, at, parts: refunded })
    const overage = refunded ? usdAttos(0n) : adjust(account, { ...adjustment, feature })
    await accounts.insertAdjustment(db, account, adjustment)
    await accounts.save(db, [account], at)
    return { account, overage }
  }

  /**
   * Settles what was held for the tickets' calls, then burns credits for the tickets in the order
   * of decision 33, as one charge per user. `charges` must name each user once. What no credit
   * covers is overage. Also charges the owners of the users' apps, once per app. Locks users and
   * owners together, in id order.
   */
  async function charge(
    db: Db,
    charges: readonly UserCharge[],
    options: ChargeOptions,
  ): Promise<ChargeResult> {
    if (charges.length === 0) return { exhausted: [], settlement: null }
    const apps = appsToCharge(charges, options)
    const owners = apps.length === 0 ? noOwners : await findPayingOwners(db, apps)
    const everyone = distinctUsers([...charges, ...owners.values()])
    const locked = await accounts.lockStored(db, everyone)
    if (locked.length !== everyone.length) throw new Error('a charged user has no account')
    await accounts.enterRunning(db, locked, options.at)
    const byUser = new Map(charges.map((charge) => [charge.userId, charge]))
    const users = locked.filter(({ userId }) => byUser.has(userId))
    options.confirm(users)
    const settlement = await settle(db, { accounts: users, charges }, options)
    for (const account of users) {
      const charge = byUser.get(account.userId)
      const at = toAppTime(account, options.at)
      if (charge) book(account, charge, { ...options, owner: owners.get(charge.appId), at })
    }
    bookForOwners(locked, { owners, charges }, options)
    for (const account of locked) expireEnded(account, toAppTime(account, options.at))
    for (const { account, adjustment } of settlement?.givenBack ?? [])
      await accounts.insertAdjustment(db, account, adjustment)
    await accounts.save(db, locked, options.at)
    const exhausted = users
      .filter((account) => spendableAt(account.credits, toAppTime(account, options.at)) === 0n)
      .map((account) => account.userId)
    return { exhausted, settlement: settlement?.sums ?? null }
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
    const termsOf = await accounts.withhold(db, [account], () => terms)
    endIncluded(account, terms.period.start)
    enter(account, termsOf(account), at)
    await accounts.setCeilings(db, [account], termsOf)
  }

  /**
   * Books a payment of debt on a locked account, which the caller saves; a negative amount is a
   * refund or a dispute. If the credit line becomes smaller, recalls the leases. Returns whether
   * leases were recalled; the caller then publishes it.
   */
  async function collect(db: Db, account: Account, payment: DebtPayment): Promise<boolean> {
    const isLess = pay(account, { ...payment, at: toAppTime(account, payment.at) })
    return isLess && recall(db, account, payment.at)
  }

  /**
   * Sets the ceiling of a locked account's debt, which the caller saves. If the credit line becomes
   * smaller, recalls the leases. Returns whether leases were recalled; the caller then publishes it.
   */
  async function setCeiling(
    db: Db,
    account: Account,
    { ceiling, at }: { ceiling: Ceiling; at: Date },
  ): Promise<boolean> {
    return limitDebt(account, ceiling) && recall(db, account, at)
  }

  /**
   * Recalls the leases of a locked account from sidecars (docs/escrow.md). The caller saves the
   * account. Returns false, without a change, if no lease is open.
   */
  async function recall(db: Db, account: Account, at: Date): Promise<boolean> {
    const leases = createLeases(await escrow.findLeases(db, [account]))
    if (leases.list(account.userId).every(({ endsAt }) => endsAt <= at)) return false
    leases.recall(account, { missing: 0n, at })
    await escrow.saveLeases(db, leases.changes())
    return true
  }

  const { open, lock, nextIncluded, enterPeriods, read, readMany, readWithin, sweep, renew } =
    accounts
  const { save, insertAdjustment, rebuildBalance } = accounts
  return {
    ...withoutAccounts,
    open,
    adjust: correct,
    charge,
    lock,
    save,
    insertAdjustment,
    read,
    readMany,
    readWithin,
    changePlan,
    collect,
    setCeiling,
    exposures,
    ...createSpending(exposures),
    nextIncluded,
    recall,
    sweep,
    renew,
    rebuildBalance,
    enterPeriods,
  }
}

/** Whether users may spend, by both accounts of a call. */
function createSpending(exposures: Exposures) {
  /**
   * Returns a function for users of these apps: whether a call may be allowed at the real instant
   * `at`, and if not, the reason: of the user's account, or that the account of the app's owner
   * cannot pay.
   */
  async function spendingIn(db: Db, apps: readonly AppId[], at: Date) {
    const find = await exposures.read(db, apps, { at })
    return (account: Account): Spending =>
      spendingWith(find(account.appId), spendingAt(account, toAppTime(account, at)))
  }

  /** Like `spendingIn`, for one user. */
  const spending = async (db: Db, account: Account, at: Date): Promise<Spending> =>
    (await spendingIn(db, [account.appId], at))(account)

  /**
   * Returns a function like `spending`, at the present time. Calls in the same turn of the event loop
   * share the reading of the owners' accounts.
   */
  const batchSpending = (pool: Pool, now: Now) =>
    createBatchLoader((accounts: readonly Account[]) =>
      spendingIn(
        pool,
        accounts.map(({ appId }) => appId),
        now(),
      ),
    )

  return { spending, spendingIn, batchSpending }
}

export type Ledger = ReturnType<typeof createLedger>

const sumOf = (parts: readonly Return[]): UsdAttos =>
  usdAttos(parts.reduce((sum, { amount }) => sum + amount, 0n))

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
  return addCredit(account, credit, at)
}

/**
 * Gives a locked account what version `to` of its plan includes beyond what it got in the running
 * period, which began with version `from`. Applies once per version. The caller saves the account.
 * Returns whether anything was given.
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

/** Returns what may back a payment at the real instant `at`, in atto-dollars, without held money. */
const spendable = (account: Account, at: Date): UsdAttos =>
  unheldAt(account, toAppTime(account, at))

/** Books the tickets of a charge. If all of them wait for a price, only counts them as unpriced. */
function book(
  account: Account,
  charge: UserCharge,
  { owner, ...options }: ChargeOptions & { readonly owner: UserKey | undefined },
): void {
  const share = owner ? { userId: owner.userId, amount: charge.ownerCost } : null
  if (charge.tickets > 0) burn(account, { ...charge, ...options, owner: share })
  else if (charge.unpriced > 0) recordUnpriced(account, { ...options, unpriced: charge.unpriced })
}

/** Books one charge per app on the locked accounts of owners, in the order of the apps' ids. */
function bookForOwners(
  locked: readonly Account[],
  {
    owners,
    charges,
  }: {
    readonly owners: ReadonlyMap<AppId, UserKey>
    readonly charges: readonly UserCharge[]
  },
  { id, at, ratesKnownAt }: ChargeOptions,
): void {
  if (owners.size === 0) return
  const accounts = new Map<UserId, Account>(locked.map((account) => [account.userId, account]))
  const byApp = Map.groupBy(charges, ({ appId }) => appId)
  for (const chargedApp of [...owners.keys()].toSorted()) {
    const owner = owners.get(chargedApp)
    const account = owner && accounts.get(owner.userId)
    const ofApp = byApp.get(chargedApp) ?? []
    if (!account) throw new Error(`the owner of app ${chargedApp} has no account`)
    const amount = usdAttos(ofApp.reduce((sum, { ownerCost }) => sum + ownerCost, 0n))
    const tickets = ofApp.reduce((sum, charge) => sum + charge.tickets, 0)
    const charge = { id, chargedApp, amount, tickets, ratesKnownAt }
    burnForOwner(account, charge, toAppTime(account, at))
  }
}

const distinctUsers = (users: readonly UserKey[]): UserKey[] => [
  ...new Map(users.map(({ appId, userId }) => [userId, { appId, userId }])).values(),
]

const noOwners: ReadonlyMap<AppId, UserKey> = new Map()

/**
 * Returns the apps whose owners may have to pay. Another deployment priced imported tickets, and
 * charged their owners.
 */
function appsToCharge(
  charges: readonly UserCharge[],
  { ratesKnownAt }: Pick<ChargeOptions, 'ratesKnownAt'>,
): AppId[] {
  if (ratesKnownAt === null) return []
  return [...new Set(charges.flatMap(({ tickets, appId }) => (tickets > 0 ? [appId] : [])))]
}

/** Functions of the ledger that need no stored accounts. */
const withoutAccounts = {
  unusedIncluded,
  credit,
  spendable,
  uninvoiced,
  toAppTime,
  nextStart,
  raise,
  createReplay,
  shareCharge,
  readCredits,
  simulateLedger,
  readPeriods,
}
