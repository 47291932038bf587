import { fingerprint } from '../../../core/lib/crypto.ts'
import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type {
  GetUserInfoResponse,
  IntrospectTokenResponse,
} from '../../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import {
  optionalClientSecret,
  readAuthorization,
  readClientAuth,
  requireClientSecret,
  requirePublicClient,
} from '../../auth/credentials.ts'
import type { Core, CoreCalls } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { answerCached } from '../../http/cached-document.ts'
import { provisioningReasons } from '../../http/route.ts'
import { readAddress } from '../../limits/address.ts'
import { addSchemas, asDocumented, ref } from '../../http/schemas.ts'
import { signerSessionRoutes } from './signer-sessions.ts'
import { discoveryRoutes } from './discovery.ts'
import { type TokenEndpoint, createTokenEndpoint } from './grant-types.ts'
import { type KeySet, createKeySet } from './key-set.ts'
import {
  AnyToken,
  BearerForm,
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
/**
 * Refusals of any grant type (RFC 6749 section 5.2, RFC 8628 section 3.5, RFC 8693 section 2.2.2).
 */
const everyGrantRefuses = [
  'GRANT_INVALID',
  'GRANT_TYPE_UNSUPPORTED',
  'CLIENT_UNAUTHORIZED',
  'SCOPE_INVALID',
  'TARGET_INVALID',
  'TOKEN_TYPE_UNSUPPORTED',
  'AUTHORIZATION_PENDING',
  'SLOW_DOWN',
  'DEVICE_CODE_EXPIRED',
  'ACCESS_DENIED',
  'CLIENT_SCOPE_MISSING',
  'NOT_FOUND',
  'ALLOWANCE_EXHAUSTED',
  ...provisioningReasons,
] as const
const form = { guard: { kind: 'client' }, wire: 'oauth', accepts: 'form', repeatable } as const

export interface OidcDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly tokenAlg: string
  readonly trustedProxyHops: number
  /** Origin of the builder API's edge, where clients register. */
  readonly edgeUrl?: string | undefined
}

/**
 * Routes of the issuer: discovery, keys, the token endpoint, devices, introspection, revocation and
 * user info.
 */
export function oidcRoutes(app: App, deps: OidcDeps): void {
  const endpoint = createTokenEndpoint(deps)
  const keySet = createKeySet()
  addSchemas(app, [Jwks])
  discoveryRoutes(app, { ...deps, keySet, grantTypes: endpoint.grantTypes })
  signerSessionRoutes(app, endpoint)
  startDevice(app, deps)
  introspectToken(app, deps)
  revokeToken(app, deps)
  userInfo(app, deps)
  readKeys(app, keySet)
  issueToken(app, endpoint)
}

function readKeys(app: App, keySet: KeySet): void {
  get({
    url: `${base}/jwks`,
    guard: { kind: 'none' },
    document: true,
    operationId: 'getJwks',
    summary: 'Keys that tokens are signed with',
    description:
      'Returns the public keys of the issuer as a JWK set (RFC 7517). Cache them as long as Cache-Control allows, and fetch them again when a token names an unknown key.',
    tags,
    response: { 200: ref(Jwks), 304: Type.Null({ description: 'Not changed' }) },
    handler: (request, reply) => {
      const document = keySet.read(() => request.core)
      return answerCached(request, reply, { document, maxAge: 300 })
    },
  })(app)
}

function issueToken(app: App, endpoint: TokenEndpoint): void {
  post({
    url: `${base}/token`,
    ...form,
    limit: 'token',
    refuses: everyGrantRefuses,
    operationId: 'issueToken',
    summary: 'Token endpoint',
    description:
      'The token endpoint of OAuth 2.0. The form field grant_type selects the grant: client_credentials (a machine token for the M2M client, or a signer credential), authorization_code, refresh_token, the device code of RFC 8628, or a token exchange (RFC 8693).',
    tags,
    body: TokenForm,
    response: { 200: AnyToken },
    handler: async (request) => endpoint.answer(request, request.body),
  })(app)
}

const deviceAddresses = [
  ['/device/auth', 'startDevice'],
  ['/device_authorization', 'startDeviceAlias'],
] as const

