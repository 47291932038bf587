import type { UsdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'
import { type Account, toAppTime } from './account.ts'
import { type Collecting, uninvoiced } from './credit-line.ts'

/**
 * Requests collections when accounts are saved: in the transaction that books, so that none is lost
 * and a crossing by many tickets, threads or cores requests one (docs/collection.md).
 */

export type DueReason = 'threshold' | 'ceiling' | 'period' | 'final'

export interface DueCollection extends UserKey {
  readonly reason: DueReason
  /** False collects only the prices of periods. */
  readonly withUsage: boolean
  /** By the clock of the app. */
  readonly dueAt: Date
}

/** Stores requests. Keeps an earlier request of the same kind and user. */
export type RequestCollections = (db: Db, due: readonly DueCollection[], at: Date) => Promise<void>

/** Late tickets of a period are booked within this time after its end. */
const lateMs = 3_600_000

/** The part of the storage that locks and saves accounts. */
interface LockingStore {
  lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]>
  saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void>
}

/** Returns a store that requests the collections of each account that it saves. */
export function watchCollections<Store extends LockingStore>(
  store: Store,
  request: RequestCollections,
): Store {
  const before = new WeakMap<Account, Collecting | null>()

  async function lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
    const locked = await store.lockAccounts(db, users)
    for (const account of locked) before.set(account, account.collecting)
    return locked
  }

  async function saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
    const due = accounts.flatMap((account) =>
      findDueCollections(account, {
        before: before.get(account) ?? null,
        at: toAppTime(account, at),
      }),
    )
    await store.saveAccounts(db, accounts, at)
    for (const account of accounts) before.set(account, account.collecting)
    if (due.length > 0) await request(db, due, at)
  }

  return { ...store, lockAccounts, saveAccounts }
}

/** Returns the collections that a changed account needs. `at` is the time of its app. */
export function findDueCollections(
  account: Account,
  { before, at }: { readonly before: Collecting | null; readonly at: Date },
): DueCollection[] {
  const { appId, userId, collecting } = account
  const owed: UsdAttos = uninvoiced(account)
  const crossing: DueCollection[] =
    collecting !== null && owed >= collecting.step
      ? [{ appId, userId, reason: collecting.by, withUsage: true, dueAt: at }]
      : []
  return [...crossing, ...periodOf(account, before)]
}

/**
 * The end of a period: its usage, and the price of the next. A plan with a threshold has only its
 * price then; what is left is collected when the user leaves the plan.
 */
function periodOf(account: Account, before: Collecting | null): DueCollection[] {
  const { appId, userId, periods, collecting } = account
  const start = periods.at(0)?.start
  if (start === undefined || (before === null && collecting === null)) return []
  const isByThreshold = before?.by === 'threshold' && collecting?.by === 'threshold'
  // A user who comes from a free plan owes nothing, as a rule.
  const hasUsage = before === null ? uninvoiced(account) > 0n : !isByThreshold
  if (!hasUsage && !hasPrice(account)) return []
  const reason = collecting === null ? 'final' : 'period'
  const dueAt = new Date(start.getTime() + lateMs)
  return [{ appId, userId, reason, withUsage: !isByThreshold, dueAt }]
}

const hasPrice = ({ periods }: Account): boolean =>
  periods.some(({ terms }) => (terms.priceAttos ?? 0n) > 0n)
