import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { oneOf, pageQuery, required, text } from '../schemas.ts'
import {
  EndpointParams,
  QueuedDelivery,
  ReplayedDeliveries,
  WebhookDelivery,
  WebhookDeliveryList,
  tags,
  toDelivery,
  url,
} from './schemas.ts'

/** The log of a webhook endpoint's deliveries. */
export function webhookDeliveryRoutes(app: App): void {
  addSchemas(app, [WebhookDelivery, WebhookDeliveryList, QueuedDelivery, ReplayedDeliveries])
  pingEndpoint(app)
  listDeliveries(app)
  replayDeliveries(app)
}

const pingEndpoint = post({
  url: `${url}/:endpointId/ping`,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'pingWebhookEndpoint',
  summary: 'Send a test event',
  description:
    'Queues an event of the type webhook.ping for this endpoint. The log of deliveries shows the answer, usually within a second.',
  tags,
  params: EndpointParams,
  response: { 202: ref(QueuedDelivery) },
  handler: async ({ params, core }, reply) => {
    const { delivery } = await core.webhookEndpoints.pingWebhookEndpoint(params)
    return reply.code(202).send({ delivery: toDelivery(requireField(delivery, 'delivery')) })
  },
})

const listDeliveries = get({
  url: `${url}/:endpointId/deliveries`,
  guard: { kind: 'm2m_or_member' },
  operationId: 'listWebhookDeliveries',
  summary: 'List deliveries',
  description: 'The deliveries of the last 30 days to one endpoint, the newest first, in pages.',
  tags,
  params: EndpointParams,
  querystring: Type.Object({
    ...pageQuery,
    status: Type.Optional(oneOf(['pending', 'delivered', 'failed'], 'only this status')),
    eventType: Type.Optional(text('only events of this type')),
    eventId: Type.Optional(text('only the event with this id')),
    since: Type.Optional(text('an ISO 8601 instant or day: only deliveries at or after it')),
    until: Type.Optional(text('an ISO 8601 instant or day: only deliveries before it')),
  }),
  response: { 200: ref(WebhookDeliveryList) },
  handler: async ({ params, query: { limit, ...filter }, core }) => {
    const { deliveries, nextCursor } = await core.webhookEndpoints.listWebhookDeliveries({
      ...params,
      ...filter,
      limit: Number(limit ?? 0),
    })
    return { deliveries: deliveries.map(toDelivery), nextCursor }
  },
})

const replayDeliveries = post({
  url: `${url}/:endpointId/deliveries/replay`,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'replayWebhookDeliveries',
  summary: 'Send deliveries again',
  description:
    'Sends one delivery again, or all failed ones of events at or after an instant. They keep their event ids, so a receiver recognises repetitions.',
  tags,
  params: EndpointParams,
  body: Type.Object(
    {
      deliveryId: Type.Optional(required('One delivery, whatever its status.')),
      failedSince: Type.Optional(
        required('An ISO 8601 instant or day: all failed deliveries since then, at most 50,000.'),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(ReplayedDeliveries) },
  handler: async ({ params, body, core }) => {
    const { replayed } = await core.webhookEndpoints.replayWebhookDeliveries({ ...params, ...body })
    return { replayed }
  },
})