function startDevice(app: App, { publicUrl, trustedProxyHops }: OidcDeps): void {
  for (const [path, operationId] of deviceAddresses) {
    post({
      url: base + path,
      ...form,
      limit: 'device',
      refuses: ['CLIENT_UNAUTHORIZED', 'SCOPE_INVALID'],
      operationId,
      summary: 'Start a device (RFC 8628)',
      description:
        'Starts the login of a device without a browser. Show user_code and verification_uri to the user, then poll the token endpoint with device_code, at most once in every interval.',
      tags,
      body: DeviceForm,
      documentedBody: asDocumented(DeviceForm, { required: ['client_id'] }),
      // Only public clients have devices, and a public client has no secret.
      security: [],
      response: { 200: DeviceAuthorization },
      handler: async (request) => {
        const { body, raw, core } = request
        const clientId = requirePublicClient(readClientAuth(raw.rawHeaders, body))
        const address = fingerprint(readAddress(request, trustedProxyHops))
        const device = await core.devices.startDevice({ clientId, scope: body.scope, address })
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
    })(app)
  }
}

function introspectToken(app: App, { core }: OidcDeps): void {
  post({
    url: `${base}/token/introspection`,
    ...form,
    limit: 'token',
    operationId: 'introspectToken',
    summary: 'Introspect a token (RFC 7662)',
    description:
      "Returns to an M2M client whether a token of its own app is active, and the token's user. For another app's token, and for an expired or unknown one, the answer is active: false.",
    tags,
    body: PresentedToken,
    response: { 200: Introspection },
    handler: async ({ body, raw, correlationId }) => {
      const authorization = requireClientSecret(readClientAuth(raw.rawHeaders, body))
      const token = await core
        .callsFor({ authorization, correlationId })
        .grants.introspectToken({ token: body.token })
      return toIntrospection(token)
    },
  })(app)
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
  post({
    url: `${base}/token/revocation`,
    ...form,
    limit: 'token',
    operationId: 'revokeToken',
    summary: 'Revoke a token (RFC 7009)',
    description:
      'Revokes a token or a refresh token, and every token that was issued from it. The answer is 200 also if the token was unknown or had ended.',
    tags,
    body: PresentedToken,
    response: { 200: Type.Object({}) },
    handler: async ({ body, raw, correlationId }) => {
      const auth = readClientAuth(raw.rawHeaders, body)
      const credential =
        auth.kind === 'public'
          ? { clientId: auth.clientId, authorization: undefined }
          : { clientId: undefined, authorization: optionalClientSecret(auth) }
      const calls = core.callsFor({ authorization: credential.authorization, correlationId })
      await calls.grants.revokeToken({ token: body.token, clientId: credential.clientId })
      return {}
    },
  })(app)
}

const userInfoAddresses = [
  ['/me', 'UserInfo'],
  ['/userinfo', 'UserInfoAlias'],
] as const
const userInfoRules = {
  guard: { kind: 'user' },
  wire: 'oauth',
  refuses: ['SCOPE_MISSING'],
} as const
const userInfoSchema = {
  summary: 'The user of the token (OpenID Connect)',
  tags,
  response: { 200: UserInfo },
} as const
const userInfoClaims =
  'Returns claims about the user of a token with the scope openid: always sub, with the scope email also email, with the scope profile also name.'

function userInfo(app: App, { core }: OidcDeps): void {
  for (const [path, noun] of userInfoAddresses) {
    get({
      url: base + path,
      ...userInfoRules,
      ...userInfoSchema,
      operationId: `get${noun}`,
      description: userInfoClaims,
      handler: async (request) => toUserInfo(await request.core.grants.getUserInfo({})),
    })(app)
    post({
      url: base + path,
      ...userInfoRules,
      accepts: 'either',
      ...userInfoSchema,
      operationId: `post${noun}`,
      description: `${userInfoClaims} The token is in the header, or in the form as access_token.`,
      body: BearerForm,
      handler: async (request) => {
        const calls = callsOfBearer(request, core)
        return toUserInfo(await calls.grants.getUserInfo({}))
      },
    })(app)
  }
}

/** Takes the token from the header or the form, never both (RFC 6750 section 2). */
function callsOfBearer(
  { body, raw, correlationId, core: own }: UserInfoRequest,
  core: Core,
): CoreCalls {
  const { access_token: token } = body
  if (token === undefined) return own
  if (readAuthorization(raw.rawHeaders) !== undefined)
    throw new DomainError('REQUEST_INVALID', 'send the token in the header or in the form')
  return core.callsFor({ authorization: `Bearer ${token}`, correlationId })
}

interface UserInfoRequest {
  readonly body: { readonly access_token?: string }
  readonly raw: { readonly rawHeaders: readonly string[] }
  readonly correlationId: string
  readonly core: CoreCalls
}

const toUserInfo = ({ sub, email, emailVerified, name }: GetUserInfoResponse) => ({
  sub,
  ...(email === undefined ? {} : { email, email_verified: emailVerified ?? false }),
  ...(name === undefined ? {} : { name }),
})
