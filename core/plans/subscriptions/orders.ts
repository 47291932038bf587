import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { later } from '../../shared/clocks/clocks.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Plan } from '../offers/plan.ts'
import type { Author, Change } from './change.ts'
import {
  type Moves,
  getPlan,
  priceAttos,
  requireOpen,
  requireOther,
  soldNow,
  toSold,
} from './moves.ts'
import type { LockedAccount } from './ports.ts'
import { type Timing, defaultTiming } from './timing.ts'

/** What a move would cost now. */
export interface Quote {
  readonly timing: Timing
  /** The subscription in the slot. */
  readonly from: { readonly subscriptionId: string; readonly planId: string }
  /** The price of the first period; 0 for a move at the end of the period. */
  readonly price: UsdAttos
  /** The part of the running period's price that is not used. */
  readonly proration: UsdAttos
}

export interface OrderedMove {
  readonly planId: string
  readonly timing: Timing
  /** The price of the first period, as charged. */
  readonly price: UsdAttos
  readonly by: Author
}

/** Moves that are paid before they are booked. */
export function createOrderedMoves<Account extends LockedAccount>({
  pool,
  lockStored,
  unusedPrice,
  move,
  now,
}: Pick<Moves<Account>, 'lockStored' | 'unusedPrice' | 'move'> & {
  readonly pool: Pool
  readonly now: Now
}) {
  /** Returns what a move would cost. Throws like the move itself. */
  async function quote(
    user: UserKey,
    { plan, timing: requested }: { readonly plan: Plan; readonly timing: Timing | undefined },
  ): Promise<Quote> {
    return tx(pool, async (db) => {
      const at = now()
      const { account, subscription } = await lockStored(db, user, at)
      requireOther(subscription.planId, plan)
      requireOpen(plan)
      const timing =
        requested ?? defaultTiming(await soldNow(db, account, subscription), toSold(plan))
      const own = later(at, account.aheadMs)
      const { amount: proration } = await unusedPrice(db, { account, subscription, at: own })
      const from = { subscriptionId: subscription.id, planId: subscription.planId }
      return timing === 'immediate'
        ? { timing, from, price: priceAttos(plan.newest), proration }
        : { timing, from, price: zero, proration: zero }
    })
  }

  /**
   * Books a move, within the transaction that books its payment. Throws CONFLICT for a plan that
   * takes no new subscribers, or has another price; REQUEST_INVALID for the user's plan; NOT_FOUND
   * for a deleted one.
   */
  async function book(
    db: Db,
    user: UserKey,
    { planId, timing, price, by }: OrderedMove,
  ): Promise<Change> {
    const plan = await getPlan(db, user.appId, planId)
    const charged = timing === 'immediate' ? price : undefined
    return move(db, user, { target: { plan, timing, reason: 'change', price: charged }, by })
  }

  return { quote, book }
}

export type OrderedMoves = ReturnType<typeof createOrderedMoves>
const zero = usdAttos(0n)
