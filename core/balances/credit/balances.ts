import { DomainError } from '../../../proto/errors.ts'
import type { Users } from '../../identity/users/users.ts'
import type { User } from '../../identity/types.ts'
import { type UsdMicros, microsDown, microsUp, usdAttos } from '../../lib/money.ts'
import { tx } from '../../lib/sql.ts'
import { parseInstant } from '../../lib/time.ts'
import type { Clocks } from '../../shared/clocks/clocks.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import { activeAt, boundAt, spendableAt, unheldAt } from '../accounts/credits.ts'
import type { Spending } from '../accounts/spending.ts'
import { closePast } from '../accounts/store.ts'
import { moneyAt } from './money.ts'
import * as store from './past-store.ts'

export interface BalancesDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly users: Users
  /** Returns the number of the user's tickets that wait for a rate. */
  readonly countUnpriced: (user: UserKey) => Promise<bigint>
  readonly readAccount: (user: UserKey) => Promise<Account>
  /** Whether the user may spend now, by its account and its app's owner's. */
  readonly spending: (account: Account) => Promise<Spending>
  readonly clocks: Clocks
}

/** A user as identified in the API. */
interface UserName {
  readonly appId: AppId
  readonly externalUserId: string
}

/** Balances of users, now and in the past, in USD micros as in the API. */
export function createBalances({
  pool,
  users,
  countUnpriced,
  readAccount,
  spending,
  clocks,
  now,
}: BalancesDeps) {
  /** Returns the current balance, or with `asOf` a past one (see `balanceAsOf`). */
  async function balance({ appId, externalUserId }: UserName, asOf?: string) {
    const user = await users.get(appId, externalUserId)
    return asOf === undefined ? balanceNow(user, now()) : balanceAsOf(user, asOf)
  }

  async function balanceNow(user: User, at: Date) {
    const key = toUserKey(user)
    const [figures, unpriced] = await Promise.all([balanceOf(key, at), countUnpriced(key)])
    return {
      externalUserId: user.externalUserId,
      ...figures,
      unpricedTickets: unpriced.toString(),
    }
  }

  /**
   * Returns the balance at `at`, without the number of tickets that wait for a rate. The caller
   * must have just read the user.
   */
  async function balanceOf(user: UserKey, at = now()) {
    return (await stateOf(user, at)).balance
  }

  /** Returns the balance, and what the account has, owes and may spend, from one reading. */
  async function stateOf(user: UserKey, at = now()) {
    const account = await readAccount(user)
    const own = toAppTime(account, at)
    const allowed = await spending(account)
    const balance = renderBalance(account, own, allowed)
    return { balance, money: moneyAt(account, own, allowed) }
  }

  /**
   * Returns the balance at `asOf` (ISO 8601) by booking time: what was known then, which never
   * changes. For the present instant, returns the live balance. Throws REQUEST_INVALID for an
   * invalid or future instant, NOT_FOUND for an instant before the user was created.
   */
  async function balanceAsOf(user: User, asOf: string) {
    const at = parseInstant(asOf)
    if (!at)
      throw new DomainError(
        'REQUEST_INVALID',
        'asOf must be an ISO 8601 instant with a zone, such as 2026-01-31T12:00:00Z',
      )
    const real = now()
    const present = await clocks.timeOf(pool, user.appId, real)
    if (at > present) throw new DomainError('REQUEST_INVALID', 'asOf must not be in the future')
    const userAt = { ...toUserKey(user), at }
    const since = await store.userSince(pool, userAt)
    if (!since || since > at)
      throw new DomainError('NOT_FOUND', 'the user did not exist at that time')
    if (at.getTime() === present.getTime()) {
      const { canSpend: _, spendRefusal: __, ...figures } = await balanceNow(user, real)
      return { ...figures, asOf: at.toISOString() }
    }
    const past = await tx(pool, async (db) => {
      await closePast(db, userAt)
      return store.balanceAt(db, userAt)
    })
    const remaining = microsDown(past.balance)
    return {
      externalUserId: user.externalUserId,
      balanceUsdMicros: remaining.toString(),
      remainingUsdMicros: remaining.toString(),
      consumedUsdMicros: microsUp(past.consumed).toString(),
      lifetimeGrantedUsdMicros: microsDown(past.granted).toString(),
      hasAccess: remaining > 0n,
      unpricedTickets: past.unpriced.toString(),
      featureBalances: past.bound.map(({ featureKey, remaining: left }) => ({
        featureKey,
        balanceUsdMicros: microsDown(left).toString(),
      })),
      asOf: at.toISOString(),
    }
  }

  return { balance, balanceOf, stateOf }
}

function renderBalance(account: Account, at: Date, spending: Spending) {
  const { balance, remaining, featureBalances } = computeFigures(account, at)
  return {
    balanceUsdMicros: balance.toString(),
    remainingUsdMicros: remaining.toString(),
    consumedUsdMicros: microsUp(account.periodConsumed).toString(),
    lifetimeGrantedUsdMicros: lifetimeGranted(account, at).toString(),
    hasAccess: remaining > 0n,
    ...renderSpending(spending),
    featureBalances,
  }
}

export const renderSpending = ({ canSpend, refusal }: Spending) => ({
  canSpend,
  spendRefusal: refusal ?? '',
})

export const toUserKey = (user: User): UserKey => ({
  appId: user.appId,
  userId: user.id,
})

/** Included usage of the running period, plus every other credit ever granted (docs/usage.md). */
export function lifetimeGranted(account: Account, at: Date): UsdMicros {
  const included = activeAt(account.credits, at).filter(({ kind }) => kind === 'included')
  return microsDown(
    usdAttos(included.reduce((sum: bigint, { amount }) => sum + amount, account.topup)),
  )
}

/**
 * Returns the money that pays for any call, its unheld part, and the money bound to features
 * (decisions 34, 45, 57).
 */
export const computeFigures = (account: Account, at: Date) => ({
  balance: microsDown(spendableAt(account.credits, at)),
  remaining: microsDown(unheldAt(account, at)),
  featureBalances: boundAt(account.credits, at).map(({ featureKey, remaining }) => ({
    featureKey,
    balanceUsdMicros: microsDown(remaining).toString(),
  })),
})
