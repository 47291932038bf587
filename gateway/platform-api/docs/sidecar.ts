import { type TSchema, Type } from 'typebox'
import { type Reason, reasons } from '../../../proto/errors.ts'
import { oneOf } from '../schemas.ts'
import { AuthorizeRequest, Permission, Refusal } from '../signer/decision-schemas.ts'

/**
 * The OpenAPI document of the sidecar, whose routes signers call. The sidecar parses and writes
 * bodies without schemas, so they are defined here; test/gateway/platform-api/docs/sidecar.test.ts
 * compares them with a running sidecar.
 */

const TransportRefusal = Type.Object({
  status: Type.Integer({ description: 'The HTTP status.' }),
  reason: Type.String({ description: 'For people; it may change.' }),
})
const SignedTicketEvent = Type.Object(
  {
    id: Type.String({ description: 'Unique for each event: repeats are recognised by it.' }),
    type: Type.String({ description: 'create_signed_ticket is billed, all others are ignored.' }),
    timestamp: Type.Optional(Type.String({ description: 'Unix milliseconds.' })),
    gateway: Type.Optional(Type.String()),
    data: Type.Object({}, { additionalProperties: true, description: 'By type.' }),
  },
  { additionalProperties: true, description: "An event as the signer's stream has it." },
)
const UsagePush = Type.Object(
  {
    type: oneOf(['create_signed_ticket'], 'The one type that is pushed without an id.'),
    data: Type.Object(
      {
        client_id: Type.Optional(Type.String()),
        usage_subject: Type.Optional(Type.String()),
        auth_id: Type.Optional(Type.String({ description: 'In place of the two above.' })),
        request_id: Type.String({ description: 'Tells payments of one day apart.' }),
        computed_fee: Type.String({ description: 'Wei, as digits.' }),
      },
      { additionalProperties: true },
    ),
  },
  { additionalProperties: true, description: 'A ticket without an id: it becomes an event here.' },
)
const count = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }))
const Accepted = Type.Object({
  accepted: Type.Integer({ minimum: 0, description: 'Events of this push; all of them are safe.' }),
  tickets: count('Booked now; absent where a spool took them.'),
  duplicates: count('Known before.'),
  ignored: count('Of a type that is not billed.'),
  quarantined: count('Not readable, or nobody to charge.'),
})
const PartState = oneOf(['ok', 'degraded', 'unavailable'], 'Of a part, or the worst of all.')
const Readiness = Type.Object({
  status: PartState,
  parts: Type.Object({}, { additionalProperties: PartState }),
})

const schemas: Readonly<Record<string, TSchema>> = {
  AuthorizeRequest,
  Permission,
  Refusal,
  TransportRefusal,
  SignedTicketEvent,
  UsagePush,
  Accepted,
  Readiness,
}
const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })

const json = (schema: object, example?: object) => ({
  'application/json': { schema, ...(example && { example }) },
})
const text = { 'text/plain': { schema: { type: 'string' }, example: 'ok\n' } }
const retryAfter = (description: string) => ({
  'Retry-After': { schema: { type: 'integer' }, description },
})
const challenge = { 'WWW-Authenticate': { schema: { type: 'string' }, description: 'Bearer' } }

/** Problem documents of one status, by their reasons. */
function problem(same: readonly Reason[], headers: object = {}) {
  const [first = 'INTERNAL'] = same
  const { http: status } = reasons[first]
  const word = { type: 'string', enum: same.map((reason) => reason.toLowerCase()) }
  const properties = {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer', enum: [status] },
    detail: { type: 'string', description: 'For people; it may change.' },
    code: word,
    error: { ...word, description: 'The same word as code.' },
    correlation_id: { type: 'string', description: 'Also in X-Correlation-Id and in the log.' },
  }
  const schema = { type: 'object', required: Object.keys(properties), properties }
  const description = same.map((reason) => `${reasons[reason].title}.`).join(' ')
  return { [status]: { description, headers, content: { 'application/problem+json': { schema } } } }
}

const call = {
  headers: { Authorization: ['Bearer svc_ak_…'] },
  state: {
    StateID: '9f86d081',
    LastUpdate: '2026-04-02T10:15:30.123456789Z',
    App: 'acme/echo',
    AuthExpiry: 0,
    SenderNonce: 1,
    Balance: '49999999880000',
    InitialPricePerUnit: 12_000,
    InitialPixelsPerUnit: 1,
    Type: 'live',
    SequenceNumber: 0,
    AuthID: '',
  },
}
const permission = {
  status: 200,
  auth_id: 'app_0123456789abcdef01234567:ada',
  externalUserId: 'ada',
  expiry: 0,
  identity: {
    issuer: 'https://svc.example/api/v1/oidc',
    client_id: 'app_0123456789abcdef01234567',
    usage_subject: 'ada',
    usage_subject_type: 'external_user_id',
  },
}
const refusal = {
  status: 483,
  reason: 'insufficient balance',
  code: 'insufficient_balance',
  decision: '69b006b0052c1d90aa3f7e14',
}

