import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, afterCommit, tx } from '../../lib/sql.ts'
import { type Now, periodAt } from '../../lib/time.ts'
import { audit } from '../../platform/audit.ts'
import type { Idempotency } from '../../platform/idempotency.ts'
import { type Clocks, later, realTime } from '../../platform/clocks/clocks.ts'
import type { AppId } from '../../platform/ids.ts'
import { isOwnerSubject, subjectProblem } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { type Plan, isChargeable } from '../offers/plan.ts'
import { planReads } from '../offers/reads.ts'
import { followIfDue } from './follow.ts'
import type { Selling } from '../offers/service.ts'
import type { PlanSync } from '../sync/service.ts'
import type {
  Cards,
  LockedAccount,
  Resubscribe,
  SendSubscribers,
  SubscriptionLedger,
} from './ports.ts'
import * as store from './store.ts'
import type { EndReason, Subscription, UserKey } from './store.ts'
import {
  type Sold,
  type Timing,
  defaultTiming,
  isPriced,
  needsCard,
  parseTiming,
} from './timing.ts'

export interface SubscriptionsDeps<Account extends LockedAccount> {
  readonly pool: Pool
  readonly ledger: SubscriptionLedger<Account>
  readonly resubscribe: Resubscribe
  readonly selling: Selling
  readonly sync: Pick<PlanSync, 'isSynced' | 'remotes' | 'target'>
  readonly cards: Cards
  readonly send?: SendSubscribers
  readonly idempotency: Idempotency
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly clocks?: Clocks
  readonly log: Log
  readonly now: Now
}

/** The caller that changes a subscription, for the audit log. */
export interface Author {
  readonly name: string
  readonly correlationId: string
  /** Operators need neither payment method nor activation gate; they settle payment by hand. */
  readonly isOperator: boolean
}

export interface ChangeRequest {
  readonly externalUserId: string
  readonly planId: string
  readonly timing: string | undefined
  readonly successUrl: string | undefined
  readonly cancelUrl: string | undefined
  readonly idempotencyKey: string | undefined
}

export interface CancelRequest {
  readonly externalUserId: string
  readonly confirm: boolean
  readonly timing?: string | undefined
}

/** Result of a request. `planId` is the plan of the subscription in the slot now. */
export interface Change {
  readonly subscriptionId: string
  readonly planId: string
  readonly effectiveAt?: string | undefined
  readonly timing: Timing
  readonly checkoutUrl?: string | undefined
  readonly pending?: Pending | undefined
}

interface Pending {
  readonly subscriptionId: string
  readonly planId: string
  readonly effectiveAt: string
}

interface Target {
  readonly plan: Plan
  readonly timing: Timing | undefined
  readonly reason: EndReason
}

type SubscribedUser = UserKey & { readonly externalUserId: string }

/**
 * Moves users between plans. A user has one slot, which is never empty. Every change locks the
 * account first.
 */
