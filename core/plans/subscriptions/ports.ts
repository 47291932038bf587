import type { UsdAttos } from '../../lib/money.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { BillingCycle, Period } from '../../lib/time.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import type { Plan } from '../offers/plan.ts'
import type { Author, Change, SubscribedUser } from './change.ts'
import type { Timing } from './timing.ts'

/** Ports of subscriptions to the domains behind this one. */

/** Recreates missing subscriptions, in the caller's transaction, as for new users of the app. */
export type Resubscribe = (db: Db, users: readonly UserKey[]) => Promise<void>

/**
 * Sends users to the metering backend when their subscriptions change, in the caller's transaction.
 */
export type SendSubscribers = (db: Db, users: readonly UserKey[]) => Promise<void>

/** An account that the ledger has locked and brought up to date. */
export interface LockedAccount extends UserKey {
  readonly periodStart: Date
  readonly periodEnd: Date
  /** Milliseconds by which the app's clock is ahead. */
  readonly aheadMs: number
}

export interface IncludedUsage {
  readonly version: number
  readonly includedAttos: bigint
  readonly createdAt: Date
}

export interface PeriodTerms {
  readonly planId: string
  readonly planVersion: number
  readonly includedAttos: bigint
  readonly withheldAttos: bigint
  /** What is charged for the period in advance. */
  readonly priceAttos: bigint
  readonly period: Period
  /** Billing cycle of a free plan; null for other plans. */
  readonly freeCycle: BillingCycle | null
  readonly isFree: boolean
}

export interface SubscriptionLedger<Account extends LockedAccount> {
  lock(db: Db, users: readonly UserKey[], at: Date): Promise<Account[]>
  save(db: Db, accounts: readonly Account[], at: Date): Promise<void>
  read(pool: Pool, user: UserKey, at: Date): Promise<Account>
  /** Returns the first instant at or after `at` when a new period may begin. */
  nextStart(account: Account, at: Date): Date
  changePlan(
    db: Db,
    account: Account,
    entered: { readonly terms: PeriodTerms; readonly at: Date },
  ): Promise<void>
  /**
   * Recalls the leases of a locked account, which the caller saves. Returns false when no sidecar
   * has one.
   */
  recall(db: Db, account: Account, at: Date): Promise<boolean>
  /** Returns the included usage of the running period that is neither used nor held by calls. */
  unusedIncluded(account: Account): UsdAttos
  /** Grants, once, the amount that version `to` includes beyond the grants since version `from`. */
  raise(
    account: Account,
    raise: { versions: readonly IncludedUsage[]; from: number; to: IncludedUsage },
    at: Date,
  ): boolean
}

/** A user's request to move to a plan that needs a card. */
export interface PlanRequest {
  readonly user: SubscribedUser
  readonly plan: Plan
  readonly timing: Timing | undefined
  readonly by: Author
  /** The app of the caller. Absent if it is the user's. */
  readonly openedBy: AppId | undefined
  /** Opens the pay page even if a card is on file. */
  readonly asksAlways: boolean
  readonly successUrl: string | undefined
  readonly cancelUrl: string | undefined
  /** Names the request among all of the deployment; absent if it may not be repeated. */
  readonly key: string | undefined
}

/** What users pay for plans. */
export interface PlanPayments {
  /**
   * Takes what the move costs, and books it; without a card on file, returns where the user can
   * give one, and changes nothing. Returns null, and does nothing, if the app's users
   * pay nothing. Throws PROCESSOR_NOT_CONNECTED if there is no processor, CARD_DECLINED if the
   * processor refuses the card, CONFLICT during another payment of the user.
   */
  order(request: PlanRequest): Promise<Change | null>
  /**
   * Returns the result of an earlier request with the key, or throws its refusal; null if there is
   * none, or it is under way. Throws IDEMPOTENCY_CONFLICT for another plan.
   */
  findResult(
    request: Pick<PlanRequest, 'user' | 'key'> & { readonly planId: string },
  ): Promise<Change | null>
  /** Returns what the user paid for a period in advance; 0 if that is not paid. */
  findPaidPrice(db: Db, user: UserKey, periodStart: Date): Promise<UsdAttos>
  /** Returns the processor's id of the checkout that led to a subscription. */
  findCheckoutSession(db: Db, app: AppId, subscriptionId: string): Promise<string | null>
}
