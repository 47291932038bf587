import type { Pool } from '../../lib/sql.ts'
import type { FindSubscriber } from '../../metering/backend/subscribers.ts'
import { toBackendKey } from './backend-plan.ts'
import type { PlanSync } from './service.ts'
import { findSubscribed } from './store.ts'

/** Reads the plan that a user should have in the metering backend. */
export function createFindSubscriber({
  pool,
  sync,
}: {
  readonly pool: Pool
  readonly sync: Pick<PlanSync, 'offer'>
}): FindSubscriber {
  return async ({ appId, userId }) => {
    const row = await findSubscribed(pool, { appId, userId })
    if (!row) return null
    const { clientId, externalUserId, subscriptionId, planId } = row
    return {
      externalUserId,
      clientId,
      subscriptionId,
      planKey: toBackendKey({ appId, id: planId }, clientId),
      offer: (isStale) => sync.offer({ appId, planId }, isStale),
    }
  }
}
