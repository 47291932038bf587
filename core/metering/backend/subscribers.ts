import type { AppId, UserId } from '../../platform/ids.ts'

/** A user as the metering backend is to have it. */
export interface Subscriber {
  readonly externalUserId: string
  readonly clientId: string
  /** Of the subscription that holds the user's slot. */
  readonly subscriptionId: string
  readonly planKey: string
  /**
   * Syncs the plan where the backend does not have it, or always with `isStale`. False for a plan that the backend does not
   * sell. Rejects as `PlanCatalog.put`, and with CONFLICT while another sync runs.
   */
  readonly offer: (isStale: boolean) => Promise<boolean>
}

/** Reads the current subscription of a user; null for a user without one and in a deleted app. */
export type FindSubscriber = (user: {
  readonly appId: AppId
  readonly userId: UserId
}) => Promise<Subscriber | null>
