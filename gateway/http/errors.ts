import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { type Page, html, sendPage } from './page.ts'
import { isBearer, wantsPage } from './headers.ts'
import type { Guard, GuardKind, Wire } from './route.ts'

/** The detail of INTERNAL. Only this module writes error bodies. */

const internalDetail = 'the service has an internal error; it is logged under the correlation id'

export interface ErrorContext {
  readonly error: DomainError
  readonly wire: Wire
  readonly correlationId: string
  readonly publicUrl: string
}

/**
 * Returns the `type` of a reason's problem documents, which is also the URL of the page about it
 * (pages/errors.ts).
 */
export const problemType = (reason: Reason, publicUrl: string): string =>
  `${publicUrl}/problems/${reason.toLowerCase().replaceAll('_', '-')}`

/**
 * Returns status, content type and body of an error. The message of INTERNAL goes only to the log.
 */
export function renderError({ error, wire, correlationId, publicUrl }: ErrorContext) {
  const { http: status, title, oauth } = reasons[error.reason]
  const detail = error.reason === 'INTERNAL' ? internalDetail : error.message
  if (wire === 'oauth') {
    const body = { error: oauth, error_description: detail, correlation_id: correlationId }
    return { status, type: 'application/json', body }
  }
  const code = error.reason.toLowerCase()
  const type = problemType(error.reason, publicUrl)
  const standard = { type, title, status, detail, code, error: code }
  const body = { ...error.members, ...standard, correlation_id: correlationId }
  return { status, type: 'application/problem+json', body }
}

/** Renders an error as an HTML page. */
export function errorPage({ reason, message }: DomainError, correlationId: string): Page {
  const { http: status, title } = reasons[reason]
  const detail = reason === 'INTERNAL' ? internalDetail : message
  const sentence = `${detail[0]?.toUpperCase() ?? ''}${detail.slice(1)}.`
  return {
    title,
    status,
    referrerPolicy: 'no-referrer',
    content: html`<h1>The request failed</h1><p class="problem" role="alert">${sentence}</p>
<a class="button quiet" href="/">To the start</a>
<p class="small"><a href="/errors/${reason.toLowerCase()}">${title} (${status})</a>. If you report this problem, include this id: ${correlationId}</p>`,
  }
}

/** Sends an error with its status headers: to a browser as a page, to any other client as JSON. */
export function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  { error, publicUrl }: { readonly error: DomainError; readonly publicUrl: string },
): FastifyReply {
  const { guard, wire = 'problem' } = request.routeOptions.config.rules ?? {}
  const refusal = guard?.kind === 'key' ? asInvalidClient(error) : error
  const { correlationId } = request
  const { status, type, body } = renderError({ error: refusal, wire, correlationId, publicUrl })
  request.reason = refusal.reason
  writeStatusHeaders(request, reply, refusal)
  // RFC 6749 section 5.2 allows only JSON.
  if (wire !== 'oauth' && wantsPage(request.headers.accept, false)) {
    void reply.header('vary', 'Origin, Accept')
    return sendPage(reply, errorPage(refusal, correlationId))
  }
  return reply.code(status).type(type).header('cache-control', 'no-store').send(body)
}

const retrySeconds: Readonly<Record<number, string>> = { 429: '60', 503: '1' }

/** Adds the headers that a status requires, unless they are already set. */
function writeStatusHeaders(
  request: FastifyRequest,
  reply: FastifyReply,
  refusal: DomainError,
): void {
  const status = reasons[refusal.reason].http
  const { guard } = request.routeOptions.config.rules ?? {}
  if (status === 401 && !reply.hasHeader('www-authenticate'))
    void reply.header('www-authenticate', challengesOf(request, guard, refusal))
  // RFC 6750 section 3: a token without the scope also gets a challenge.
  if (refusal.reason === 'SCOPE_MISSING' && isBearer(request.headers.authorization ?? ''))
    void reply.header('www-authenticate', 'Bearer realm="tollgate", error="insufficient_scope"')
  const retryAfter = retrySeconds[status]
  if (retryAfter !== undefined && !reply.hasHeader('retry-after'))
    void reply.header('retry-after', retryAfter)
  // The rest of an oversized body is not read.
  if (status === 413 || status === 431) void reply.header('connection', 'close')
}

// All refusals of a key look alike, so that they do not reveal whether it is unknown, revoked or
// its user inactive.
function asInvalidClient(error: DomainError): DomainError {
  if (reasons[error.reason].http !== 401) return error
  return new DomainError('CREDENTIAL_INVALID', 'the API key is not valid', { cause: error })
}

type Scheme = 'basic' | 'bearer' | 'cookie'

const basicChallenge = 'Basic realm="tollgate", charset="UTF-8"'
const cookieChallenge = 'Cookie realm="tollgate"'

/** Authentication schemes of a guard, if not only Bearer. */
const schemes: Partial<Record<GuardKind, readonly Scheme[]>> = {
  session: ['cookie'],
  self: ['cookie'],
  member_read: ['cookie'],
  member_edit: ['cookie'],
  member_own: ['cookie'],
  hidden_member_read: ['cookie'],
  hidden_member_edit: ['cookie'],
  client: ['basic'],
  provisioner: ['basic'],
  m2m_basic: ['basic'],
  m2m: ['basic', 'bearer'],
  m2m_or_member: ['basic', 'bearer'],
  hidden_m2m_or_member: ['basic', 'bearer'],
  m2m_or_editor: ['basic', 'bearer'],
}

function challengesOf(
  request: FastifyRequest,
  guard: Guard | undefined,
  error: DomainError,
): string[] {
  // RFC 6750 section 3.1: a request without a credential gets no error code.
  const invalid = error.reason === 'TOKEN_INVALID' && request.headers.authorization !== undefined
  const challenges = {
    basic: basicChallenge,
    bearer: `Bearer realm="tollgate"${invalid ? ', error="invalid_token"' : ''}`,
    cookie: cookieChallenge,
  }
  return (schemes[guard?.kind ?? 'none'] ?? ['bearer']).map((scheme) => challenges[scheme])
}
