import type { FastifyRequest } from 'fastify'
import { createResourceCheck } from '../../../core/lib/names/resources.ts'
import type { Static } from 'typebox'
import { GrantType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import { DomainError } from '../../../proto/errors.ts'
import type {
  ExchangeTokenResponse,
  LoginTokens,
  MintOwnerTokenResponse,
  MintSignerTokenResponse,
  SignerSessionFacts,
} from '../../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import {
  type ClientAuth,
  optionalClientSecret,
  readClientAuth,
  requireClientSecret,
  requirePublicClient,
} from '../../auth/credentials.ts'
import { type Core, type CoreCalls, requireField } from '../../core/client.ts'
import { toToken } from '../users/tokens.ts'
import type { ExchangeForm, TokenForm } from './schemas.ts'

type Form = Static<typeof TokenForm>
type Exchange = Static<typeof ExchangeForm>

export interface TokenEndpointDeps {
  readonly core: Core
  readonly publicUrl: string
  /** Origin of the builder API's edge. */
  readonly edgeUrl?: string | undefined
}

interface Targets {
  readonly audience?: readonly string[] | undefined
  readonly resource?: readonly string[] | undefined
}

interface TokenRequest<F = Form> {
  readonly form: F
  readonly auth: ClientAuth
  readonly correlationId: string
}

/**
 * Creates the token endpoint, with one function per OAuth grant type, and the app-scoped token
 * exchange.
 */
export function createTokenEndpoint({ core, publicUrl, edgeUrl }: TokenEndpointDeps) {
  const issuer = `${publicUrl}/api/v1/oidc`
  const isResource = createResourceCheck({ issuer, edgeUrl })

  async function clientCredentials({ form, auth, correlationId }: TokenRequest) {
    // Core checks the audience of a signer token.
    requireIssuer(signs(form.scope) ? { resource: form.resource } : form)
    const scopes = (form.scope ?? '').split(' ').filter(Boolean)
    if (scopes.includes(Scope.mintUserToken))
      return mintSignerToken({ form, auth, correlationId }, scopes)
    if (scopes.length === 1 && scopes[0] === Scope.signJob)
      return mintOwnerToken({ form, auth, correlationId })
    const calls = core.callsFor({ authorization: requireClientSecret(auth), correlationId })
    return toToken(await calls.tokens.issueMachineToken({ scope: form.scope }), correlationId)
  }

  async function mintSignerToken(
    { form, auth, correlationId }: TokenRequest,
    scopes: readonly string[],
  ) {
    if (scopes.some((scope) => scope !== Scope.mintUserToken)) {
      throw new DomainError(
        'SCOPE_INVALID',
        `${Scope.mintUserToken} cannot be combined with another scope`,
      )
    }
    const externalUserId = requireParameter(form, 'external_user_id')
    const calls = core.callsFor({ authorization: requireClientSecret(auth), correlationId })
    const token = await calls.grants.mintSignerToken({
      externalUserId,
      audiences: form.audience ?? [],
    })
    return toSignerToken(token, correlationId)
  }

  async function mintOwnerToken({ form, auth, correlationId }: TokenRequest) {
    const calls = core.callsFor({ authorization: requireClientSecret(auth), correlationId })
    if (form.external_user_id !== undefined) {
      throw new DomainError(
        'REQUEST_INVALID',
        `external_user_id needs the scope ${Scope.mintUserToken}`,
      )
    }
    const token = await calls.grants.mintOwnerToken({ audiences: form.audience ?? [] })
    return toSignerToken(token, correlationId)
  }

  async function tokenExchange(
    { form, auth, correlationId }: TokenRequest<Exchange>,
    app: { readonly clientId?: string } = {},
  ) {
    const calls = core.callsFor({ authorization: optionalClientSecret(auth), correlationId })
    const token = await calls.grants.exchangeToken({ ...toExchangeRequest(form), ...app })
    return toExchangedToken(token, correlationId)
  }

  const deviceCode = (request: TokenRequest) =>
    redeem(request, (grants, clientId, form) =>
      grants.redeemDeviceCode({ clientId, deviceCode: requireParameter(form, 'device_code') }),
    )

  const authorizationCode = (request: TokenRequest) =>
    redeem(request, (grants, clientId, form) =>
      grants.redeemAuthorizationCode({
        clientId,
        code: requireParameter(form, 'code'),
        redirectUri: requireParameter(form, 'redirect_uri'),
        codeVerifier: requireParameter(form, 'code_verifier'),
      }),
    )

  const refreshToken = (request: TokenRequest) =>
    redeem(request, (grants, clientId, form) =>
      grants.redeemRefreshToken({
        clientId,
        refreshToken: requireParameter(form, 'refresh_token'),
        scope: form.scope,
      }),
    )

  /** Redeems a login's grant for a public client. */
  async function redeem(
    { form, auth, correlationId }: TokenRequest,
    call: (
      grants: CoreCalls['grants'],
      clientId: string,
      form: Form,
    ) => Promise<{ readonly tokens?: LoginTokens | undefined }>,
  ) {
    requireIssuer(form)
    const clientId = requirePublicClient(auth)
    const { tokens } = await call(core.callsFor({ correlationId }).grants, clientId, form)
    return toLoginTokens(tokens, correlationId)
  }

  // RFC 8707. The audience of our own tokens is always the issuer.
  function requireIssuer({ audience = [], resource = [] }: Targets): void {
    const targets = [...audience, ...resource]
    if (targets.every(isResource)) return
    throw new DomainError('TARGET_INVALID', `audience and resource must be ${issuer}`)
  }

  const handlers: Readonly<Record<string, (request: TokenRequest) => Promise<object>>> = {
    [GrantType.clientCredentials]: clientCredentials,
    [GrantType.authorizationCode]: authorizationCode,
    [GrantType.refreshToken]: refreshToken,
    [GrantType.deviceCode]: deviceCode,
    [GrantType.tokenExchange]: tokenExchange,
  }

  /**
   * Answers the token endpoint by the form's grant type. Throws GRANT_TYPE_UNSUPPORTED for an
   * unknown one.
   */
  async function answer(request: FastifyRequest, form: Form) {
    const handle = Object.hasOwn(handlers, form.grant_type) ? handlers[form.grant_type] : undefined
    if (!handle)
      throw new DomainError(
        'GRANT_TYPE_UNSUPPORTED',
        `grant_type must be one of: ${Object.keys(handlers).join(', ')}`,
      )
    return handle({
      form,
      auth: readClientAuth(request.raw.rawHeaders, form),
      correlationId: request.correlationId,
    })
  }

  /**
   * Answers the app-scoped exchange. Core checks the app first, then the client, then the tokens.
   */
  async function answerForApp(request: FastifyRequest, clientId: string, form: Exchange) {
    const { correlationId } = request
    const auth = readClientAuth(request.raw.rawHeaders, form)
    return tokenExchange({ form, auth, correlationId }, { clientId })
  }

  return { answer, answerForApp, grantTypes: Object.keys(handlers) }
}

