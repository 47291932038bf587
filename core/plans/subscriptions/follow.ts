import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { anchorFrom, cyclesSince, newestAt } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { SendSubscribers } from './ports.ts'
import * as store from './store.ts'
import type { Following, Subscription, Successor } from './store.ts'

type Cycles = Awaited<ReturnType<typeof store.listCycles>>
type Followed = Subscription & { readonly next: Successor }

const batch = 500
const roundMs = 20_000

const hasNext = (subscription: Subscription): subscription is Followed => subscription.next !== null

/** Replaces locked subscriptions by their due successors. */
async function followAll(db: Db, due: readonly Followed[], send?: SendSubscribers): Promise<void> {
  const plans = due.flatMap(({ appId, planId, next }) =>
    [planId, next.planId].map((plan) => [plan, appId] as const),
  )
  const cycles = await store.listCycles(db, new Map(plans))
  await store.replaceSubscriptions(
    db,
    due.map((subscription) => followingOf(subscription, cycles)),
  )
  await send?.(db, due)
}

/** Must match `core/balances/accounts/terms.ts`, which computes the same for successors not yet stored. */
function followingOf(ended: Followed, cycles: Cycles): Following {
  const { id, planId, at, reason } = ended.next
  const versionsOf = (plan: string) => {
    const [first, ...later] = cycles.get(plan) ?? []
    if (!first) throw new Error(`plan ${plan} has no version`)
    return [first, ...later] as const
  }
  const changes = cyclesSince(versionsOf(ended.planId), ended.createdAt)
  const { cycle } = newestAt(versionsOf(planId), at)
  const anchorAt = anchorFrom(at, { anchor: ended.anchorAt, changes }, cycle)
  return { ended, id, planId, anchorAt, since: at, reason }
}

/**
 * Returns the subscription in the slot at `at`: the locked one, or its successor, which is then
 * stored.
 */
export async function followIfDue(
  db: Db,
  subscription: Subscription,
  { at, send }: { readonly at: Date; readonly send?: SendSubscribers | undefined },
): Promise<Subscription> {
  if (!hasNext(subscription) || subscription.next.at > at) return subscription
  await followAll(db, [subscription], send)
  return (await store.findSubscription(db, subscription)) ?? subscription
}

/**
 * Activates due successors, for a bounded time: of all apps in real time, or of one app by its
 * clock. No request depends on it, because every read of a slot and every new period computes due
 * successors. Several cores may run it at once.
 */
export async function followDue(
  pool: Pool,
  at: Date,
  { app = null, send }: { readonly app?: AppId | null; readonly send?: SendSubscribers } = {},
): Promise<number> {
  const end = performance.now() + roundMs
  for (let total = 0; ;) {
    const count = await tx(pool, async (db) => {
      const due = (await store.lockDue(db, at, { app, limit: batch })).filter(hasNext)
      if (due.length > 0) await followAll(db, due, send)
      return due.length
    })
    total += count
    if (count < batch || performance.now() > end) return total
  }
}
