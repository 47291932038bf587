import { microsDown } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import type { AppId } from '../../platform/ids.ts'
import { planReads } from '../offers/reads.ts'
import { followIfDue } from './follow.ts'
import type { LockedAccount, SubscriptionLedger } from './ports.ts'
import * as store from './store.ts'
import type { Subscription, Successor, UserKey } from './store.ts'
import { getUser } from './subscriptions.ts'

interface ViewsDeps<Account extends LockedAccount> {
  readonly pool: Pool
  readonly ledger: Pick<SubscriptionLedger<Account>, 'read'>
  readonly now: Now
}

/** What a user is on, was on, and will be on. */
export function createSubscriptionViews<Account extends LockedAccount>({
  pool,
  ledger,
  now,
}: ViewsDeps<Account>) {
  /** NOT_FOUND for an unknown user. The subscription is absent for a user who has none. */
  async function read(app: AppId, external: string) {
    const { externalUserId, ...user } = await getUser(pool, app, external)
    const at = now()
    const subscription = await present(user, at)
    if (!subscription) return { externalUserId, subscription: undefined, pending: undefined }
    const account = await ledger.read(pool, user, at)
    return {
      externalUserId,
      subscription: await render(subscription, account),
      pending: subscription.next ? await renderNext(user, subscription.next) : undefined,
    }
  }

  /** With the successor, when that is due, in its place. */
  async function present(user: UserKey, at: Date): Promise<Subscription | null> {
    const subscription = await store.findSubscription(pool, user)
    if (!subscription?.next || subscription.next.at > at) return subscription
    return tx(pool, async (db) => {
      const locked = await store.lockSubscription(db, user)
      return locked && followIfDue(db, locked, at)
    })
  }

  async function render(subscription: Subscription, account: Account) {
    const { id, planId, createdAt, next } = subscription
    const isCanceled = next?.reason === 'cancel'
    return {
      id,
      status: isCanceled ? 'canceled' : 'active',
      plan: await renderPlan(pool, { appId: subscription.appId, planId, at: account.periodStart }),
      currentPeriodStart: account.periodStart.toISOString(),
      currentPeriodEnd: account.periodEnd.toISOString(),
      createdAt: createdAt.toISOString(),
      cancelledAt: isCanceled ? next.setAt.toISOString() : undefined,
    }
  }

  async function renderNext({ appId }: UserKey, { id, planId, at, reason }: Successor) {
    const plan = await renderPlan(pool, { appId, planId, at })
    return { id, plan, effectiveAt: at.toISOString(), reason }
  }

  /** NOT_FOUND for an unknown user. */
  async function list(
    app: AppId,
    external: string,
    { after, limit }: { after: Cursor | null; limit: number },
  ) {
    const { externalUserId, ...user } = await getUser(pool, app, external)
    await present(user, now())
    const { items, nextCursor } = page(await store.listHistory(pool, user, { after, limit }), limit)
    return { externalUserId, items: items.map(renderItem), nextCursor }
  }

  return { read, list }
}

export type SubscriptionViews = ReturnType<typeof createSubscriptionViews>

/** A plan with the terms of the version that holds at an instant. */
async function renderPlan(
  db: Db,
  { appId, planId, at }: { readonly appId: AppId; readonly planId: string; readonly at: Date },
) {
  const [names, terms] = await Promise.all([
    store.planNames(db, appId, [planId]),
    planReads.newestVersion(db, { appId, planId }, at),
  ])
  const plan = names.get(planId)
  if (!plan || !terms) throw new Error(`plan ${planId} has no version`)
  return {
    id: planId,
    name: plan.name,
    status: plan.status,
    type: terms.type,
    includedUsdMicros: terms.included === null ? undefined : microsDown(terms.included).toString(),
  }
}

const renderItem = (item: store.HistoryItem) => ({
  id: item.id,
  status: item.status,
  planId: item.planId,
  planName: item.planName,
  activeFrom: item.createdAt.toISOString(),
  activeTo: item.endsAt?.toISOString(),
})
