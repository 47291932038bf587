import { WebhookEndpointServiceService } from '../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import { createOutbound } from '../lib/outbound/outbound.ts'
import { grpcService } from '../rpc/serve.ts'
import type { Shared } from '../shared/shared.ts'
import { createDeliverer } from './deliverer.ts'
import { createDeliveries } from './deliveries.ts'
import { countWaiting } from './delivery-store.ts'
import { countByStatus, deleteEndpointsOfApp, dueSince } from './endpoint-store.ts'
import { createEndpoints } from './endpoints.ts'
import { createFanOut } from './fan-out.ts'
import { createWebhookMetrics } from './metrics.ts'
import { createWebhooksRpc } from './rpc.ts'

export { sealedWebhookSecrets } from './secret-store.ts'

/** Deletes an app's endpoints together with the app. Users have no endpoints. */
export const webhookCredentials: CredentialIssuer = {
  endOfUser: async () => [],
  endOfApp: async (db, app) => {
    await deleteEndpointsOfApp(db, app)
    return []
  },
}

/**
 * Outgoing webhooks: endpoints of apps, and the delivery of events to them. `api.destinations`
 * receive the events of the outbox.
 */
export function createWebhooksModule(shared: Shared) {
  const { pool, now, config } = shared
  const meters = createWebhookMetrics(shared.metrics, {
    waiting: () => countWaiting(pool),
    endpoints: () => countByStatus(pool),
    lagSeconds: async () => {
      const at = now()
      const since = await dueSince(pool, at)
      return since ? (at.getTime() - since.getTime()) / 1000 : 0
    },
  })
  const outbound = createOutbound({ allow: config.outboundAllow })
  const deliverer = createDeliverer({ ...shared, outbound, meters })
  const onDue = deliverer.wake
  const endpoints = createEndpoints({ ...shared, outbound, onDue })
  const deliveries = createDeliveries({ ...shared, meters, onDue })
  const { webhookEndpointService } = createWebhooksRpc({ endpoints, deliveries })
  return {
    api: { destinations: [createFanOut({ pool, now, onDeliveries: onDue })] },
    services: [grpcService(WebhookEndpointServiceService, webhookEndpointService)],
    lifecycle: { start: deliverer.start, stop: deliverer.stop },
    upkeep: [deliveries.failOverdue, deliveries.deleteOld, deliveries.endBacklogs],
  }
}
