import { DomainError } from '../../../proto/errors.ts'
import type {
  ExchangeTokenRequest,
  ExchangeTokenResponse,
} from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import type { ClientCaller, M2mCaller } from '../../rpc/callers.ts'
import { appId, isClientId } from '../../platform/ids.ts'
import { type Keys, parseKey } from '../../keys/service.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, secondsOf } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import { findPublicClient } from '../login/client-store.ts'
import type { Devices } from '../devices/devices.ts'
import type { SignerSessions } from '../sessions/signer-sessions.ts'
import type { Subjects, UserToken } from '../subjects.ts'
import type { Attempt, Journal } from './journal.ts'
import {
  type SignerSubject,
  type SignerTokens,
  accessTokenType,
  jwtTokenType,
  requireTargets,
  signerTargets,
} from './signer-token.ts'

const grantType = 'urn:ietf:params:oauth:grant-type:token-exchange'
const keyTypes = ['urn:svc:oauth:token-type:api_key', 'urn:pymthouse:oauth:token-type:api_key']
const deviceResource = /^urn:(?:svc|pmth):device_code:(.*)$/

export interface TokenExchangeDeps {
  readonly issuer: string
  readonly pool: Pool
  readonly keys: Keys
  readonly subjects: Subjects
  readonly sessions: SignerSessions
  readonly devices: Devices
  readonly signerTokens: SignerTokens
  readonly journal: Journal
  readonly now: Now
}

interface Exchange {
  readonly request: ExchangeTokenRequest
  /** The app that the route names, whether there is one or not; null at the issuer's endpoint. */
  readonly app: { readonly clientId: string } | null
  readonly caller: M2mCaller | null
  readonly attempt: Attempt
}

/** RFC 8693: which of its answers is asked for, checked in the order of identity facts 6.2. */
export function createTokenExchange(deps: TokenExchangeDeps) {
  const { issuer, pool, keys, subjects, sessions, devices, signerTokens, journal, now } = deps

  async function exchange(
    request: ExchangeTokenRequest,
    client: ClientCaller,
    context: Context,
  ): Promise<ExchangeTokenResponse> {
    const app = request.clientId === undefined ? null : { clientId: request.clientId }
    const known =
      app && isClientId(app.clientId) ? await findPublicClient(pool, app.clientId) : null
    const opened: Attempt = {
      appId: known && appId(known.app_id),
      action: 'app_oidc_token_exchange',
      actor: { name: known?.client_id ?? 'unknown', context },
    }
    const start = async () => {
      if (app) requireGrantType(request.grantType)
      requireSubject(request)
      const caller = await client.authenticate()
      if (app && caller && caller.clientId !== app.clientId) throw noSuchApp()
      return caller
    }
    const caller = await start().catch((error: unknown) => {
      journal.refused(opened, error)
      throw error
    })
    const attempt = caller
      ? { ...opened, appId: caller.appId, actor: { name: caller.m2mClientId, context } }
      : opened
    return choose({ request, app, caller, attempt })
  }

  /** Decision 12. */
  function choose(asked: Exchange): Promise<ExchangeTokenResponse> {
    const { request, app, caller, attempt } = asked
    const code = app
      ? undefined
      : request.resources
          .map((resource) => deviceResource.exec(resource)?.[1])
          .find((found) => found !== undefined)
    if (code !== undefined) {
      return journal.both({ ...attempt, action: 'device_code_approved_token_exchange' }, () =>
        approveDevice(asked, code),
      )
    }
    if (caller && !app && !isKey(request) && request.requestedTokenType !== jwtTokenType) {
      return openSession(asked, caller).catch((error: unknown) => {
        journal.refused({ ...attempt, action: 'signer_session_token_exchange' }, error)
        throw error
      })
    }
    return journal.both(attempt, () => envelope(asked))
  }

  /** A user JWT for an opaque signer session (identity facts 2.6). */
  async function openSession(
    { request, attempt }: Exchange,
    caller: M2mCaller,
  ): Promise<ExchangeTokenResponse> {
    requireScope(caller, ['users:token'])
    requireRequested(request.requestedTokenType, [accessTokenType])
    requireTargets([...request.resources, ...request.audiences], [issuer])
    const subject = await userOf(request.subjectToken, { app: null, caller })
    requireSigning(subject.jwt.scopes, request.scope)
    const { token, expiresIn, scope } = await sessions
      .open(subject.user, 'signer_session_token_exchange', attempt.actor)
      .catch(asInvalidGrant)
    return {
      accessToken: token,
      tokenType: 'Bearer',
      issuedTokenType: accessTokenType,
      expiresIn,
      scope,
      session: undefined,
    }
  }

  /** A key or a user JWT for a signer JWT with what is left to spend (identity facts 6). */
  async function envelope({ request, app, caller }: Exchange): Promise<ExchangeTokenResponse> {
    requireRequested(
      request.requestedTokenType,
      app ? [accessTokenType] : [accessTokenType, jwtTokenType],
    )
    requireTargets([...request.resources, ...request.audiences], signerTargets(issuer))
    const { subject, notAfter } = isKey(request)
      ? await keyOwner(request.subjectToken, { app, caller })
      : await tokenOwner(request, { app, caller })
    requireSigning(['sign:job'], request.scope)
    const issued = await signerTokens.issue(subject, notAfter)
    return { ...issued, issuedTokenType: request.requestedTokenType ?? accessTokenType }
  }

  async function keyOwner(
    presented: string,
    asked: Asked,
  ): Promise<{ subject: SignerSubject; notAfter: undefined }> {
    const owner = presented.includes('cs_') ? null : await keys.verify(presented)
    if (!owner) throw invalidSubject()
    requireApp(owner.clientId, asked)
    return { subject: owner, notAfter: undefined }
  }

  async function tokenOwner(request: ExchangeTokenRequest, asked: Asked) {
    const { jwt, user, caller } = await userOf(request.subjectToken, asked)
    requireSigning(jwt.scopes, undefined)
    return { subject: { ...caller, tokensValidAfter: user.tokensValidAfter }, notAfter: jwt.exp }
  }

  /** GRANT_INVALID unless it is a live user JWT of that app; a signer JWT is none, so that nothing renews itself. */
  async function userOf(token: string, asked: Asked): Promise<UserToken> {
    const found = await subjects.userToken(token).catch(asInvalidGrant)
    requireApp(found.caller.clientId, asked)
    return found
  }

  /** The app's backend says who sits before a device; the subject token itself is passed back (facts 3.4). */
  async function approveDevice(
    { request, caller, attempt }: Exchange,
    code: string,
  ): Promise<ExchangeTokenResponse> {
    if (!caller) throw new DomainError('CREDENTIAL_INVALID', 'send the M2M client id and secret')
    requireScope(caller, ['device:approve', 'users:token'])
    if (request.subjectTokenType !== accessTokenType) {
      throw new DomainError(
        'TOKEN_TYPE_UNSUPPORTED',
        `subject_token_type must be ${accessTokenType}`,
      )
    }
    requireRequested(request.requestedTokenType, [accessTokenType])
    requireTargets(request.audiences, [issuer])
    if (request.resources.length > 1 || code.trim() === '') {
      throw new DomainError('TARGET_INVALID', 'resource must name one device code')
    }
    const { jwt, user } = await userOf(request.subjectToken, { app: null, caller })
    await devices.approveFor(user, { userCode: code, clientId: caller.clientId }, attempt.actor)
    return {
      accessToken: request.subjectToken,
      tokenType: 'Bearer',
      issuedTokenType: accessTokenType,
      expiresIn: jwt.exp - secondsOf(now()),
      scope: jwt.scopes.join(' '),
      session: undefined,
    }
  }

  return { exchange }
}

