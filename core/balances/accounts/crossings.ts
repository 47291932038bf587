import { microsDown, microsToAttos, usdAttos, usdMicros } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { EventType } from '../../../proto/events.ts'
import type { AppEvent, EmitAll } from '../../shared/events.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Account } from './account.ts'
import { creditLine } from './credit-line.ts'
import { paysForAnything } from './credits.ts'

/**
 * Events about money that runs out or returns. Compares each account at its lock with the same
 * account when it is saved, so a batch of tickets emits at most one event of a type, and each
 * crossing emits once, whichever core books it.
 */

/** A balance is low below a fifth of what the period includes, and always below 0.50 USD. */
const lowShare = 5n
const lowMinimum = microsToAttos(usdMicros(500_000n))

/** The unexpired money that pays for any call, including held money. */
const openMoney = ({ credits }: Account): bigint =>
  credits.reduce(
    (sum, { remaining, expiredAt, featureKey }) =>
      expiredAt === null && paysForAnything(featureKey) ? sum + remaining : sum,
    0n,
  )

function lowThreshold({ credits }: Account): bigint {
  const included = credits.reduce(
    (sum, { kind, amount, expiredAt }) =>
      kind === 'included' && expiredAt === null ? sum + amount : sum,
    0n,
  )
  const share = included / lowShare
  return share > lowMinimum ? share : lowMinimum
}

/** Whether the money is below the threshold of the event `balance.low`. */
export const isLow = (account: Account): boolean => openMoney(account) < lowThreshold(account)

/** What may pay for any call: money, and money with the credit line. */
interface Spendable {
  readonly money: bigint
  readonly all: bigint
}

function spendableOf(account: Account): Spendable {
  const money = openMoney(account)
  return { money, all: money + creditLine(account) }
}

/** The part of the storage that locks and saves accounts. */
interface LockingStore {
  lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]>
  saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void>
}

/** Returns a store that emits the crossings between the lock and each save of an account. */
export function watchCrossings<Store extends LockingStore>(store: Store, emitAll: EmitAll): Store {
  const before = new WeakMap<Account, Spendable>()
  const remember = (accounts: readonly Account[]): void => {
    // The first money of an account restores nothing.
    for (const account of accounts) if (account.seq > 0n) before.set(account, spendableOf(account))
  }

  async function lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
    const locked = await store.lockAccounts(db, users)
    remember(locked)
    return locked
  }

  async function saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
    await store.saveAccounts(db, accounts, at)
    const events = accounts.flatMap((account) => {
      const earlier = before.get(account)
      return earlier === undefined ? [] : crossingsOf(account, { before: earlier, at })
    })
    remember(accounts)
    if (events.length > 0) await emitAll(db, events)
  }

  return { ...store, lockAccounts, saveAccounts }
}

const toMicros = (attos: bigint): string => String(microsDown(usdAttos(attos)))

function crossingsOf(
  account: Account,
  { before, at }: { readonly before: Spendable; readonly at: Date },
): AppEvent[] {
  const after = spendableOf(account)
  const { appId, userId } = account
  const event = (type: EventType, data: AppEvent['data'] = {}): AppEvent => ({
    appId,
    userId,
    type,
    at,
    data: { balanceUsdMicros: toMicros(after.money), ...data },
  })
  const access =
    before.all > 0n && after.all === 0n
      ? [event('access.lost')]
      : before.all === 0n && after.all > 0n
        ? [event('access.restored')]
        : []
  if (after.money >= before.money) return access
  if (after.money === 0n) return [event('balance.depleted'), ...access]
  const low = lowThreshold(account)
  const thresholdUsdMicros = toMicros(low)
  return before.money >= low && after.money < low
    ? [event('balance.low', { thresholdUsdMicros }), ...access]
    : access
}
