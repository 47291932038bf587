import type { FastifyRequest } from 'fastify'
import { DomainError, type Reason } from '../../proto/errors.ts'
import type { Core } from '../core/client.ts'
import { textMember } from '../http/body.ts'
import { isBearer } from '../http/headers.ts'
import { type Guard, type GuardKind, takesM2m, takesSession } from '../http/route.ts'
import { bearerToken, readAuthorization } from './credentials.ts'
import { requireSameOrigin, readSession } from './session.ts'

export interface CredentialDeps {
  readonly core: Core
  readonly publicUrl: string
  /**
   * Whether to forward a user's Bearer to core. Default: always. If false, the credential is
   * dropped here.
   */
  readonly takesUser?: ((token: string | undefined) => boolean) | undefined
}

/**
 * Reads the credential that the route's guard takes and stores it on the request for core to check.
 * Rejects what needs no call to core: several Authorization headers, a missing Bearer key, a
 * cross-site change.
 */
export async function readCredential(request: FastifyRequest, deps: CredentialDeps): Promise<void> {
  const guard = request.routeOptions.config.rules?.guard
  if (guard === undefined || guard.kind === 'none') return
  const { correlationId } = request
  const authorization = authorizationOf(request, guard)
  if (takesSession(guard.kind) && (!takesM2m(guard.kind) || authorization === undefined)) {
    const session = readSession(request, deps.publicUrl)
    request.credential = { session, self: selfAppOf(request, guard), correlationId }
    if (session !== undefined) return requireOwnPage(request, { ...deps, session })
    if (needsSession.has(guard.kind)) throw new DomainError('TOKEN_INVALID', 'log in first')
    return undefined
  }
  request.credential = { authorization: takenOf(authorization, guard, deps), correlationId }
  if (guard.kind === 'key' && (authorization === undefined || !isBearer(authorization))) {
    throw new DomainError('CREDENTIAL_INVALID', 'send the API key as Bearer')
  }
}

/**
 * The app as whose end user the session's account calls; undefined on routes of other kinds. An id
 * that no app has may not fit a header, so core gets another that no app has.
 */
function selfAppOf({ params }: FastifyRequest, { kind }: Guard): string | undefined {
  if (kind !== 'self') return undefined
  const clientId = textMember(params, 'clientId') ?? ''
  return /^\w+$/.test(clientId) ? clientId : 'unknown'
}

/** Kinds that answer 401 without a session. */
const needsSession = new Set<GuardKind>([
  'session',
  'self',
  'platform_admin',
  'member_read',
  'member_edit',
  'member_own',
])

// Core answers 404, as to any wrong credential on these routes.
const unreadable = 'Basic Og=='

function authorizationOf({ raw }: FastifyRequest, { kind }: Guard): string | undefined {
  try {
    return readAuthorization(raw.rawHeaders)
  } catch (error) {
    if (kind !== 'hidden_m2m_or_member') throw error
    return unreadable
  }
}

const takenOf = (
  authorization: string | undefined,
  { kind }: Guard,
  { takesUser }: CredentialDeps,
): string | undefined =>
  kind !== 'actor' || takesUser === undefined || takesUser(bearerToken(authorization))
    ? authorization
    : undefined

/** A change authenticated by cookie must also come from our own pages and carry the CSRF token. */
async function requireOwnPage(
  request: FastifyRequest,
  { core, publicUrl, session }: { core: Core; publicUrl: string; session: string },
): Promise<void> {
  if (request.method === 'GET' || request.method === 'HEAD') return
  const calls = core.callsFor({ correlationId: request.correlationId })
  const answer = await calls.accounts.getSession({ sessionToken: session })
  requireSameOrigin(request, { publicUrl, csrfToken: answer.session?.csrfToken ?? '' })
}

/**
 * Returns core's refusal of the caller, which precedes any other refusal of the request (decision
 * 13). Returns null if core accepts the caller or has already checked it, or if `reason` precedes
 * that check: a malformed credential, a rate limit, a forbidden origin, or an internal error.
 */
export async function refusalOfCaller(
  request: FastifyRequest,
  { reason }: DomainError,
): Promise<DomainError | null> {
  const { guard, metered } = request.routeOptions.config.rules ?? {}
  const isDecided = reasonsBeforeCaller.has(reason) || request.core.hasCalled
  if (guard === undefined || isDecided || !isCheckedByCore(guard)) return null
  const clientId = textMember(request.params, 'clientId')
  // The builder API reports the missing app id first, so there is nothing to check in core.
  if (guard.kind === 'actor' && clientId === '') return null
  try {
    await request.core.callers.checkCaller({
      kind: guard.kind,
      clientId,
      scope: guard.scope,
      metered,
    })
    return null
  } catch (error) {
    return error instanceof DomainError ? error : null
  }
}

/**
 * Adds a hint to the 404 when a client's credential was sent to a route that takes only a session.
 * The hint depends on the request and not on the app, so it does not reveal whether the app exists.
 */
export function explainRefusal(
  { routeOptions, headers, credential }: FastifyRequest,
  error: DomainError,
): DomainError {
  const { kind = 'none' } = routeOptions.config.rules?.guard ?? {}
  const isHidden = kind === 'hidden_member_read' || kind === 'hidden_member_edit'
  const isClient = headers.authorization !== undefined && credential.session === undefined
  return isHidden && isClient && error.reason === 'NOT_FOUND'
    ? new DomainError('NOT_FOUND', sessionNeeded, { cause: error })
    : error
}

const sessionNeeded =
  'this route does not accept client credentials; it needs the session of a member of the app: log in with POST /login, then read the CSRF token from GET /api/v1/session'

// Rate limits protect core, so they precede the credential check. Malformed credentials never reach
// core.
const reasonsBeforeCaller = new Set<Reason>([
  'CREDENTIAL_INVALID',
  'TOKEN_INVALID',
  'INTERNAL',
  'ORIGIN_FORBIDDEN',
  'RATE_LIMITED',
  'URI_TOO_LONG',
  'HEADERS_TOO_LARGE',
])

const isCheckedByCore = ({ kind }: Guard): boolean =>
  kind !== 'key' && kind !== 'client' && kind !== 'secret' && kind !== 'none'
