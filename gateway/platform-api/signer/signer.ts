import { Type } from 'typebox'
import type { SignerSession as SessionMessage } from '../../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import { present } from '../../core/client.ts'
import {
  ExchangeForm,
  RevokedSession,
  SignerSession,
  SignerSessionList,
  repeatable,
} from '../oidc/schemas.ts'
import type { App } from '../../http/listener.ts'
import { AppParams, UserParams, pageQuery, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { type createGrants, toSession } from '../oidc/token-grants.ts'
import { toToken } from '../users/tokens.ts'

const tags = ['signer']
const sessions = '/api/v1/apps/:clientId/users/:externalUserId/signer-sessions'
const rules = { guard: { kind: 'm2m', scope: 'users:write' } } as const

const DeviceToken = Type.Object({
  deviceToken: Type.String({
    minLength: 1,
    maxLength: 8192,
    pattern: '\\S',
    description: 'The access token of the device.',
  }),
  clientId: Type.Optional(text('The app, when it shall be checked.')),
  scope: Type.Optional(Type.String({ description: 'Not needed; it is always sign:job.' })),
})

/** Ways to a signer session, and the sessions there are. */
export function signerRoutes(app: App, grants: ReturnType<typeof createGrants>): void {
  app.post(
    '/api/v1/apps/:clientId/oidc/token',
    route(
      { guard: { kind: 'client' }, wire: 'oauth', body: 'form', repeatable, limit: 'exchange' },
      {
        summary: 'Exchange a user token or key for a signer session',
        tags,
        params: AppParams,
        body: ExchangeForm,
        response: { 200: SignerSession },
      },
    ),
    async (request) => grants.answerForApp(request, request.params.clientId, request.body),
  )

  app.post(
    '/api/signer/device/exchange',
    route(
      { guard: { kind: 'none' }, wire: 'oauth', limit: 'exchange' },
      {
        summary: 'Exchange a device token for a signer token',
        tags,
        body: DeviceToken,
        response: { 200: SignerSession },
      },
    ),
    async ({ body: { deviceToken, clientId }, core, correlationId }) => {
      const token = await core.grants.exchangeDevice({ deviceToken, clientId })
      return {
        ...toToken(token, correlationId),
        issued_token_type: token.issuedTokenType,
        ...toSession(present(token.session, 'session')),
      }
    },
  )

  app.get(
    sessions,
    route(rules, {
      summary: "List a user's signer sessions",
      tags,
      params: UserParams,
      querystring: Type.Object(pageQuery),
      response: { 200: SignerSessionList },
    }),
    async ({ params, query: { limit, ...page }, core }) => {
      const found = await core.grants.sessions({ ...params, ...page, limit: Number(limit ?? 0) })
      const { nextCursor } = found
      return {
        ...params,
        sessions: found.sessions.map(toListed),
        ...(nextCursor === undefined ? {} : { nextCursor }),
      }
    },
  )

  app.delete(
    sessions,
    route(rules, {
      summary: 'End a signer session',
      tags,
      params: UserParams,
      querystring: Type.Object({ sessionId: required('Which session.') }),
      response: { 200: RevokedSession },
    }),
    async ({ params, query: { sessionId }, core, correlationId }) => {
      const { revokedAt, effectiveBy } = await core.grants.revokeSession({
        ...params,
        id: sessionId,
      })
      return { success: true, correlation_id: correlationId, sessionId, revokedAt, effectiveBy }
    },
  )
}

const toListed = (session: SessionMessage) => ({
  sessionId: session.id,
  id: session.id,
  label: session.label,
  scope: session.scope,
  createdAt: session.createdAt,
  expiresAt: session.expiresAt,
  lastUsedAt: session.lastUsedAt ?? null,
  revokedAt: session.revokedAt ?? null,
})