export function createSubscriptions<Account extends LockedAccount>({
  pool,
  ledger,
  resubscribe,
  selling,
  sync,
  cards,
  send,
  idempotency,
  invalidations,
  clocks = realTime,
  log,
  now,
}: SubscriptionsDeps<Account>) {
  /**
   * Moves a user to another plan, now or at the end of the current period, and replaces a scheduled
   * change. If the plan needs a payment method that the user lacks, nothing changes and the result
   * has a checkout URL. Throws NOT_FOUND for an unknown user or plan, CONFLICT for a plan that
   * takes no subscribers, REQUEST_INVALID for the user's current plan.
   */
  async function change(app: AppId, request: ChangeRequest, by: Author): Promise<Change> {
    const { externalUserId, planId, successUrl, cancelUrl, idempotencyKey: key } = request
    if (planId.trim() === '') throw new DomainError('REQUEST_INVALID', 'planId is required')
    const timing = parseTiming(request.timing)
    const user = await getChangeable(app, externalUserId)
    const body = { userId: user.userId, planId, timing, successUrl, cancelUrl }
    const scope = `${by.name}:${app}:subscription-change`
    return idempotency.once({ scope, key, body }, async (db) => {
      const plan = await getPlan(db, app, planId)
      if (
        !by.isOperator &&
        plan.status === 'active' &&
        isPriced(plan.newest) &&
        !plan.isStarterDefault
      )
        await selling.require(db, plan)
      requireOpen(plan)
      await requireSynced(db, plan)
      const current = await readCurrent(db, user)
      requireOther(current.planId, plan)
      // Before any lock or change, so that a user who abandons checkout keeps the scheduled change.
      const card =
        by.isOperator || !needsCard(soldOf(plan))
          ? null
          : await cards.askForCard({ ...user, planId, successUrl, cancelUrl })
      if (card) return unchanged(current, timing ?? 'immediate', card.checkoutUrl)
      return move(db, user, { target: { plan, timing, reason: 'change' }, by })
    })
  }

  /**
   * Moves a user to Starter, at the end of the current period or now. Throws CONFIRM_REQUIRED,
   * NO_SUBSCRIPTION, ALREADY_STARTER, and ALREADY_SCHEDULED when this is already scheduled.
   */
  async function cancel(app: AppId, request: CancelRequest, by: Author): Promise<Change> {
    const timing = parseTiming(request.timing) ?? 'next_billing_cycle'
    requireConfirmed(request.confirm)
    const user = await getChangeable(app, request.externalUserId)
    return tx(pool, async (db) => {
      const current = await readCurrent(db, user)
      const starter = await store.findStarter(db, app)
      if (starter === null || current.planId === starter)
        throw new DomainError('ALREADY_STARTER', 'the user is already on the Starter plan')
      if (timing === 'next_billing_cycle' && current.next?.planId === starter)
        throw new DomainError(
          'ALREADY_SCHEDULED',
          'the subscription is already scheduled to end with its period',
        )
      const plan = await getPlan(db, app, starter)
      return move(db, user, { target: { plan, timing, reason: 'cancel' }, by })
    })
  }

  /** Removes the scheduled change. Throws NOTHING_TO_RESUME when nothing is scheduled. */
  async function resume(app: AppId, request: CancelRequest, by: Author): Promise<Change> {
    requireConfirmed(request.confirm)
    const user = await getChangeable(app, request.externalUserId)
    return tx(pool, async (db) => {
      const at = now()
      const { account, subscription } = await lockPresent(db, user, at)
      const { id, planId, next } = subscription
      if (!next) throw new DomainError('NOTHING_TO_RESUME', 'no change of plan is scheduled')
      await store.saveSuccessor(db, user, null)
      await ledger.save(db, [account], at)
      const details = { subscriptionId: id, planId, scheduledPlanId: next.planId }
      await note(db, user, { by, action: 'subscription_resumed', at, details })
      return {
        subscriptionId: id,
        planId,
        effectiveAt: later(at, account.aheadMs).toISOString(),
        timing: 'immediate' as const,
      }
    })
  }

  /**
   * Locks the account and the slot of a user and brings them up to date. The caller saves the
   * account.
   */
  async function lockPresent(
    db: Db,
    user: UserKey,
    at: Date,
  ): Promise<{ account: Account; subscription: Subscription }> {
    const [account] = await ledger.lock(db, [user], at)
    const locked = account && (await store.lockSubscription(db, user))
    if (!account || !locked) throw noSubscription()
    // A core whose clock is ahead may have entered the successor's period.
    const own = later(at, account.aheadMs)
    const present = own < account.periodStart ? account.periodStart : own
    return { account, subscription: await followIfDue(db, locked, { at: present, send }) }
  }

  async function readCurrent(db: Db, user: UserKey): Promise<Subscription> {
    const subscription = await store.findSubscription(db, user)
    if (!subscription) throw noSubscription()
    const { next } = subscription
    return next && next.at <= (await clocks.timeOf(db, user.appId, now()))
      ? { ...subscription, ...next, next: null }
      : subscription
  }

  async function move(
    db: Db,
    user: SubscribedUser,
    { target, by }: { target: Target; by: Author },
  ): Promise<Change> {
    const at = now()
    const { account, subscription } = await lockPresent(db, user, at)
    requireOther(subscription.planId, target.plan)
    await store.lockPlan(db, user.appId, target.plan.id)
    const plan = await getPlan(db, user.appId, target.plan.id)
    requireOpen(plan)
    const timing =
      target.timing ?? defaultTiming(await soldNow(db, account, subscription), soldOf(plan))
    const own = later(at, account.aheadMs)
    const step = { account, subscription, plan, reason: target.reason, at: own }
    const answer = timing === 'immediate' ? await changeNow(db, step) : await changeLater(db, step)
    const isRecalled = timing === 'immediate' && (await ledger.recall(db, account, at))
    await ledger.save(db, [account], at)
    const details = {
      fromPlanId: subscription.planId,
      planId: plan.id,
      timing,
      effectiveAt: answer.effectiveAt ?? null,
    }
    const action = target.reason === 'cancel' ? 'subscription_canceled' : 'subscription_changed'
    await note(db, user, { by, action, at, details })
    if (timing === 'immediate') await announce(db, user, isRecalled)
    return answer
  }

  /**
   * Makes sidecars check access again and return their leases, because the new plan may include
   * less.
   */
  async function announce(db: Db, { userId: id }: UserKey, isRecalled: boolean): Promise<void> {
    await afterCommit(db, () => invalidations.publish({ kind: 'access', id }))
    if (isRecalled) await afterCommit(db, () => invalidations.publish({ kind: 'lease', id }))
  }

  interface Step {
    readonly account: Account
    readonly subscription: Subscription
    readonly plan: Plan
    readonly reason: EndReason
    /** By the clock of the app. */
    readonly at: Date
  }

  async function changeNow(
    db: Db,
    { account, subscription, plan, reason, at }: Step,
  ): Promise<Change> {
    const start = ledger.nextStart(account, at)
    const id = uuidV7(at.getTime())
    const key = { appId: plan.appId, planId: plan.id }
    const terms = (await planReads.newestVersion(db, key, start)) ?? plan.newest
    await store.replaceSubscriptions(db, [
      { ended: subscription, id, planId: plan.id, anchorAt: start, since: start, reason },
    ])
    await send?.(db, [subscription])
    const period = periodAt(start, terms.billingCycle, start)
    const includedAttos = terms.included ?? 0n
    const isFree = plan.isStarterDefault || terms.type === 'free'
    const freeCycle = isFree ? terms.billingCycle : null
    const entered = { planId: plan.id, planVersion: terms.version, includedAttos, period }
    const held = { ...entered, isFree, freeCycle }
    await ledger.changePlan(db, account, { terms: held, at })
    return {
      subscriptionId: id,
      planId: plan.id,
      effectiveAt: start.toISOString(),
      timing: 'immediate',
    }
  }

  async function changeLater(
    db: Db,
    { account, subscription, plan, reason, at }: Step,
  ): Promise<Change> {
    const id = uuidV7(at.getTime())
    const next = { id, planId: plan.id, at: account.periodEnd, reason, setAt: at }
    await store.saveSuccessor(db, subscription, next)
    const effectiveAt = next.at.toISOString()
    return {
      subscriptionId: subscription.id,
      planId: subscription.planId,
      effectiveAt,
      timing: 'next_billing_cycle',
      pending: { subscriptionId: id, planId: plan.id, effectiveAt },
    }
  }

  /** Returns the terms that the user pays for in the current period. */
  async function soldNow(db: Db, account: Account, { planId }: Subscription): Promise<Sold> {
    const { appId } = account
    const terms = await planReads.newestVersion(db, { appId, planId }, account.periodStart)
    const isStarterDefault = (await store.findStarter(db, appId)) === planId
    if (!terms) throw new Error(`plan ${planId} has no version`)
    return { ...terms, isStarterDefault }
  }

  /** Throws CONFLICT when the metering backend should have the plan but does not. */
  async function requireSynced(db: Db, plan: Plan): Promise<void> {
    if (await sync.isSynced(db, plan)) return
    throw new DomainError(
      'CONFLICT',
      'the plan is not synced: the metering backend does not have it; sync it, or choose another',
    )
  }

  async function getChangeable(app: AppId, externalUserId: string): Promise<SubscribedUser> {
    const user = await getUser({ pool, resubscribe }, app, externalUserId)
    if (isOwnerSubject(user.externalUserId))
      throw new DomainError(
        'OWNER_WALLET_NOT_APP_USER',
        "this is the app's owner, whose plan cannot be changed like a user's plan",
      )
    return user
  }

  async function note(
    db: Db,
    { appId, userId }: UserKey,
    entry: {
      readonly by: Author
      readonly action: string
      readonly at: Date
      readonly details: Readonly<Record<string, string | null>>
    },
  ): Promise<void> {
    const { by, action, at, details } = entry
    log.info({ appId, userId, ...details }, action.replaceAll('_', ' '))
    await audit(db, {
      appId,
      actor: by.name,
      action,
      status: 'success',
      correlationId: by.correlationId,
      details: { userId, ...details },
      at,
    })
  }

  return { change, cancel, resume }
}

