import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, afterCommit } from '../../lib/sql.ts'
import { type Now, periodAt } from '../../lib/time.ts'
import { later } from '../../shared/clocks/clocks.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import type { Invalidations } from '../../shared/invalidations.ts'
import { parseDecimal18, type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Plan, isChargeable } from '../offers/plan.ts'
import { planReads } from '../offers/reads.ts'
import type { Author, Change } from './change.ts'
import { followIfDue } from './follow.ts'
import type { LockedAccount, PlanPayments, SendSubscribers, SubscriptionLedger } from './ports.ts'
import { createNotes } from './notes.ts'
import { insertProration } from './proration-store.ts'
import { type Prorated, nothing, prorate } from './proration.ts'
import * as store from './store.ts'
import type { EndReason, Subscription } from './store.ts'
import { type Sold, type Timing, defaultTiming } from './timing.ts'

export interface MovesDeps<Account extends LockedAccount> {
  readonly ledger: SubscriptionLedger<Account>
  readonly payments: Pick<PlanPayments, 'findPaidPrice'>
  readonly send?: SendSubscribers | undefined
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly log: Log
  readonly now: Now
}

export interface Target {
  readonly plan: Pick<Plan, 'id'>
  readonly timing: Timing | undefined
  readonly reason: EndReason
  /** The price of the first period if it is charged; then the plan must still have this price. */
  readonly price?: UsdAttos | undefined
}

interface Step<Account> {
  readonly account: Account
  readonly subscription: Subscription
  readonly plan: Plan
  readonly reason: EndReason
  readonly price: UsdAttos
  readonly isProrated: boolean
  /** By the clock of the app. */
  readonly at: Date
}

