import type * as pb from '../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import { DomainError } from '../../proto/errors.ts'
import { type AppOperatorCaller, type MemberCaller, toActor } from '../rpc/callers.ts'
import { appOperator, appOperatorWrite, m2mOrMember, member, orOperator } from '../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../rpc/serve.ts'
import { parseCursor, parseLimit } from '../shared/cursor.ts'
import { parseIdempotencyKey } from '../shared/idempotency.ts'
import type { Deliveries, DeliveryQuery } from './deliveries.ts'
import type { Delivery } from './delivery-store.ts'
import type { EndpointEditor, EndpointView, Endpoints } from './endpoints.ts'
import { parseState, parseTime } from './input.ts'
import type { StoredSecret } from './secret-store.ts'

export interface WebhooksRpcDeps {
  readonly endpoints: Endpoints
  readonly deliveries: Deliveries
}

const reader = orOperator(m2mOrMember(), appOperator())
const editor = orOperator(member('edit'), appOperatorWrite())

/** RPCs about webhook endpoints, for an app's M2M client, its members, and operators. */
export function createWebhooksRpc({ endpoints, deliveries }: WebhooksRpcDeps) {
  const webhookEndpointService: Handlers<pb.WebhookEndpointServiceServer> = {
    listWebhookEndpoints: rpc(reader, async (_: pb.ListWebhookEndpointsRequest, { appId }) => ({
      endpoints: (await endpoints.list(appId)).map(renderEndpoint),
    })),
    getWebhookEndpoint: rpc(
      reader,
      async ({ endpointId }: pb.GetWebhookEndpointRequest, { appId }) => ({
        endpoint: renderEndpoint(await endpoints.view(await endpoints.get(appId, endpointId))),
      }),
    ),
    createWebhookEndpoint: rpc(
      editor,
      async (request: pb.CreateWebhookEndpointRequest, caller, context) => {
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const endpoint = { ...request, idempotencyKey }
        return renderCreated(await endpoints.create(editorOf(caller, context), endpoint))
      },
    ),
    updateWebhookEndpoint: rpc(
      editor,
      async ({ endpointId, ...request }: pb.UpdateWebhookEndpointRequest, caller, context) => {
        const change = { ...request, eventTypes: request.eventTypes?.values }
        const view = await endpoints.update(editorOf(caller, context), endpointId, change)
        return { endpoint: renderEndpoint(view) }
      },
    ),
    deleteWebhookEndpoint: rpc(
      editor,
      async ({ endpointId }: pb.DeleteWebhookEndpointRequest, caller, context) => {
        await endpoints.remove(editorOf(caller, context), endpointId)
        return {}
      },
    ),
    rotateWebhookSecret: rpc(
      editor,
      async ({ endpointId, ...request }: pb.RotateWebhookSecretRequest, caller, context) => {
        const { signing, overlapSeconds } = request
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const rotation = { signing, overlapSeconds, idempotencyKey }
        return renderCreated(
          await endpoints.rotate(editorOf(caller, context), endpointId, rotation),
        )
      },
    ),
    ...createDeliveriesRpc({ endpoints, deliveries }),
  }
  return { webhookEndpointService }
}

const createDeliveriesRpc = ({ endpoints, deliveries }: WebhooksRpcDeps) => ({
  pingWebhookEndpoint: rpc(
    editor,
    async ({ endpointId }: pb.PingWebhookEndpointRequest, caller, context) => ({
      delivery: renderDelivery(await deliveries.ping(editorOf(caller, context), endpointId)),
    }),
  ),
  listWebhookDeliveries: rpc(
    reader,
    async ({ endpointId, ...request }: pb.ListWebhookDeliveriesRequest, { appId }) => {
      const { items, nextCursor } = await deliveries.list(appId, endpointId, toQuery(request))
      return { deliveries: items.map(renderDelivery), nextCursor }
    },
  ),
  replayWebhookDeliveries: rpc(
    editor,
    async (request: pb.ReplayWebhookDeliveriesRequest, caller, context) => {
      const { endpointId, deliveryId = '' } = request
      const by = editorOf(caller, context)
      await endpoints.get(by.appId, endpointId)
      const since = parseTime('failedSince', request.failedSince)
      if ((deliveryId === '') === (since === null))
        throw new DomainError('REQUEST_INVALID', 'send either deliveryId or failedSince')
      const replayed = since
        ? await deliveries.replayFailed(by, endpointId, since)
        : await deliveries.replay(by, endpointId, deliveryId)
      return { replayed }
    },
  ),
})

function toQuery(
  request: Omit<pb.ListWebhookDeliveriesRequest, 'endpointId' | 'clientId'>,
): DeliveryQuery {
  const since = parseTime('since', request.since)
  const until = parseTime('until', request.until)
  if (since && until && since > until)
    throw new DomainError('REQUEST_INVALID', 'since must not be after until')
  return {
    status: parseState(request.status),
    eventType: request.eventType || null,
    eventId: request.eventId || null,
    since,
    until,
    after: parseCursor(request.cursor),
    limit: parseLimit(request.limit),
  }
}

const editorOf = (caller: MemberCaller | AppOperatorCaller, context: Context): EndpointEditor => ({
  appId: caller.appId,
  actor: toActor(caller, context),
  idempotencyScope: `${caller.clientId}:${caller.kind === 'operator' ? 'operator' : caller.accountId}`,
})

const renderCreated = ({ secret, ...view }: EndpointView & { secret: string | null }) => ({
  endpoint: renderEndpoint(view),
  secret: secret ?? undefined,
})

const renderEndpoint = ({ endpoint, secrets }: EndpointView) => ({
  id: endpoint.id,
  url: endpoint.url,
  description: endpoint.description,
  eventTypes: [...endpoint.eventTypes],
  status: endpoint.status,
  disabledReason: endpoint.disabledReason ?? undefined,
  secrets: secrets.map(renderSecret),
  createdAt: endpoint.createdAt.toISOString(),
  updatedAt: endpoint.updatedAt.toISOString(),
  failingSince: endpoint.failingSince?.toISOString(),
})

const renderSecret = ({ id, signing, publicKey, createdAt, endsAt }: StoredSecret) => ({
  id,
  signing,
  publicKey: publicKey ?? undefined,
  createdAt: createdAt.toISOString(),
  expiresAt: endsAt?.toISOString(),
})

const renderDelivery = (delivery: Delivery) => ({
  id: delivery.id,
  eventId: delivery.eventId,
  eventType: delivery.eventType,
  status: delivery.status,
  attempts: delivery.attempts,
  createdAt: delivery.createdAt.toISOString(),
  nextAttemptAt: delivery.dueAt?.toISOString(),
  lastAttemptAt: delivery.lastAttemptAt?.toISOString(),
  lastStatus: delivery.lastStatus ?? undefined,
  lastDurationMs: delivery.lastDurationMs ?? undefined,
  lastError: delivery.lastError ?? undefined,
  lastResponse: delivery.lastResponse ?? undefined,
  body: delivery.body,
})
