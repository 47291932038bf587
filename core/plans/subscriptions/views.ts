import { microsDown } from '../../lib/money.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { planReads } from '../offers/reads.ts'
import type { PlanSync, RemotePlan } from '../sync/service.ts'
import { followIfDue } from './follow.ts'
import type {
  LockedAccount,
  PlanPayments,
  Resubscribe,
  SendSubscribers,
  SubscriptionLedger,
} from './ports.ts'
import * as store from './store.ts'
import type { Subscription, Successor } from './store.ts'
import { getUser } from './users.ts'

interface ViewsDeps<Account extends LockedAccount> {
  readonly pool: Pool
  readonly ledger: Pick<SubscriptionLedger<Account>, 'read'>
  readonly resubscribe: Resubscribe
  readonly payments: Pick<PlanPayments, 'findCheckoutSession'>
  readonly sync: Pick<PlanSync, 'remotes' | 'target'>
  readonly send?: SendSubscribers | undefined
  readonly clocks?: Clocks
  readonly now: Now
}

interface PlanAt {
  readonly appId: AppId
  readonly planId: string
  readonly at: Date
}

/** Past, current and scheduled subscriptions of a user. */
export function createSubscriptionViews<Account extends LockedAccount>({
  pool,
  ledger,
  resubscribe,
  payments,
  sync,
  send,
  clocks = realTime,
  now,
}: ViewsDeps<Account>) {
  /**
   * Throws NOT_FOUND for an unknown user. The subscription is absent when the app has no Starter
   * plan.
   */
  async function read(app: AppId, external: string) {
    const { externalUserId, ...user } = await getUser({ pool, resubscribe }, app, external)
    const at = now()
    const subscription = await present(user, at)
    const source = sync.target ?? 'ledger'
    if (!subscription)
      return { externalUserId, source, subscription: undefined, pending: undefined }
    const account = await ledger.read(pool, user, at)
    return {
      externalUserId,
      source,
      subscription: await render(subscription, account),
      pending: subscription.next ? await renderNext(user, subscription.next) : undefined,
    }
  }

  /** Returns the current subscription. Stores a due successor first. */
  async function present(user: UserKey, real: Date): Promise<Subscription | null> {
    const at = await clocks.timeOf(pool, user.appId, real)
    const subscription = await store.findSubscription(pool, user)
    if (!subscription?.next || subscription.next.at > at) return subscription
    return tx(pool, async (db) => {
      const locked = await store.lockSubscription(db, user)
      return locked && followIfDue(db, locked, { at, send })
    })
  }

  async function render(subscription: Subscription, account: Account) {
    const { id, planId, createdAt, next, status } = subscription
    const isCanceled = next?.reason === 'cancel'
    return {
      id,
      status: isCanceled && status === 'active' ? 'canceled' : status,
      plan: await renderPlan({ appId: subscription.appId, planId, at: account.periodStart }),
      currentPeriodStart: account.periodStart.toISOString(),
      currentPeriodEnd: account.periodEnd.toISOString(),
      createdAt: createdAt.toISOString(),
      cancelledAt: isCanceled ? next.setAt.toISOString() : undefined,
      checkoutSessionId:
        (await payments.findCheckoutSession(pool, subscription.appId, id)) ?? undefined,
    }
  }

  async function renderNext({ appId }: UserKey, { id, planId, at, reason }: Successor) {
    const plan = await renderPlan({ appId, planId, at })
    return { id, plan, effectiveAt: at.toISOString(), reason }
  }

  /** Renders a plan with the terms of the version in force at `at`. */
  async function renderPlan({ appId, planId, at }: PlanAt) {
    const [names, terms, remotes] = await Promise.all([
      store.planNames(pool, appId, [planId]),
      planReads.newestVersion(pool, { appId, planId }, at),
      sync.remotes(pool, appId, [planId]),
    ])
    const plan = names.get(planId)
    if (!plan || !terms) throw new Error(`plan ${planId} has no version`)
    return {
      id: planId,
      name: plan.name,
      status: plan.status,
      type: terms.type,
      includedUsdMicros:
        terms.included === null ? undefined : microsDown(terms.included).toString(),
      openmeterPlanKey: remotes.get(planId)?.key,
    }
  }

  /** Throws NOT_FOUND for an unknown user. */
  async function list(
    app: AppId,
    external: string,
    { after, limit }: { after: Cursor | null; limit: number },
  ) {
    const { externalUserId, ...user } = await getUser({ pool, resubscribe }, app, external)
    await present(user, now())
    const { items, nextCursor } = page(await store.listHistory(pool, user, { after, limit }), limit)
    const planIds = items.map(({ planId }) => planId)
    const remotes = await sync.remotes(pool, app, planIds)
    const rendered = items.map((item) => renderItem(item, remotes.get(item.planId)))
    return { externalUserId, items: rendered, nextCursor }
  }

  return { read, list }
}

export type SubscriptionViews = ReturnType<typeof createSubscriptionViews>

const renderItem = (item: store.HistoryItem, remote: RemotePlan | undefined) => ({
  id: item.id,
  status: item.status,
  planId: item.planId,
  planName: item.planName,
  activeFrom: item.createdAt.toISOString(),
  activeTo: item.endsAt?.toISOString(),
  openmeterPlanId: remote?.id,
  openmeterPlanKey: remote?.key,
})
