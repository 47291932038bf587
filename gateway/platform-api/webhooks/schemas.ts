import { Type } from 'typebox'
import type {
  WebhookDelivery as DeliveryMessage,
  WebhookEndpoint as EndpointMessage,
} from '../../../proto/gen/es/tollgate/webhooks/v1/webhooks_pb.ts'
import { eventTypes } from '../../../proto/events.ts'
import { isObject, parseJson } from '../../../core/lib/json.ts'
import { named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, oneOf, required } from '../schemas.ts'

/** Schemas of webhook endpoints and their deliveries. */

export const url = '/api/v1/apps/:clientId/webhook-endpoints'
export const tags = ['webhooks']

export const EndpointParams = Type.Object({
  ...AppParams.properties,
  endpointId: required('The id of a webhook endpoint.'),
})

export const endpointFields = {
  url: required(
    'Where events are sent: https, and a public address unless the operator listed it.',
  ),
  description: Type.String({ maxLength: 200, description: 'A note for people; may be empty.' }),
  eventTypes: Type.Array(oneOf(eventTypes, 'A type of event.'), {
    maxItems: eventTypes.length,
    description: 'The types that it receives; every type when empty.',
  }),
}
export const Signing = oneOf(
  ['hmac', 'ed25519'],
  'How deliveries are signed: hmac with a shared secret, ed25519 with a key pair.',
)

export const WebhookEndpoint = named(
  Type.Object({
    id: Type.String(),
    ...endpointFields,
    status: oneOf(['active', 'disabled'], 'A disabled endpoint receives nothing.'),
    disabledReason: nullable({
      description:
        'requested; gone: it answered 410; failing: five days without a success; backlog: too many deliveries waited.',
    }),
    secrets: Type.Array(
      Type.Object({
        id: Type.String(),
        signing: Signing,
        publicKey: nullable({ description: 'whpk_…, of an Ed25519 key.' }),
        createdAt: Instant('When it was created.'),
        expiresAt: nullable({ format: 'date-time', description: 'When it stops signing.' }),
      }),
      { description: 'Secrets that sign deliveries, the newest first, without their text.' },
    ),
    failingSince: nullable({
      format: 'date-time',
      description: 'The first failed attempt since the last success.',
    }),
    createdAt: Instant('When it was created.'),
    updatedAt: Instant('When it was last changed.'),
  }),
  'WebhookEndpoint',
)
export const WebhookEndpointList = named(
  Type.Object({ endpoints: Type.Array(ref(WebhookEndpoint)) }),
  'WebhookEndpointList',
)
export const CreatedWebhookSecret = named(
  Type.Object({
    endpoint: ref(WebhookEndpoint),
    secret: nullable({
      description: 'whsec_…, shown only here; null for Ed25519, which has a public key instead.',
    }),
  }),
  'CreatedWebhookSecret',
)

export const WebhookDelivery = named(
  Type.Object({
    id: Type.String(),
    eventId: Type.String({ description: 'The header webhook-id, the same in each attempt.' }),
    eventType: Type.String(),
    status: oneOf(['pending', 'delivered', 'failed'], 'Whether it has arrived.'),
    attempts: Type.Integer(),
    createdAt: Instant('When the delivery was queued.'),
    nextAttemptAt: nullable({ format: 'date-time' }),
    lastAttemptAt: nullable({ format: 'date-time' }),
    lastStatus: Type.Unsafe<number | null>({
      type: 'integer',
      nullable: true,
      description: 'The HTTP status of the last answer.',
    }),
    lastDurationMs: Type.Unsafe<number | null>({ type: 'integer', nullable: true }),
    lastError: nullable({ description: 'Why the last attempt failed.' }),
    lastResponse: nullable({ description: 'The first 1,024 characters of the last answer.' }),
    payload: Type.Object(
      {},
      { additionalProperties: true, description: 'The body that is sent: type, timestamp, data.' },
    ),
  }),
  'WebhookDelivery',
)
export const WebhookDeliveryList = named(
  Type.Object({
    deliveries: Type.Array(ref(WebhookDelivery)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'WebhookDeliveryList',
)
export const QueuedDelivery = named(
  Type.Object({ delivery: ref(WebhookDelivery) }),
  'QueuedWebhookDelivery',
)
export const ReplayedDeliveries = named(
  Type.Object({ replayed: Type.Integer({ description: 'The number of queued deliveries.' }) }),
  'ReplayedWebhookDeliveries',
)

const isOneOf = <const T extends string>(values: readonly T[], text: string): T => {
  const value = values.find((each) => each === text)
  if (value === undefined) throw new Error(`core returned the unknown value ${text}`)
  return value
}

export const toEndpoint = (endpoint: EndpointMessage) => ({
  ...endpoint,
  eventTypes: endpoint.eventTypes.map((type) => isOneOf(eventTypes, type)),
  status: isOneOf(['active', 'disabled'], endpoint.status),
  disabledReason: endpoint.disabledReason ?? null,
  failingSince: endpoint.failingSince ?? null,
  secrets: endpoint.secrets.map((secret) => ({
    ...secret,
    signing: isOneOf(['hmac', 'ed25519'], secret.signing),
    publicKey: secret.publicKey ?? null,
    expiresAt: secret.expiresAt ?? null,
  })),
})

export const toDelivery = ({ body, ...delivery }: DeliveryMessage) => ({
  ...delivery,
  status: isOneOf(['pending', 'delivered', 'failed'], delivery.status),
  nextAttemptAt: delivery.nextAttemptAt ?? null,
  lastAttemptAt: delivery.lastAttemptAt ?? null,
  lastStatus: delivery.lastStatus ?? null,
  lastDurationMs: delivery.lastDurationMs ?? null,
  lastError: delivery.lastError ?? null,
  lastResponse: delivery.lastResponse ?? null,
  payload: toObject(body),
})

function toObject(json: string): object {
  const value = parseJson(json)
  return isObject(value) ? value : {}
}
