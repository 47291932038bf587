import type { Db, Pool } from '../../lib/sql.ts'
import type { BillingCycle, Period } from '../../lib/time.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import type { UserKey } from './store.ts'

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
  /** Grants, once, the amount that version `to` includes beyond the grants since version `from`. */
  raise(
    account: Account,
    raise: { versions: readonly IncludedUsage[]; from: number; to: IncludedUsage },
    at: Date,
  ): boolean
}

export interface CardRequest {
  readonly appId: AppId
  readonly userId: UserId
  readonly externalUserId: string
  readonly planId: string
  readonly successUrl: string | undefined
  readonly cancelUrl: string | undefined
}

/** Payment methods for plans with amounts to collect. */
export interface Cards {
  /**
   * Returns the checkout where the user can leave a payment method for the plan; null if the user
   * has one. Throws PROCESSOR_NOT_CONNECTED when there is no processor to take one.
   */
  askForCard(request: CardRequest): Promise<{ readonly checkoutUrl: string } | null>
}