export type TokenExchange = ReturnType<typeof createTokenExchange>

type Asked = Pick<Exchange, 'app' | 'caller'>

/**
 * The route's app may be another's or nobody's: both never match, so that only who belongs to an app learns that it is
 * there (decision 13).
 */
function requireApp(clientId: string, { app, caller }: Asked): void {
  if (app && clientId !== app.clientId) throw noSuchApp()
  if (caller && clientId !== caller.clientId) throw invalidSubject()
}

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')

const isKey = ({ subjectTokenType, subjectToken }: ExchangeTokenRequest): boolean =>
  keyTypes.includes(subjectTokenType) ||
  subjectToken.includes('svc_cs_') ||
  parseKey(subjectToken) !== null

function requireGrantType(given: string | undefined): void {
  if (given !== grantType)
    throw new DomainError('REQUEST_INVALID', `grant_type must be ${grantType}`)
}

function requireSubject({ subjectToken, subjectTokenType }: ExchangeTokenRequest): void {
  if (subjectToken.trim() === '')
    throw new DomainError('REQUEST_INVALID', 'subject_token is required')
  if (subjectTokenType !== accessTokenType && !keyTypes.includes(subjectTokenType)) {
    throw new DomainError('TOKEN_TYPE_UNSUPPORTED', `subject_token_type must be ${accessTokenType}`)
  }
}

function requireScope(caller: M2mCaller, anyOf: readonly string[]): void {
  if (anyOf.some((scope) => caller.scopes.includes(scope))) return
  throw new DomainError('CLIENT_SCOPE_MISSING', `the client lacks the scope ${anyOf.join(' or ')}`)
}

function requireRequested(type: string | undefined, allowed: readonly string[]): void {
  if (type === undefined || allowed.includes(type)) return
  throw new DomainError(
    'REQUEST_INVALID',
    `requested_token_type must be ${allowed.join(' or ')}, or be left out`,
  )
}

function requireSigning(scopes: readonly string[], requested: string | undefined): void {
  if (!scopes.includes('sign:job'))
    throw new DomainError('GRANT_INVALID', 'the subject token lacks the scope sign:job')
  if (requested !== undefined && requested.trim() !== 'sign:job') {
    throw new DomainError('SCOPE_INVALID', 'the only scope of a signer session is sign:job')
  }
}

const invalidSubject = (cause?: unknown): DomainError =>
  new DomainError('GRANT_INVALID', 'the subject token is not valid here, or has expired', { cause })

function asInvalidGrant(error: unknown): never {
  if (
    error instanceof DomainError &&
    (error.reason === 'TOKEN_INVALID' || error.reason === 'NOT_FOUND')
  )
    throw invalidSubject(error)
  throw error
}
