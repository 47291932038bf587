import { DomainError } from '../../../proto/errors.ts'
import type {
  ExchangeTokenRequest,
  ExchangeTokenResponse,
} from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import { toSeconds } from '../../lib/time.ts'
import { joinGrants } from '../../shared/lineage/grants.ts'
import type { Shared } from '../../shared/shared.ts'
import type { ClientCaller, M2mCaller } from '../../rpc/callers.ts'
import type { Context } from '../../rpc/serve.ts'
import type { Devices } from '../devices/devices.ts'
import { readLineage } from '../issuer/jwt.ts'
import type { SignerSessions } from '../sessions/signer-sessions.ts'
import {
  type ExchangeSubjectsDeps,
  type Parties,
  asInvalidGrant,
  createExchangeSubjects,
  keyTypes,
  noSuchApp,
  requireSigning,
} from './exchange-subjects.ts'
import type { ExchangeAttempt, ExchangeAudit } from './exchange-audit.ts'
import { type SignerTokens, requireTargets, signerTargets } from './signer-token.ts'

const subjectTypes: readonly string[] = [TokenType.jwt, TokenType.accessToken, ...keyTypes]

/** Subject token types in the builder API's specification. */
export const builderSubjectTypes: readonly string[] = [TokenType.accessToken, ...keyTypes]

const deviceResource = /^urn:(?:svc|pmth):device_code:(.*)$/

type Deps = Shared &
  ExchangeSubjectsDeps & {
    readonly issuer: string
    readonly clients: Pick<Clients, 'findPublic'>
    readonly sessions: SignerSessions
    readonly devices: Devices
    readonly signerTokens: SignerTokens
    readonly exchangeAudit: ExchangeAudit
  }

interface Exchange extends Parties {
  readonly request: ExchangeTokenRequest
  readonly attempt: ExchangeAttempt
}

/**
 * Token exchange (RFC 8693). The checks run in the order of docs/tokens.md, because the first
 * failure decides the response.
 */
export function createTokenExchange(deps: Deps) {
  const { issuer, clients, sessions, devices, signerTokens, exchangeAudit, now } = deps
  const { isKey, ownerOf, userOf } = createExchangeSubjects(deps)

  async function exchange(
    request: ExchangeTokenRequest,
    credentials: ClientCaller,
    context: Context,
  ): Promise<ExchangeTokenResponse> {
    const app = request.clientId === undefined ? null : { clientId: request.clientId }
    const client = app && (await clients.findPublic(app.clientId))
    const { anonymous, caller } = await exchangeAudit.begin(client, context, () =>
      authenticate(request, credentials),
    )
    const attempt = caller
      ? {
          ...anonymous,
          appId: caller.appId,
          actor: { name: caller.m2mClientId, context },
          isAnonymous: false,
        }
      : anonymous
    return choose({ request, app, caller, attempt })
  }

  /** Chooses the kind of credential that is issued for the subject token (decision 12). */
  function choose(exchange: Exchange): Promise<ExchangeTokenResponse> {
    const { request, app, caller, attempt } = exchange
    const userCode = app ? undefined : userCodeOf(request.resources)
    if (userCode !== undefined) {
      const approval = { ...attempt, action: 'device_code_approved_token_exchange' }
      return exchangeAudit.record(approval, () => approveDevice(exchange, userCode))
    }
    if (caller && !app && !isKey(request) && request.requestedTokenType !== TokenType.jwt) {
      return openSession(exchange, caller).catch((error: unknown) => {
        const opening = { ...attempt, action: 'signer_session_token_exchange' }
        exchangeAudit.recordRefusal(opening, error)
        throw error
      })
    }
    return exchangeAudit.record(attempt, (decided) => issueSignerToken(exchange, decided))
  }

  /** Exchanges a user JWT for an opaque signer session. */
  async function openSession(
    { request, attempt }: Exchange,
    caller: M2mCaller,
  ): Promise<ExchangeTokenResponse> {
    requireScope(caller, [Scope.usersToken])
    requireRequested(request.requestedTokenType, [TokenType.accessToken])
    requireTargets([...request.resources, ...request.audiences], [issuer])
    const subject = await userOf(request.subjectToken, { app: null, caller })
    requireSigning(subject.jwt.scopes, request.scope)
    const session = await signerTokens.sessionOf(subject.caller)
    const { token, expiresIn, scope } = await sessions
      .open(
        subject.user,
        {
          label: 'signer_session_token_exchange',
          grants: joinGrants(readLineage(subject.jwt), caller.grants),
        },
        attempt.actor,
      )
      .catch(asInvalidGrant)
    return {
      accessToken: token,
      tokenType: 'Bearer',
      issuedTokenType: TokenType.accessToken,
      expiresIn,
      scope,
      session,
    }
  }

  /** Exchanges a key or a user JWT for a signer JWT with the balance of its user. */
  async function issueSignerToken(
    { request, app, caller }: Exchange,
    decided: () => void,
  ): Promise<ExchangeTokenResponse> {
    requireRequested(
      request.requestedTokenType,
      app ? [TokenType.accessToken] : [TokenType.accessToken, TokenType.jwt],
    )
    requireTargets([...request.resources, ...request.audiences], signerTargets(issuer))
    const { subject, notAfter } = await ownerOf(request, { app, caller })
    const issued = await signerTokens.issue(subject, { notAfter, decided })
    return { ...issued, issuedTokenType: request.requestedTokenType ?? TokenType.accessToken }
  }

  /**
   * Approves a device for the user of the subject token. The response contains the subject token
   * itself.
   */
  async function approveDevice(
    { request, caller, attempt }: Exchange,
    code: string,
  ): Promise<ExchangeTokenResponse> {
    if (!caller) throw new DomainError('CREDENTIAL_INVALID', 'send the M2M client id and secret')
    requireScope(caller, [Scope.deviceApprove, Scope.usersToken])
    if (request.subjectTokenType !== TokenType.accessToken) {
      throw new DomainError(
        'TOKEN_TYPE_UNSUPPORTED',
        `subject_token_type must be ${TokenType.accessToken}`,
      )
    }
    requireRequested(request.requestedTokenType, [TokenType.accessToken])
    requireTargets(request.audiences, [issuer])
    if (request.resources.length > 1 || code.trim() === '') {
      throw new DomainError('TARGET_INVALID', 'resource must name one device code')
    }
    const { jwt, user } = await userOf(request.subjectToken, { app: null, caller })
    const grants = joinGrants(readLineage(jwt), caller.grants)
    const approval = { userCode: code, clientId: caller.clientId, grants }
    await devices.approveFor(user, approval, attempt.actor)
    return {
      accessToken: request.subjectToken,
      tokenType: 'Bearer',
      issuedTokenType: TokenType.accessToken,
      expiresIn: jwt.exp - toSeconds(now()),
      scope: jwt.scopes.join(' '),
      session: undefined,
    }
  }

  return { exchange }
}

