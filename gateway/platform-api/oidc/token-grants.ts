import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type {
  ExchangeTokenResponse,
  LoginTokens,
  SignerSessionFacts,
} from '../../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import {
  type ClientAuth,
  confidential,
  optional,
  publicClient,
  readClientAuth,
} from '../../auth/client-auth.ts'
import { type Core, present } from '../../core/client.ts'
import type { ExchangeForm, TokenForm } from './schemas.ts'
import { toToken } from '../users/tokens.ts'

type Form = Static<typeof TokenForm>
type Exchange = Static<typeof ExchangeForm>

export interface GrantDeps {
  readonly core: Core
  readonly publicUrl: string
}

interface Asked {
  readonly form: Form
  readonly auth: ClientAuth
  readonly correlationId: string
}

const urn = 'urn:ietf:params:oauth:grant-type:'
const mintScope = 'sign:mint_user_token'

/** The token endpoint: which grant is meant, and what core answers to it (identity facts 2.2). */
export function createGrants({ core, publicUrl }: GrantDeps) {
  const issuer = `${publicUrl}/api/v1/oidc`

  async function machine({ form, auth, correlationId }: Asked) {
    requireIssuer(form)
    const scopes = (form.scope ?? '').split(' ').filter(Boolean)
    if (scopes.includes(mintScope)) return mint({ form, auth, correlationId }, scopes)
    const calls = core.callsFor({ authorization: confidential(auth), correlationId })
    return toToken(await calls.tokens.issueMachineToken({ scope: form.scope }), correlationId)
  }

  async function mint({ form, auth, correlationId }: Asked, scopes: readonly string[]) {
    const externalUserId = needed(form, 'external_user_id')
    const calls = core.callsFor({ authorization: confidential(auth), correlationId })
    if (scopes.some((scope) => scope !== mintScope)) {
      throw new DomainError('SCOPE_INVALID', `${mintScope} goes with no other scope`)
    }
    return toToken(
      await calls.grants.mintSigner({ externalUserId, audiences: form.audience ?? [] }),
      correlationId,
    )
  }

  async function exchange({ form, auth, correlationId }: Asked) {
    const calls = core.callsFor({ authorization: optional(auth), correlationId })
    return toExchanged(await calls.grants.exchange(exchangeOf(form)), correlationId)
  }

  async function device({ form, auth, correlationId }: Asked) {
    requireIssuer(form)
    const clientId = publicClient(auth)
    const calls = core.callsFor({ correlationId })
    return toLogin(
      (await calls.grants.redeemDevice({ clientId, deviceCode: needed(form, 'device_code') }))
        .tokens,
      correlationId,
    )
  }

  async function code({ form, auth, correlationId }: Asked) {
    requireIssuer(form)
    const clientId = publicClient(auth)
    const calls = core.callsFor({ correlationId })
    return toLogin(
      (
        await calls.grants.redeemCode({
          clientId,
          code: needed(form, 'code'),
          redirectUri: needed(form, 'redirect_uri'),
          codeVerifier: needed(form, 'code_verifier'),
        })
      ).tokens,
      correlationId,
    )
  }

  async function refresh({ form, auth, correlationId }: Asked) {
    requireIssuer(form)
    const clientId = publicClient(auth)
    const calls = core.callsFor({ correlationId })
    return toLogin(
      (
        await calls.grants.redeemRefresh({
          clientId,
          refreshToken: needed(form, 'refresh_token'),
          scope: form.scope,
        })
      ).tokens,
      correlationId,
    )
  }

  // RFC 8707: our own tokens are for the issuer, whether that is said or not (identity facts 2.1).
  function requireIssuer({ audience = [], resource = [], scope }: Form): void {
    const targets = scope?.includes(mintScope) ? resource : [...audience, ...resource]
    if (targets.every((target) => target.replace(/\/+$/, '') === issuer)) return
    throw new DomainError('TARGET_INVALID', `audience and resource may only name ${issuer}`)
  }

  const grants: Readonly<Record<string, (asked: Asked) => Promise<object>>> = {
    client_credentials: machine,
    authorization_code: code,
    refresh_token: refresh,
    [`${urn}device_code`]: device,
    [`${urn}token-exchange`]: exchange,
  }

  async function answer(request: FastifyRequest, form: Form) {
    const grant = Object.hasOwn(grants, form.grant_type) ? grants[form.grant_type] : undefined
    if (!grant)
      throw new DomainError(
        'GRANT_TYPE_UNSUPPORTED',
        `grant_type must be one of: ${Object.keys(grants).join(', ')}`,
      )
    return grant({
      form,
      auth: readClientAuth(request.raw.rawHeaders, form),
      correlationId: request.correlationId,
    })
  }

  /** The app-scoped endpoint: core looks at everything in its order, the app first. */
  async function answerForApp(request: FastifyRequest, clientId: string, form: Exchange) {
    const { correlationId } = request
    const auth = readClientAuth(request.raw.rawHeaders, form)
    const calls = core.callsFor({ authorization: optional(auth), correlationId })
    return toExchanged(
      await calls.grants.exchange({ ...exchangeOf(form), clientId }),
      correlationId,
    )
  }

  return { answer, answerForApp, grantTypes: Object.keys(grants) }
}

const exchangeOf = (form: Exchange) => ({
  subjectToken: form.subject_token ?? '',
  subjectTokenType: form.subject_token_type ?? '',
  requestedTokenType: form.requested_token_type,
  audiences: form.audience ?? [],
  resources: form.resource ?? [],
  scope: form.scope,
  grantType: form.grant_type,
})

type Text =
  'external_user_id' | 'device_code' | 'code' | 'redirect_uri' | 'code_verifier' | 'refresh_token'

function needed(form: Form, name: Text): string {
  const value = form[name]
  if (value === undefined || value.trim() === '')
    throw new DomainError('REQUEST_INVALID', `${name} is required`)
  return value
}

const toExchanged = (token: ExchangeTokenResponse, correlationId: string) => ({
  ...toToken(token, correlationId),
  issued_token_type: token.issuedTokenType,
  ...(token.session ? toSession(token.session) : {}),
})

const safeMax = BigInt(Number.MAX_SAFE_INTEGER)

/** What a signer session tells beside its token: the specification's names, and those that clients read. */
export function toSession(facts: SignerSessionFacts) {
  const balance = BigInt(facts.balanceUsdMicros)
  return {
    ...(facts.signerUrl === ''
      ? {}
      : { signer_url: facts.signerUrl, discovery_url: facts.discoveryUrl }),
    has_access: facts.hasAccess,
    balance_usd_micros: Number(balance > safeMax ? safeMax : balance),
    balanceUsdMicros: facts.balanceUsdMicros,
    lifetimeGrantedUsdMicros: facts.lifetimeGrantedUsdMicros,
  }
}

function toLogin(tokens: LoginTokens | undefined, correlationId: string) {
  const { idToken, refreshToken, ...token } = present(tokens, 'tokens')
  return {
    ...toToken(token, correlationId),
    ...(idToken === undefined ? {} : { id_token: idToken }),
    ...(refreshToken === undefined ? {} : { refresh_token: refreshToken }),
  }
}