export type Subscriptions = ReturnType<typeof createSubscriptions>

/**
 * Returns the user, and recreates a missing subscription. Throws NOT_FOUND when the app has no such
 * user, REQUEST_INVALID for an invalid external user id.
 */
export async function getUser(
  { pool, resubscribe }: { readonly pool: Pool; readonly resubscribe: Resubscribe },
  app: AppId,
  externalUserId: string,
): Promise<SubscribedUser> {
  const problem = subjectProblem(externalUserId)
  if (problem) throw new DomainError('REQUEST_INVALID', problem)
  const user = await store.findUser(pool, app, externalUserId.trim())
  if (!user) throw new DomainError('NOT_FOUND', 'the app has no such user')
  if (!user.isSubscribed) await tx(pool, (db) => resubscribe(db, [user]))
  return user
}

async function getPlan(db: Db, app: AppId, planId: string): Promise<Plan> {
  const plan = await planReads.findPlan(db, app, planId)
  if (!plan) throw new DomainError('NOT_FOUND', 'the app has no such plan')
  return plan
}

/** Throws CONFLICT for a plan that takes no new subscribers. */
function requireOpen({ status, isNetworkDefault, newest }: Plan): void {
  if (isNetworkDefault)
    throw new DomainError(
      'CONFLICT',
      'this plan only shows network prices; users cannot be put on it',
    )
  if (status !== 'active')
    throw new DomainError('CONFLICT', 'the plan is not active; activate it, or choose another')
  if (!isChargeable(newest))
    throw new DomainError(
      'CONFLICT',
      `the plan costs ${newest.priceAmount} ${newest.priceCurrency}, which cannot be charged: give it a price in USD with at most 2 decimals`,
    )
}

function requireOther(planId: string, { id }: Plan): void {
  if (planId === id) throw new DomainError('REQUEST_INVALID', 'User is already on this plan')
}

function requireConfirmed(confirm: boolean): void {
  if (!confirm) throw new DomainError('CONFIRM_REQUIRED', 'send "confirm": true')
}

const noSubscription = (): DomainError =>
  new DomainError('NO_SUBSCRIPTION', 'the user has no subscription')

const soldOf = ({ newest, isStarterDefault }: Plan): Sold => ({ ...newest, isStarterDefault })

const unchanged = ({ id, planId }: Subscription, timing: Timing, checkoutUrl: string): Change => ({
  subscriptionId: id,
  planId,
  timing,
  checkoutUrl,
})