const toExchangeRequest = (form: Exchange) => ({
  subjectToken: form.subject_token ?? '',
  subjectTokenType: form.subject_token_type ?? '',
  requestedTokenType: form.requested_token_type,
  audiences: form.audience ?? [],
  resources: form.resource ?? [],
  scope: form.scope,
  grantType: form.grant_type,
})

type ParameterName =
  'external_user_id' | 'device_code' | 'code' | 'redirect_uri' | 'code_verifier' | 'refresh_token'

function requireParameter(form: Form, name: ParameterName): string {
  const value = form[name]
  if (value === undefined || value.trim() === '')
    throw new DomainError('REQUEST_INVALID', `${name} is required`)
  return value
}

/** Whether a client requests a signer token. */
const signs = (scope = ''): boolean =>
  scope.trim() === Scope.signJob || scope.includes(Scope.mintUserToken)

const toSignerToken = (
  token: MintSignerTokenResponse | MintOwnerTokenResponse,
  correlationId: string,
) => ({
  ...toToken(token, correlationId),
  ...toSession(requireField(token.session, 'session')),
})

const toExchangedToken = (token: ExchangeTokenResponse, correlationId: string) => ({
  ...toToken(token, correlationId),
  issued_token_type: token.issuedTokenType,
  ...(token.session ? toSession(token.session) : {}),
})

const safeMax = BigInt(Number.MAX_SAFE_INTEGER)

/**
 * Returns the fields of a signer session except its token. The balance appears as an integer and as
 * a string.
 */
export const toSession = (facts: SignerSessionFacts) => ({
  ...toBuilderSession(facts),
  balanceUsdMicros: facts.balanceUsdMicros,
  lifetimeGrantedUsdMicros: facts.lifetimeGrantedUsdMicros,
})

/** Returns the same fields as the builder API names them. */
export function toBuilderSession(facts: SignerSessionFacts) {
  const balance = BigInt(facts.balanceUsdMicros)
  return {
    ...(facts.signerUrl === ''
      ? {}
      : { signer_url: facts.signerUrl, discovery_url: facts.discoveryUrl }),
    has_access: facts.hasAccess,
    can_spend: facts.canSpend,
    balance_usd_micros: Number(balance > safeMax ? safeMax : balance),
  }
}

function toLoginTokens(tokens: LoginTokens | undefined, correlationId: string) {
  const { idToken, refreshToken, ...token } = requireField(tokens, 'tokens')
  return {
    ...toToken(token, correlationId),
    ...(idToken === undefined ? {} : { id_token: idToken }),
    ...(refreshToken === undefined ? {} : { refresh_token: refreshToken }),
  }
}

export type TokenEndpoint = ReturnType<typeof createTokenEndpoint>
