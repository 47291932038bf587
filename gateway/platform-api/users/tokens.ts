import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, UserParams, required } from '../schemas.ts'

const tags = ['tokens']

const tokenFields = {
  access_token: Type.String(),
  token_type: Type.String(),
  expires_in: Type.Integer({ description: 'Seconds.' }),
  scope: Type.String(),
  correlation_id: CorrelationId,
}

const UserToken = named(Type.Object({ ...tokenFields, subject_type: Type.String() }), 'UserToken')
const KeyToken = named(Type.Object({ ...tokenFields, externalUserId: Type.String() }), 'KeyToken')

const ScopeBody = Type.Object({
  scope: Type.Optional(required('Space-separated; sign:job when absent.')),
})

/** User tokens: minted by the app's backend, or exchanged for an API key. */
export function tokenRoutes(app: App): void {
  addSchemas(app, [UserToken, KeyToken])
  mintUserToken(app)
  exchangeApiKey(app)
}

const mintUserToken = post({
  url: '/api/v1/apps/:clientId/users/:externalUserId/token',
  guard: { kind: 'm2m', scope: Scope.usersToken },
  wire: 'oauth',
  limit: 'token',
  refuses: ['SCOPE_INVALID'],
  operationId: 'mintUserToken',
  summary: 'Mint a user token',
  description:
    'Returns a user JWT for calls as this user, usually to its own usage and to the signer. It is valid for minutes; mint a new one instead of refreshing it.',
  tags,
  params: UserParams,
  body: ScopeBody,
  response: { 200: ref(UserToken) },
  handler: async ({ params, body: { scope }, core, correlationId }) => {
    const token = await core.tokens.mintUserToken({ ...params, scope })
    return { ...toToken(token, correlationId), subject_type: 'app_user' }
  },
})

const exchangeApiKey = post({
  url: '/api/v1/apps/:clientId/auth/api-key/token',
  guard: { kind: 'key' },
  wire: 'oauth',
  limit: 'exchange',
  refuses: ['SCOPE_INVALID'],
  operationId: 'exchangeApiKey',
  summary: 'Exchange an API key for a user token',
  description:
    'Returns a user JWT for the user of the API key. Every problem with the key has the same answer, 401 invalid_client.',
  tags,
  params: AppParams,
  body: ScopeBody,
  response: { 200: ref(KeyToken) },
  handler: async ({ params, body: { scope }, core, correlationId }) => {
    const token = await core.tokens.exchangeApiKey({ ...params, scope })
    return { ...toToken(token, correlationId), externalUserId: token.externalUserId }
  },
})

interface TokenMessage {
  accessToken: string
  tokenType: string
  expiresIn: number
  scope: string
}

/** The token response of RFC 6749 section 5.1. */
export const toToken = (token: TokenMessage, correlationId: string) => ({
  access_token: token.accessToken,
  token_type: token.tokenType,
  expires_in: token.expiresIn,
  scope: token.scope,
  correlation_id: correlationId,
})