export type TokenExchange = ReturnType<typeof createTokenExchange>

/**
 * Checks the request, then the client's credentials. Throws NOT_FOUND for a wrong app only after
 * the client has authenticated.
 */
async function authenticate(
  request: ExchangeTokenRequest,
  credentials: ClientCaller,
): Promise<M2mCaller | null> {
  if (request.clientId !== undefined) requireGrantType(request.grantType)
  requireSubject(request, subjectTypes)
  const caller = await credentials.authenticate()
  if (request.clientId !== undefined && caller && caller.clientId !== request.clientId)
    throw noSuchApp()
  return caller
}

/** Returns the device's user code from the resources; undefined if they name no device. */
const userCodeOf = (resources: readonly string[]): string | undefined =>
  resources
    .map((resource) => deviceResource.exec(resource)?.[1])
    .find((userCode) => userCode !== undefined)

export function requireGrantType(grantType: string | undefined): void {
  if (grantType !== GrantType.tokenExchange)
    throw new DomainError('REQUEST_INVALID', `grant_type must be ${GrantType.tokenExchange}`)
}

export function requireSubject(
  {
    subjectToken,
    subjectTokenType,
  }: Pick<ExchangeTokenRequest, 'subjectToken' | 'subjectTokenType'>,
  types: readonly string[],
): void {
  if (subjectToken.trim() === '')
    throw new DomainError('REQUEST_INVALID', 'subject_token is required')
  if (!types.includes(subjectTokenType)) {
    throw new DomainError(
      'TOKEN_TYPE_UNSUPPORTED',
      `subject_token_type must be ${TokenType.accessToken}`,
    )
  }
}

function requireScope(caller: M2mCaller, anyOf: readonly string[]): void {
  if (anyOf.some((scope) => caller.scopes.includes(scope))) return
  throw new DomainError('CLIENT_SCOPE_MISSING', `the client lacks the scope ${anyOf.join(' or ')}`)
}

export function requireRequested(type: string | undefined, allowed: readonly string[]): void {
  if (type === undefined || allowed.includes(type)) return
  throw new DomainError(
    'REQUEST_INVALID',
    `requested_token_type must be ${allowed.join(' or ')}, or be left out`,
  )
}
