import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError, reasons } from '../../proto/errors.ts'
import { isBearer } from '../auth/credentials.ts'
import type { Guard, RouteRules, Wire } from './route.ts'
import { type ValidationProblem, describeProblem } from './validation.ts'

/** The only writers of error bodies. */

const internalDetail = 'something went wrong here; it has been logged'

export interface Refused {
  readonly error: DomainError
  readonly wire: Wire
  readonly correlationId: string
  readonly publicUrl: string
}

/** Status, content type and body of a refusal; what happened inside stays inside. */
export function renderError({ error, wire, correlationId, publicUrl }: Refused) {
  const row = reasons[error.reason]
  const detail = error.reason === 'INTERNAL' ? internalDetail : error.message
  if (wire === 'oauth') {
    // Clients that provision on demand look for exactly this word (identity facts 5.1).
    const word = error.reason === 'NOT_FOUND' ? 'not_found' : row.oauth
    const body = { error: word, error_description: detail, correlation_id: correlationId }
    return { status: row.http, type: 'application/json', body }
  }
  const code = error.reason.toLowerCase()
  const type = `${publicUrl}/problems/${code.replaceAll('_', '-')}`
  const { http: status, title } = row
  const body = { type, title, status, detail, code, error: code, correlation_id: correlationId }
  return { status, type: 'application/problem+json', body }
}

export interface Refusal {
  readonly error: DomainError
  readonly publicUrl: string
}

/** Sends a refusal with the headers that its status asks for. */
export function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  { error, publicUrl }: Refusal,
): FastifyReply {
  const rules = request.routeOptions.config.rules
  const refusal = rules?.guard.kind === 'key' ? asInvalidClient(error) : error
  const { correlationId } = request
  const { status, type, body } = renderError({
    error: refusal,
    wire: rules?.wire ?? 'problem',
    correlationId,
    publicUrl,
  })
  request.reason = refusal.reason
  if (status === 401)
    void reply.header('www-authenticate', challenges(request, rules?.guard, refusal))
  // RFC 6750 section 3: a token that does not reach is told so too.
  if (refusal.reason === 'SCOPE_MISSING' && isBearer(request.headers.authorization ?? '')) {
    void reply.header('www-authenticate', 'Bearer realm="tollgate", error="insufficient_scope"')
  }
  if (status === 503) void reply.header('retry-after', '1')
  // What is left of the body is not worth reading.
  if (status === 413) void reply.header('connection', 'close')
  return reply.code(status).type(type).header('cache-control', 'no-store').send(body)
}

// A refused key has one answer, whatever was wrong with it (identity facts 5.9).
function asInvalidClient(error: DomainError): DomainError {
  if (reasons[error.reason].http !== 401) return error
  return new DomainError('CREDENTIAL_INVALID', 'the API key is not valid', { cause: error })
}

const basicChallenge = 'Basic realm="tollgate", charset="UTF-8"'

function challenges(
  request: FastifyRequest,
  guard: Guard | undefined,
  error: DomainError,
): string[] {
  // RFC 6750 section 3.1: no error word for who sent no credential.
  const invalid = error.reason === 'TOKEN_INVALID' && request.headers.authorization !== undefined
  const bearer = `Bearer realm="tollgate"${invalid ? ', error="invalid_token"' : ''}`
  if (guard?.kind === 'session' || guard?.kind.startsWith('member_'))
    return ['Cookie realm="tollgate"']
  if (guard?.kind === 'client' || guard?.kind === 'm2m_basic') return [basicChallenge]
  return guard?.kind === 'm2m' || guard?.kind === 'm2m_or_member'
    ? [basicChallenge, bearer]
    : [bearer]
}

interface FrameworkError {
  readonly code?: string
  readonly statusCode?: number
  readonly validation?: readonly ValidationProblem[]
  readonly validationContext?: string
}

/** Whatever was thrown, as a refusal. What is not the caller's fault is INTERNAL with its cause. */
export function toRefusal(
  thrown: Error & FrameworkError,
  rules: RouteRules | undefined,
): DomainError {
  if (thrown instanceof DomainError) return thrown
  const [problem] = thrown.validation ?? []
  if (problem) {
    const { field, says } = describeProblem(problem, thrown.validationContext)
    const isAmount = field !== undefined && rules?.amounts?.includes(field)
    return new DomainError(isAmount ? 'AMOUNT_INVALID' : 'REQUEST_INVALID', says)
  }
  if (thrown.code === 'FST_ERR_CTP_BODY_TOO_LARGE') {
    return new DomainError('BODY_TOO_LARGE', 'the body must be at most 1 MiB')
  }
  if (thrown.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return badMediaType(rules)
  if (thrown.statusCode !== undefined && thrown.statusCode >= 400 && thrown.statusCode < 500) {
    return new DomainError('REQUEST_INVALID', 'the request is malformed', { cause: thrown })
  }
  return new DomainError('INTERNAL', 'the gateway failed', { cause: thrown })
}

function badMediaType(rules: RouteRules | undefined): DomainError {
  return rules?.body === 'form'
    ? new DomainError('REQUEST_INVALID', 'send the body as application/x-www-form-urlencoded')
    : new DomainError('MEDIA_TYPE_UNSUPPORTED', 'send the body as application/json')
}
