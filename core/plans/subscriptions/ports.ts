import type { Db, Pool } from '../../lib/sql.ts'
import type { BillingCycle, Period } from '../../lib/time.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import type { UserKey } from './store.ts'

/** What subscriptions ask of domains behind this one. */

/** Subscribes users again whose subscription is missing, inside the caller's transaction: as new users of their app are. */
export type Resubscribe = (db: Db, users: readonly UserKey[]) => Promise<void>

/** Sends users whose subscriptions change in the caller's transaction to the metering backend. */
export type SendSubscribers = (db: Db, users: readonly UserKey[]) => Promise<void>

/** An account that the ledger has locked and brought to the present. */
export interface LockedAccount extends UserKey {
  readonly periodStart: Date
  readonly periodEnd: Date
  /** By how many milliseconds the clock of its app is ahead. */
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
  /** The cycle of a free plan; null for another. */
  readonly freeCycle: BillingCycle | null
  readonly isFree: boolean
}

export interface SubscriptionLedger<Account extends LockedAccount> {
  lock(db: Db, users: readonly UserKey[], at: Date): Promise<Account[]>
  save(db: Db, accounts: readonly Account[], at: Date): Promise<void>
  read(pool: Pool, user: UserKey, at: Date): Promise<Account>
  /** The first instant at or after `at` at which another period may begin. */
  nextStart(account: Account, at: Date): Date
  changePlan(
    db: Db,
    account: Account,
    entered: { readonly terms: PeriodTerms; readonly at: Date },
  ): Promise<void>
  /** Recalls from sidecars what they were lent of a locked account, which the caller saves. False when they have nothing. */
  recall(db: Db, account: Account, at: Date): Promise<boolean>
  /** Gives what version `to` includes beyond what was given since version `from`, once. */
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

/** What a plan takes that must be collected. */
export interface Cards {
  /**
   * Where the user leaves a payment method that may be charged for the plan; null when one is there.
   * PROCESSOR_NOT_CONNECTED when nobody could take one.
   */
  askForCard(request: CardRequest): Promise<{ readonly checkoutUrl: string } | null>
}
