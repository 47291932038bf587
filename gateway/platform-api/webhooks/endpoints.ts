import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, ref } from '../../http/schemas.ts'
import { AppParams, Success, oneOf } from '../schemas.ts'
import {
  CreatedWebhookSecret,
  EndpointParams,
  Signing,
  WebhookEndpoint,
  WebhookEndpointList,
  endpointFields,
  tags,
  toEndpoint,
  url,
} from './schemas.ts'

/** An app's webhook endpoints, which receive its events. */
export function webhookEndpointRoutes(app: App): void {
  addSchemas(app, [WebhookEndpoint, WebhookEndpointList, CreatedWebhookSecret])
  listEndpoints(app)
  createEndpoint(app)
  readEndpoint(app)
  updateEndpoint(app)
  deleteEndpoint(app)
  rotateSecret(app)
}

const listEndpoints = get({
  url,
  guard: { kind: 'm2m_or_member' },
  operationId: 'listWebhookEndpoints',
  summary: 'List webhook endpoints',
  description: "Every endpoint that receives the app's events, the oldest first; at most 20.",
  tags,
  params: AppParams,
  response: { 200: ref(WebhookEndpointList) },
  handler: async ({ params, core }) => {
    const { endpoints } = await core.webhookEndpoints.listWebhookEndpoints(params)
    return { endpoints: endpoints.map(toEndpoint) }
  },
})

const createEndpoint = post({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'createWebhookEndpoint',
  summary: 'Create a webhook endpoint',
  description:
    'Sends events of the app to an address, signed after the Standard Webhooks specification, and returns the signing secret once.',
  tags,
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    {
      url: endpointFields.url,
      description: Type.Optional(endpointFields.description),
      eventTypes: Type.Optional(endpointFields.eventTypes),
      signing: Type.Optional(Signing),
    },
    { additionalProperties: false },
  ),
  response: { 201: ref(CreatedWebhookSecret) },
  handler: async ({ params, body, headers, core }, reply) => {
    const { endpoint, secret } = await core.webhookEndpoints.createWebhookEndpoint({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return reply.code(201).send({
      endpoint: toEndpoint(requireField(endpoint, 'endpoint')),
      secret: secret ?? null,
    })
  },
})

const readEndpoint = get({
  url: `${url}/:endpointId`,
  guard: { kind: 'm2m_or_member' },
  operationId: 'getWebhookEndpoint',
  summary: 'One webhook endpoint',
  description: 'Returns one endpoint with its state.',
  tags,
  params: EndpointParams,
  response: { 200: ref(WebhookEndpoint) },
  handler: async ({ params, core }) => {
    const { endpoint } = await core.webhookEndpoints.getWebhookEndpoint(params)
    return toEndpoint(requireField(endpoint, 'endpoint'))
  },
})

const updateEndpoint = put({
  url: `${url}/:endpointId`,
  guard: { kind: 'member_edit' },
  operationId: 'updateWebhookEndpoint',
  summary: 'Change a webhook endpoint',
  description:
    'Changes the members in the body and keeps the others. With status active, core forgets failures and sends waiting deliveries at once.',
  tags,
  params: EndpointParams,
  body: Type.Object(
    {
      url: Type.Optional(endpointFields.url),
      description: Type.Optional(endpointFields.description),
      eventTypes: Type.Optional(endpointFields.eventTypes),
      status: Type.Optional(oneOf(['active', 'disabled'], 'Whether it receives events.')),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(WebhookEndpoint) },
  handler: async ({ params, body: { eventTypes, ...body }, core }) => {
    const { endpoint } = await core.webhookEndpoints.updateWebhookEndpoint({
      ...params,
      ...body,
      eventTypes: eventTypes === undefined ? undefined : { values: eventTypes },
    })
    return toEndpoint(requireField(endpoint, 'endpoint'))
  },
})

const deleteEndpoint = del({
  url: `${url}/:endpointId`,
  guard: { kind: 'member_edit' },
  operationId: 'deleteWebhookEndpoint',
  summary: 'Delete a webhook endpoint',
  description: 'Deletes an endpoint with its secrets and its deliveries.',
  tags,
  params: EndpointParams,
  response: { 200: ref(Success) },
  handler: async ({ params, core, correlationId }) => {
    await core.webhookEndpoints.deleteWebhookEndpoint(params)
    return { success: true, correlation_id: correlationId }
  },
})

const rotateSecret = post({
  url: `${url}/:endpointId/rotate-secret`,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'rotateWebhookSecret',
  summary: 'Make a new signing secret',
  description:
    'Makes a new secret and returns it once. Older secrets sign, too, until the overlap ends, so that the receiver can switch.',
  tags,
  params: EndpointParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    {
      signing: Type.Optional(Signing),
      overlapSeconds: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: 604_800,
          description: 'Seconds until older secrets stop signing; a day by default.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(CreatedWebhookSecret) },
  handler: async ({ params, body, headers, core }) => {
    const { endpoint, secret } = await core.webhookEndpoints.rotateWebhookSecret({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return { endpoint: toEndpoint(requireField(endpoint, 'endpoint')), secret: secret ?? null }
  },
})
