import { createHash } from 'node:crypto'
import { Type } from 'typebox'
import { DomainError } from '../../proto/errors.ts'
import { type ClientSecret, basicOf, parseBasic, readAuthorization } from '../credentials.ts'
import type { Core } from '../core.ts'
import type { App } from '../listener.ts'
import { route } from '../route.ts'
import { Discovery, Jwks, Token, ref } from '../schemas.ts'
import { toToken } from './tokens.ts'

const tags = ['oidc']

/** Every scope that a token may be granted. */
const grantableScopes = ['users:read', 'users:write', 'users:token', 'device:approve', 'sign:job']

const TokenForm = Type.Object({
  grant_type: Type.String({ description: 'client_credentials' }),
  client_id: Type.Optional(Type.String()),
  client_secret: Type.Optional(Type.String()),
  scope: Type.Optional(Type.String({ description: 'Space-separated; every allowed scope when absent.' })),
})

export interface OidcDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly tokenAlg: string
}

/** Discovery, keys and the token endpoint of the issuer. */
export function oidcRoutes(app: App, { core, publicUrl, tokenAlg }: OidcDeps): void {
  const discovery = discoveryOf(publicUrl, tokenAlg)
  for (const base of ['/api/v1/oidc', '']) {
    app.get(`${base}/.well-known/openid-configuration`, route({ guard: { kind: 'none' } }, {
      summary: 'Discovery document', tags, response: { 200: ref(Discovery) },
    }), async (_, reply) => {
      void reply.header('cache-control', 'public, max-age=3600')
      return discovery
    })
  }

  app.get('/api/v1/oidc/jwks', route({ guard: { kind: 'none' } }, {
    summary: 'Keys that tokens are signed with', tags,
    response: { 200: ref(Jwks), 304: Type.Null({ description: 'Not changed' }) },
  }), async (request, reply) => {
    const { keys } = await request.core.tokens.jwks({})
    const etag = `"${createHash('sha256').update(JSON.stringify(keys)).digest('base64url')}"`
    void reply.header('cache-control', 'public, max-age=300').header('etag', etag)
    if (matches(request.headers['if-none-match'], etag)) return reply.code(304).send(null)
    return { keys }
  })

  app.post('/api/v1/oidc/token', route({ guard: { kind: 'client' }, wire: 'oauth', body: 'form', limit: 'token' }, {
    summary: 'Token endpoint', tags, body: TokenForm, response: { 200: ref(Token) },
  }), async (request) => {
    const { grant_type: grantType, scope, ...posted } = request.body
    if (grantType !== 'client_credentials') {
      throw new DomainError('GRANT_TYPE_UNSUPPORTED', 'grant_type must be client_credentials')
    }
    const authorization = basicOf(clientSecret(readAuthorization(request.raw.rawHeaders), posted))
    const calls = core.callsFor({ authorization, correlationId: request.correlationId })
    return toToken(await calls.tokens.issueMachineToken({ scope }), request.correlationId)
  })
}

/** Only what works now (identity facts 1.2). */
function discoveryOf(publicUrl: string, tokenAlg: string) {
  const issuer = `${publicUrl}/api/v1/oidc`
  return {
    issuer,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/jwks`,
    grant_types_supported: ['client_credentials'],
    response_types_supported: [],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: [tokenAlg],
    token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
    scopes_supported: grantableScopes,
  }
}

// RFC 9110 section 13.1.2: the comparison is weak.
const matches = (ifNoneMatch: string | undefined, etag: string): boolean =>
  (ifNoneMatch ?? '').split(',').some((tag) => ['*', etag, `W/${etag}`].includes(tag.trim()))

const wrongClient = (says: string) => new DomainError('CREDENTIAL_INVALID', says)

type Posted = { client_id?: string; client_secret?: string }

/** The one pair of RFC 6749 section 2.3: Basic or the form, and never two that differ. */
function clientSecret(authorization: string | undefined, posted: Posted): ClientSecret {
  const { client_id: id, client_secret: secret } = posted
  if (authorization !== undefined) {
    const basic = parseBasic(authorization)
    if (basic === null) throw wrongClient('send the client id and secret as HTTP Basic')
    if ((id ?? basic.id) !== basic.id || (secret ?? basic.secret) !== basic.secret) {
      throw new DomainError('REQUEST_INVALID', 'the credentials in the header and in the form differ')
    }
    return basic
  }
  if (id === undefined || secret === undefined || id.includes(':')) {
    throw wrongClient('send client_id and client_secret, as HTTP Basic or in the form')
  }
  return { id, secret }
}
