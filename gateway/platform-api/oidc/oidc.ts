import { hash } from 'node:crypto'
import { Type } from 'typebox'
import type { IntrospectTokenResponse } from '../../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import {
  optionalClientSecret,
  readClientAuth,
  requireClientSecret,
  requirePublicClient,
} from '../../auth/credentials.ts'
import type { Core } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { matchesEtag } from '../../http/headers.ts'
import { route } from '../../http/route.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { signerSessionRoutes } from '../signer/sessions.ts'
import { discoveryRoutes } from './discovery.ts'
import { type TokenEndpoint, createTokenEndpoint } from './grant-types.ts'
import {
  AnyToken,
  DeviceAuthorization,
  DeviceForm,
  Introspection,
  Jwks,
  PresentedToken,
  TokenForm,
  UserInfo,
  repeatable,
} from './schemas.ts'

const tags = ['oidc']
const base = '/api/v1/oidc'
const form = { guard: { kind: 'client' }, wire: 'oauth', body: 'form', repeatable } as const

export interface OidcDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly tokenAlg: string
}

/** The issuer: discovery, keys, the token endpoint, devices, introspection, revocation and user info. */
export function oidcRoutes(app: App, deps: OidcDeps): void {
  const endpoint = createTokenEndpoint(deps)
  addSchemas(app, [Jwks])
  discoveryRoutes(app, { ...deps, grantTypes: endpoint.grantTypes })
  signerSessionRoutes(app, endpoint)
  startDevice(app, deps)
  introspectToken(app, deps)
  revokeToken(app, deps)
  userInfo(app)
  readKeys(app)
  issueToken(app, endpoint)
}

function readKeys(app: App): void {
  app.get(
    `${base}/jwks`,
    route(
      { guard: { kind: 'none' } },
      {
        summary: 'Keys that tokens are signed with',
        tags,
        response: { 200: ref(Jwks), 304: Type.Null({ description: 'Not changed' }) },
      },
    ),
    async (request, reply) => {
      const { keys } = await request.core.tokens.jwks({})
      const etag = `"${hash('sha256', JSON.stringify(keys), 'base64url')}"`
      void reply.header('cache-control', 'public, max-age=300').header('etag', etag)
      if (matchesEtag(request.headers['if-none-match'], etag)) return reply.code(304).send(null)
      return { keys }
    },
  )
}

function issueToken(app: App, endpoint: TokenEndpoint): void {
  app.post(
    `${base}/token`,
    route(
      { ...form, limit: 'token' },
      {
        summary: 'Token endpoint',
        tags,
        body: TokenForm,
        response: { 200: AnyToken },
      },
    ),
    async (request) => endpoint.answer(request, request.body),
  )
}

function startDevice(app: App, { publicUrl }: OidcDeps): void {
  for (const path of ['/device/auth', '/device_authorization']) {
    app.post(
      base + path,
      route(
        { ...form, limit: 'device' },
        {
          summary: 'Start a device (RFC 8628)',
          tags,
          body: DeviceForm,
          response: { 200: DeviceAuthorization },
        },
      ),
      async ({ body, raw, core }) => {
        const clientId = requirePublicClient(readClientAuth(raw.rawHeaders, body))
        const device = await core.devices.start({ clientId, scope: body.scope })
        const page = `${publicUrl}/oidc/device`
        const query = new URLSearchParams({
          user_code: device.userCode,
          client_id: clientId,
          iss: publicUrl + base,
        })
        return {
          device_code: device.deviceCode,
          user_code: device.userCode,
          verification_uri: page,
          verification_uri_complete: `${page}?${query}`,
          expires_in: device.expiresIn,
          interval: device.interval,
        }
      },
    )
  }
}

function introspectToken(app: App, { core }: OidcDeps): void {
  app.post(
    `${base}/token/introspection`,
    route(
      { ...form, limit: 'token' },
      {
        summary: 'What a token is worth (RFC 7662)',
        tags,
        body: PresentedToken,
        response: { 200: Introspection },
      },
    ),
    async ({ body, raw, correlationId }) => {
      const authorization = requireClientSecret(readClientAuth(raw.rawHeaders, body))
      const token = await core
        .callsFor({ authorization, correlationId })
        .grants.introspect({ token: body.token })
      return toIntrospection(token)
    },
  )
}

function toIntrospection(token: IntrospectTokenResponse) {
  if (!token.active) return { active: false }
  const texts = {
    client_id: token.clientId,
    sub: token.sub,
    scope: token.scope,
    token_type: token.tokenType,
    iss: token.iss,
    aud: token.aud,
    jti: token.jti,
    external_user_id: token.externalUserId,
  }
  const known = Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== ''))
  return { active: true, ...known, exp: Number(token.exp), iat: Number(token.iat) }
}

function revokeToken(app: App, { core }: OidcDeps): void {
  app.post(
    `${base}/token/revocation`,
    route(
      { ...form, limit: 'token' },
      {
        summary: 'End a token (RFC 7009)',
        tags,
        body: PresentedToken,
        response: { 200: Type.Object({}) },
      },
    ),
    async ({ body, raw, correlationId }) => {
      const auth = readClientAuth(raw.rawHeaders, body)
      const credential =
        auth.kind === 'public'
          ? { clientId: auth.clientId, authorization: undefined }
          : { clientId: undefined, authorization: optionalClientSecret(auth) }
      const calls = core.callsFor({ authorization: credential.authorization, correlationId })
      await calls.grants.revoke({ token: body.token, clientId: credential.clientId })
      return {}
    },
  )
}

function userInfo(app: App): void {
  for (const path of ['/me', '/userinfo']) {
    for (const method of ['GET', 'POST'] as const) {
      app.route({
        method,
        url: base + path,
        ...route(
          { guard: { kind: 'user' }, wire: 'oauth' },
          {
            summary: 'Who the token is about (OpenID Connect)',
            tags,
            response: { 200: UserInfo },
          },
        ),
        handler: async ({ core }) => {
          const { sub, email, emailVerified, name } = await core.grants.userInfo({})
          return {
            sub,
            ...(email === undefined ? {} : { email, email_verified: emailVerified ?? false }),
            ...(name === undefined ? {} : { name }),
          }
        },
      })
    }
  }
}
