import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
import { addSchemas, asDocumented, named, ref } from '../../http/schemas.ts'
import { type TokenEndpoint, toSession } from './grant-types.ts'
import { ExchangeForm, SignerSession, exchangeRequires, repeatable } from './schemas.ts'
import { AppParams, UserParams, pageQuery, required, text } from '../schemas.ts'
import { toToken } from '../users/tokens.ts'

const tags = ['signer']
const url = '/api/v1/apps/:clientId/users/:externalUserId/signer-sessions'
const rules = { guard: { kind: 'm2m', scope: Scope.usersWrite } } as const

const exchangeRefuses = [
  'GRANT_INVALID',
  'GRANT_TYPE_UNSUPPORTED',
  'SCOPE_INVALID',
  'TARGET_INVALID',
  'TOKEN_TYPE_UNSUPPORTED',
  'CLIENT_SCOPE_MISSING',
  'ALLOWANCE_EXHAUSTED',
] as const

const DeviceToken = Type.Object({
  deviceToken: Type.String({
    minLength: 1,
    maxLength: 8192,
    pattern: '\\S',
    description: 'The access token of the device.',
  }),
  clientId: Type.Optional(text('The app; when present, the token must belong to it.')),
  scope: Type.Optional(Type.String({ description: 'Optional; the scope is always sign:job.' })),
})

const nullableInstant = (description: string) =>
  Type.Unsafe<string | null>({ type: 'string', format: 'date-time', nullable: true, description })

const SignerSessionList = named(
  Type.Object({
    clientId: Type.String(),
    externalUserId: Type.String(),
    sessions: Type.Array(
      Type.Object({
        sessionId: Type.String(),
        id: Type.String({ description: 'The same as sessionId.' }),
        label: Type.String(),
        scope: Type.String(),
        createdAt: Type.String({ format: 'date-time' }),
        expiresAt: Type.String({ format: 'date-time' }),
        lastUsedAt: nullableInstant('Approximate time of its last use.'),
        revokedAt: nullableInstant('When it was ended.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'SignerSessionList',
)

const RevokedSession = Type.Object({
  success: Type.Boolean(),
  correlation_id: Type.String(),
  sessionId: Type.String(),
  revokedAt: Type.String({ format: 'date-time' }),
  effectiveBy: Type.String({
    format: 'date-time',
    description: 'The time after which no cache accepts this session.',
  }),
})

/** Two exchanges that open a signer session, and a user's sessions. */
export function signerSessionRoutes(app: App, endpoint: TokenEndpoint): void {
  addSchemas(app, [SignerSessionList])
  exchangeForApp(app, endpoint)
  exchangeDeviceToken(app)
  listSessions(app)
  revokeSession(app)
}

function exchangeForApp(app: App, endpoint: TokenEndpoint): void {
  post({
    url: '/api/v1/apps/:clientId/oidc/token',
    guard: { kind: 'client' },
    wire: 'oauth',
    accepts: 'form',
    repeatable,
    limit: 'exchange',
    refuses: exchangeRefuses,
    operationId: 'exchangeForSignerSession',
    summary: 'Exchange a user token or key for a signer session',
    description:
      "A token exchange (RFC 8693) at the address of the app: the user JWT or API key in subject_token becomes a signer credential; the answer includes the user's balance.",
    tags,
    params: AppParams,
    body: ExchangeForm,
    documentedBody: asDocumented(ExchangeForm, { required: exchangeRequires }),
    response: { 200: SignerSession },
    handler: async (request) =>
      endpoint.answerForApp(request, request.params.clientId, request.body),
  })(app)
}

const exchangeDeviceToken = post({
  url: '/api/signer/device/exchange',
  guard: { kind: 'none' },
  wire: 'oauth',
  limit: 'exchange',
  refuses: ['GRANT_INVALID', 'ALLOWANCE_EXHAUSTED', 'NOT_FOUND'],
  operationId: 'exchangeDeviceToken',
  summary: 'Exchange a device token for a signer token',
  description:
    'Exchanges the access token of a device login for a signer credential. The device needs no client authentication.',
  tags,
  body: DeviceToken,
  response: { 200: SignerSession },
  handler: async ({ body: { deviceToken, clientId }, core, correlationId }) => {
    const token = await core.grants.exchangeDeviceToken({ deviceToken, clientId })
    return {
      ...toToken(token, correlationId),
      issued_token_type: token.issuedTokenType,
      ...toSession(requireField(token.session, 'session')),
    }
  },
})

const listSessions = get({
  url,
  ...rules,
  members: 'read',
  operationId: 'listSignerSessions',
  summary: "List a user's signer sessions",
  description:
    'Lists the signer sessions of the user, including ended ones, the newest first, in pages.',
  tags,
  params: UserParams,
  querystring: Type.Object(pageQuery),
  response: { 200: ref(SignerSessionList) },
  handler: async ({ params, query: { limit, ...page }, core }) => {
    const { sessions, nextCursor } = await core.grants.listSignerSessions({
      ...params,
      ...page,
      limit: Number(limit ?? 0),
    })
    const listed = sessions.map((session) => ({ ...session, sessionId: session.id }))
    return { ...params, sessions: listed, nextCursor }
  },
})

const revokeSession = del({
  url,
  ...rules,
  members: 'edit',
  operationId: 'revokeSignerSession',
  summary: 'End a signer session',
  description: 'Ends one signer session. Until effectiveBy a cache may still accept it.',
  tags,
  params: UserParams,
  querystring: Type.Object({ sessionId: required('Which session.') }),
  response: { 200: RevokedSession },
  handler: async ({ params, query: { sessionId }, core, correlationId }) => {
    const { revokedAt, effectiveBy } = await core.grants.revokeSignerSession({
      ...params,
      id: sessionId,
    })
    return { success: true, correlation_id: correlationId, sessionId, revokedAt, effectiveBy }
  },
})