/** Changes the plan in a user's slot, within a transaction. Every change locks the account first. */
export function createMoves<Account extends LockedAccount>({
  ledger,
  payments,
  send,
  invalidations,
  log,
  now,
}: MovesDeps<Account>) {
  const { note } = createNotes(log)
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

  /** Like `lockPresent`, and stores the running period if it has just been entered. */
  async function lockStored(db: Db, user: UserKey, at: Date) {
    const { account } = await lockPresent(db, user, at)
    await ledger.save(db, [account], at)
    return lockPresent(db, user, at)
  }

  /** Moves a user to a plan, now or at the end of the period, and records it. */
  async function move(
    db: Db,
    user: UserKey,
    { target, by }: { target: Target; by: Author },
  ): Promise<Change> {
    const at = now()
    const { account, subscription } = await lockStored(db, user, at)
    requireOther(subscription.planId, target.plan)
    await store.lockPlan(db, user.appId, target.plan.id)
    const plan = await getPlan(db, user.appId, target.plan.id)
    requireOpen(plan)
    requirePrice(plan, target.price)
    const timing =
      target.timing ?? defaultTiming(await soldNow(db, account, subscription), toSold(plan))
    const own = later(at, account.aheadMs)
    const { reason, price = usdAttos(0n) } = target
    const isProrated = !by.isOperator && reason !== 'unpaid'
    const step = { account, subscription, plan, reason, price, isProrated, at: own }
    const answer = timing === 'immediate' ? await changeNow(db, step) : await changeLater(db, step)
    const isRecalled = timing === 'immediate' && (await ledger.recall(db, account, at))
    await ledger.save(db, [account], at)
    const details = {
      fromPlanId: subscription.planId,
      planId: plan.id,
      timing,
      effectiveAt: answer.effectiveAt ?? null,
      ...(target.reason === 'unpaid' && { reason: target.reason }),
    }
    const action = actions[target.reason]
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

  async function changeNow(db: Db, step: Step<Account>): Promise<Change> {
    const { account, subscription, plan, reason, price, at } = step
    const start = ledger.nextStart(account, at)
    const prorated = step.isProrated
      ? await unusedPrice(db, { account, subscription, at: start })
      : nothing
    if (prorated.amount > 0n) await saveProration(db, step, { periodStart: start, ...prorated })
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
    const entered = { planId: plan.id, planVersion: terms.version, period, isFree, freeCycle }
    const included = { includedAttos, withheldAttos: 0n, priceAttos: price }
    await ledger.changePlan(db, account, { terms: { ...entered, ...included }, at })
    return {
      subscriptionId: id,
      planId: plan.id,
      effectiveAt: start.toISOString(),
      timing: 'immediate',
    }
  }

  async function changeLater(
    db: Db,
    { account, subscription, plan, reason, at }: Step<Account>,
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

  /**
   * Returns the part of the running period's price that an immediate change at `at` leaves unused.
   * The period must be stored.
   */
  async function unusedPrice(
    db: Db,
    { account, subscription, at }: Pick<Step<Account>, 'account' | 'subscription' | 'at'>,
  ): Promise<Prorated> {
    const { periodStart: start, periodEnd: end } = account
    const price = await payments.findPaidPrice(db, account, start)
    if (price === 0n) return nothing
    const included = (await soldNow(db, account, subscription)).included ?? usdAttos(0n)
    const unused = ledger.unusedIncluded(account)
    return prorate({ price, start, end, at, included, unused })
  }

  return { lockPresent, lockStored, unusedPrice, move, note }
}

export type Moves<Account extends LockedAccount> = ReturnType<typeof createMoves<Account>>

function saveProration(
  db: Db,
  { account, subscription }: Pick<Step<LockedAccount>, 'account' | 'subscription'>,
  change: Prorated & { readonly periodStart: Date },
): Promise<void> {
  const { appId, userId, periodStart: endedStart } = account
  const { planId } = subscription
  return insertProration(db, { appId, userId, ...change, endedStart, planId })
}

const actions: Readonly<Record<EndReason, string>> = {
  change: 'subscription_changed',
  cancel: 'subscription_canceled',
  unpaid: 'subscription_fell_back',
}

export async function getPlan(db: Db, app: AppId, planId: string): Promise<Plan> {
  const plan = await planReads.findPlan(db, app, planId)
  if (!plan) throw new DomainError('NOT_FOUND', 'the app has no such plan')
  return plan
}

/** Throws CONFLICT for a plan that takes no new subscribers. */
export function requireOpen(plan: Plan): void {
  const reason = closedReason(plan)
  if (reason !== null) throw new DomainError('CONFLICT', reason)
}

/** Returns the reason for which no user may move to the plan; null if users may. */
export function closedReason({ status, isNetworkDefault, newest }: Plan): string | null {
  if (isNetworkDefault) return 'this plan only shows network prices; users cannot be put on it'
  if (status !== 'active') return 'the plan is not active; activate it, or choose another'
  return isChargeable(newest)
    ? null
    : `the plan costs ${newest.priceAmount} ${newest.priceCurrency}, which cannot be charged: give it a price in USD with at most 2 decimals`
}

function requirePrice({ newest }: Plan, price: UsdAttos | undefined): void {
  if (price === undefined || price === priceAttos(newest)) return
  throw new DomainError(
    'CONFLICT',
    `the plan costs ${newest.priceAmount} ${newest.priceCurrency} now; it has changed since the payment began`,
  )
}

/** Returns the price of a period. */
export const priceAttos = ({ priceAmount }: Pick<Sold, 'priceAmount'>): UsdAttos =>
  usdAttos(parseDecimal18(priceAmount) ?? 0n)

export function requireOther(planId: string, { id }: Pick<Plan, 'id'>): void {
  if (planId === id) throw new DomainError('REQUEST_INVALID', 'User is already on this plan')
}

export const noSubscription = (): DomainError =>
  new DomainError('NO_SUBSCRIPTION', 'the user has no subscription')

export const toSold = ({ newest, isStarterDefault }: Plan): Sold => ({
  ...newest,
  isStarterDefault,
})

/** Returns the terms that the user pays for in the current period. */
export async function soldNow(db: Db, account: LockedAccount, { planId }: Subscription) {
  const { appId } = account
  const terms = await planReads.newestVersion(db, { appId, planId }, account.periodStart)
  const isStarterDefault = (await store.findStarter(db, appId)) === planId
  if (!terms) throw new Error(`plan ${planId} has no version`)
  return { ...terms, isStarterDefault }
}
