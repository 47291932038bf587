import type { UserKey } from '../../shared/ids.ts'
import type { Timing } from './timing.ts'

/** Changes of plan, as passed between the files of this folder and to other domains. */

/** The caller that changes a subscription, for the audit log. */
export interface Author {
  readonly name: string
  /** Absent for background work. */
  readonly correlationId?: string
  /** Operators need neither payment method nor activation gate; they settle payment by hand. */
  readonly isOperator: boolean
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

export interface Pending {
  readonly subscriptionId: string
  readonly planId: string
  readonly effectiveAt: string
}

export type SubscribedUser = UserKey & { readonly externalUserId: string }
