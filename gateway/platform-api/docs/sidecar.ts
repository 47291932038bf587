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
  reason: Type.String({ description: 'A text for people; it may change.' }),
})
const SignedTicketEvent = Type.Object(
  {
    id: Type.String({ description: 'Unique for each event, so that repeats are recognised.' }),
    type: Type.String({ description: 'create_signed_ticket is billed; other types are ignored.' }),
    timestamp: Type.Optional(Type.String({ description: 'Unix milliseconds.' })),
    gateway: Type.Optional(Type.String()),
    data: Type.Object({}, { additionalProperties: true, description: 'By type.' }),
  },
  { additionalProperties: true, description: "An event in the form of the signer's stream." },
)
const UsagePush = Type.Object(
  {
    type: oneOf(['create_signed_ticket'], 'The only type that may be pushed without an id.'),
    data: Type.Object(
      {
        client_id: Type.Optional(Type.String()),
        usage_subject: Type.Optional(Type.String()),
        auth_id: Type.Optional(Type.String({ description: 'Instead of the two fields above.' })),
        request_id: Type.String({ description: 'Distinguishes payments of one day.' }),
        computed_fee: Type.String({ description: 'Wei, as digits.' }),
      },
      { additionalProperties: true },
    ),
  },
  { additionalProperties: true, description: 'A ticket without an id; the sidecar gives it one.' },
)
const count = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }))
const Accepted = Type.Object({
  accepted: Type.Integer({
    minimum: 0,
    description: 'Number of events in this push; all are safe.',
  }),
  tickets: count('Number of events booked now; absent if they went to a spool.'),
  duplicates: count('Known before.'),
  ignored: count('Number of events of a type that is not billed.'),
  quarantined: count('Number of events that are unreadable or have no user.'),
})
const PartState = oneOf(
  ['ok', 'degraded', 'unavailable'],
  'State of a part, or the worst state of all.',
)
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
    detail: { type: 'string', description: 'A text for people; it may change.' },
    code: word,
    error: { ...word, description: 'The same value as code.' },
    correlation_id: {
      type: 'string',
      description: 'The same as in X-Correlation-Id and in the log.',
    },
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
    'The signer calls it before it hands out a payment. Every decision is HTTP 200 with the status in the body. Another HTTP status means that the caller is not a known signer, or that the body is not a JSON object.',
  tags: ['signer'],
  security: [{ signerSecret: [] }],
  requestBody: { required: true, content: json(ref('AuthorizeRequest'), call) },
  responses: {
    200: {
      description:
        'The decision. `status` in the body is 200 for a permission; otherwise it is the status of the refusal.',
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
      headers: retryAfter('Seconds until the sidecar checks a secret again.'),
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
    'For signers without a stream: one event, an array of up to 1000, or one event on each line, up to 10000; at most 4 MiB, without Content-Encoding. The Content-Type is ignored. Send the whole push again after a 5xx, a 429 or a broken connection.',
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
    ...problem(['RATE_LIMITED'], retryAfter('Seconds until the sidecar checks a secret again.')),
    ...problem(
      ['UNAVAILABLE', 'SPOOL_UNAVAILABLE'],
      retryAfter('Seconds after which to send the whole push again.'),
    ),
  },
}

const alive = (operationId: string) => ({
  operationId,
  summary: 'Whether the process answers',
  description:
    'Answers as soon as the process serves requests. It does not check the parts that the process depends on.',
  tags: ['service'],
  security: [],
  responses: { 200: { description: 'It answers.', content: text } },
})
const ready = {
  operationId: 'getReadiness',
  summary: 'Whether it can do its work',
  description: 'Returns the state of each part. 503 only if the process cannot do its work.',
  tags: ['service'],
  security: [],
  responses: Object.fromEntries(
    [
      [200, 'The process can do its work, possibly without some parts.'] as const,
      [503, 'The process cannot do its work: send calls to another sidecar.'] as const,
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
      'The routes that a remote signer calls: the decision before it hands out a payment, and the push of its events. docs/signer-protocol.md has the whole contract. Errors, except those of /authorize, are problem documents (RFC 9457).',
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
        "A secret of EVENTS_SECRET (of WEBHOOK_SECRET if that is not set), or a signer's own secret for events.",
      ),
    },
    schemas,
  },
}
