import { createHash } from 'node:crypto'
import { Type } from 'typebox'
import { confidential, optional, publicClient, readClientAuth } from '../../auth/client-auth.ts'
import type { Core } from '../../core/client.ts'
import {
  AnyToken,
  DeviceAuthorization,
  DeviceForm,
  Introspection,
  TokenForm,
  TokenToJudge,
  UserInfo,
  repeatable,
} from './schemas.ts'
import type { App } from '../../http/listener.ts'
import { route } from '../../http/route.ts'
import { Jwks, ref } from '../schemas.ts'
import { discoveryRoutes } from './discovery.ts'
import { createGrants } from './token-grants.ts'
import { signerRoutes } from '../signer/signer.ts'

const tags = ['oidc']
const base = '/api/v1/oidc'
const form = { guard: { kind: 'client' }, wire: 'oauth', body: 'form', repeatable } as const

export interface OidcDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly tokenAlg: string
}

/** The issuer: discovery, keys, the token endpoint, and what becomes of tokens. */
export function oidcRoutes(app: App, deps: OidcDeps): void {
  const grants = createGrants(deps)
  discoveryRoutes(app, { ...deps, grantTypes: grants.grantTypes })
  signerRoutes(app, grants)
  tokenRoutes(app, deps)
  userInfoRoutes(app)

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
      const etag = `"${createHash('sha256').update(JSON.stringify(keys)).digest('base64url')}"`
      void reply.header('cache-control', 'public, max-age=300').header('etag', etag)
      if (matches(request.headers['if-none-match'], etag)) return reply.code(304).send(null)
      return { keys }
    },
  )

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
    async (request) => grants.answer(request, request.body),
  )
}

/** Starting a device, and what a token is worth or no longer. */
function tokenRoutes(app: App, { core, publicUrl }: OidcDeps): void {
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
        const clientId = publicClient(readClientAuth(raw.rawHeaders, body))
        const started = await core.devices.start({ clientId, scope: body.scope })
        const page = `${publicUrl}/oidc/device`
        const query = new URLSearchParams({
          user_code: started.userCode,
          client_id: clientId,
          iss: publicUrl + base,
        })
        return {
          device_code: started.deviceCode,
          user_code: started.userCode,
          verification_uri: page,
          verification_uri_complete: `${page}?${query}`,
          expires_in: started.expiresIn,
          interval: started.interval,
        }
      },
    )
  }

  app.post(
    `${base}/token/introspection`,
    route(
      { ...form, limit: 'token' },
      {
        summary: 'What a token is worth (RFC 7662)',
        tags,
        body: TokenToJudge,
        response: { 200: Introspection },
      },
    ),
    async ({ body, raw, correlationId }) => {
      const authorization = confidential(readClientAuth(raw.rawHeaders, body))
      const found = await core
        .callsFor({ authorization, correlationId })
        .grants.introspect({ token: body.token })
      if (!found.active) return { active: false }
      const texts = {
        client_id: found.clientId,
        sub: found.sub,
        scope: found.scope,
        token_type: found.tokenType,
        iss: found.iss,
        aud: found.aud,
        jti: found.jti,
        external_user_id: found.externalUserId,
      }
      const said = Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== ''))
      return { active: true, ...said, exp: Number(found.exp), iat: Number(found.iat) }
    },
  )

  app.post(
    `${base}/token/revocation`,
    route(
      { ...form, limit: 'token' },
      {
        summary: 'End a token (RFC 7009)',
        tags,
        body: TokenToJudge,
        response: { 200: Type.Object({}) },
      },
    ),
    async ({ body, raw, correlationId }) => {
      const auth = readClientAuth(raw.rawHeaders, body)
      const known =
        auth.kind === 'public'
          ? { clientId: auth.clientId, authorization: undefined }
          : { clientId: undefined, authorization: optional(auth) }
      const calls = core.callsFor({ authorization: known.authorization, correlationId })
      await calls.grants.revoke({ token: body.token, clientId: known.clientId })
      return {}
    },
  )
}

function userInfoRoutes(app: App): void {
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

// RFC 9110 section 13.1.2: the comparison is weak.
const matches = (ifNoneMatch: string | undefined, etag: string): boolean =>
  (ifNoneMatch ?? '').split(',').some((tag) => ['*', etag, `W/${etag}`].includes(tag.trim()))
