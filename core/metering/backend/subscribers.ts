import type { AppId, UserId } from '../../shared/ids.ts'

/** The state that a user should have in the metering backend. */
export interface Subscriber {
  readonly externalUserId: string
  readonly clientId: string
  /** Id of the subscription that holds the user's slot. */
  readonly subscriptionId: string
  readonly planKey: string
  /**
   * Syncs the plan if the backend lacks it, or always if `isStale`. Returns false for a plan that
   * the backend does not sell. Rejects like `PlanCatalog.put`, and with CONFLICT while another sync
   * runs.
   */
  readonly offer: (isStale: boolean) => Promise<boolean>
}

/** Returns a user's current subscription; null without one, or in a deleted app. */
export type FindSubscriber = (user: {
  readonly appId: AppId
  readonly userId: UserId
}) => Promise<Subscriber | null>