const authorize = {
  operationId: 'authorizeCall',
  summary: 'May this call be signed?',
  description:
    'Asked by the signer before it hands out payment. Every decision is HTTP 200 with the status in the body; another HTTP status says that the caller is no signer of ours, or that the body is no JSON object.',
  tags: ['signer'],
  security: [{ signerSecret: [] }],
  requestBody: { required: true, content: json(ref('AuthorizeRequest'), call) },
  responses: {
    200: {
      description: 'The decision. `status` in the body is 200, or why not.',
      content: {
        'application/json': {
          schema: { oneOf: [ref('Permission'), ref('Refusal')] },
          examples: { permission: { value: permission }, refusal: { value: refusal } },
        },
      },
    },
    400: {
      description: 'The body is not one JSON object.',
      content: json(ref('TransportRefusal'), { status: 400, reason: 'invalid request json' }),
    },
    401: {
      description: 'The secret is missing or wrong.',
      headers: challenge,
      content: json(ref('TransportRefusal'), {
        status: 401,
        reason: 'unauthorized webhook caller',
      }),
    },
    429: {
      description: 'Too many wrong secrets from this address.',
      headers: retryAfter('Seconds until a secret is read again.'),
      content: json(ref('TransportRefusal'), {
        status: 429,
        reason: 'too many wrong webhook secrets',
      }),
    },
  },
}

const event = {
  id: '4b2f…',
  type: 'create_signed_ticket',
  timestamp: '1775124930123',
  gateway: '',
  data: { auth_id: 'app_0123456789abcdef01234567:ada', computed_fee: '120000' },
}
const push = {
  operationId: 'pushEvents',
  summary: 'Take events of signed tickets',
  description:
    'For signers without a stream: one event, an array of up to 1000, or one on each line, up to 10000; at most 4 MiB, without Content-Encoding. No Content-Type is looked at. Send all of it again after any 5xx, 429 or broken connection.',
  tags: ['signer'],
  security: [{ eventsSecret: [] }],
  requestBody: {
    required: true,
    content: {
      ...json(
        {
          oneOf: [
            ref('SignedTicketEvent'),
            ref('UsagePush'),
            {
              type: 'array',
              maxItems: 1_000,
              items: { anyOf: [ref('SignedTicketEvent'), ref('UsagePush')] },
            },
          ],
        },
        event,
      ),
      'application/x-ndjson': {
        schema: { type: 'string', description: 'One event on each line.' },
      },
    },
  },
  responses: {
    202: {
      description: 'Every event of the push is safe.',
      content: json(ref('Accepted'), { accepted: 1, tickets: 1 }),
    },
    ...problem(['REQUEST_INVALID']),
    ...problem(['CREDENTIAL_INVALID'], challenge),
    ...problem(['SCOPE_MISSING']),
    ...problem(['BODY_TOO_LARGE']),
    ...problem(['MEDIA_TYPE_UNSUPPORTED']),
    ...problem(['RATE_LIMITED'], retryAfter('Seconds until a secret is read again.')),
    ...problem(['UNAVAILABLE', 'SPOOL_UNAVAILABLE'], retryAfter('When to send all of it again.')),
  },
}

const alive = (operationId: string) => ({
  operationId,
  summary: 'Whether the process answers',
  description:
    'Answers as soon as the process serves requests, without a look at what is behind it.',
  tags: ['service'],
  security: [],
  responses: { 200: { description: 'It answers.', content: text } },
})
const ready = {
  operationId: 'getReadiness',
  summary: 'Whether it can do its work',
  description: 'The state of each part. 503 only where the process cannot do its work.',
  tags: ['service'],
  security: [],
  responses: Object.fromEntries(
    [
      [200, 'It can, perhaps with less than all its parts.'] as const,
      [503, 'It cannot: send calls elsewhere.'] as const,
    ].map(([status, description]) => [status, { description, content: json(ref('Readiness')) }]),
  ),
}

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description })

/** OpenAPI 3.0.3, like the platform API's document. */
export const sidecarDocument = {
  openapi: '3.0.3',
  info: {
    title: 'tollgate sidecar',
    version: '1.0.0',
    description:
      'What a remote signer calls: the decision before it hands out payment, and the push of its events. docs/signer-protocol.md has the whole contract. Errors but those of /authorize are problem documents (RFC 9457).',
  },
  servers: [{ url: 'http://127.0.0.1:8090', description: 'SIDECAR_PORT, on a private network' }],
  paths: {
    '/authorize': { post: authorize },
    '/events': { post: push },
    '/health': { get: alive('getHealth') },
    '/healthz': { get: alive('getLiveness') },
    '/readyz': { get: ready },
  },
  components: {
    securitySchemes: {
      signerSecret: bearer('A secret of WEBHOOK_SECRET, or of a signer of its own for decisions.'),
      eventsSecret: bearer(
        'A secret of EVENTS_SECRET (of WEBHOOK_SECRET where that is not set), or of a signer of its own for events.',
      ),
    },
    schemas,
  },
}
