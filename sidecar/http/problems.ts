import type { ServerResponse } from 'node:http'
import { type Reason, reasons } from '../../proto/errors.ts'

/** A problem document (RFC 9457) without the members that differ between requests. */
export interface Problem {
  readonly reason: Reason
  readonly detail: string
  readonly headers?: Readonly<Record<string, string>>
}

const retry = (seconds: number) => ({ 'retry-after': String(seconds) })

export const problems = {
  unauthorized: {
    reason: 'CREDENTIAL_INVALID',
    detail: 'the webhook secret is missing or wrong',
    headers: { 'www-authenticate': 'Bearer' },
  },
  guesses: {
    reason: 'RATE_LIMITED',
    detail: 'too many wrong webhook secrets from this address; try again in a minute',
    headers: retry(60),
  },
  busy: { reason: 'UNAVAILABLE', detail: 'too many pushes at once', headers: retry(1) },
  coreAway: {
    reason: 'UNAVAILABLE',
    detail: 'events cannot be stored now; send them again',
    headers: retry(2),
  },
  spoolUnavailable: {
    reason: 'SPOOL_UNAVAILABLE',
    detail: 'the spool accepts no events now; send them again later',
    headers: retry(5),
  },
  encoded: { reason: 'MEDIA_TYPE_UNSUPPORTED', detail: 'send the body without Content-Encoding' },
  bodyTooLarge: {
    reason: 'BODY_TOO_LARGE',
    detail: 'the body is larger than 4 MiB; send fewer events at once',
  },
  envelopeTooLarge: { reason: 'BODY_TOO_LARGE', detail: 'an envelope is larger than 2 MiB' },
  tooMany: { reason: 'BODY_TOO_LARGE', detail: 'an array may hold at most 1000 envelopes' },
  tooManyLines: {
    reason: 'BODY_TOO_LARGE',
    detail: 'a push may hold at most 10000 events; send fewer at once',
  },
  empty: { reason: 'REQUEST_INVALID', detail: 'the body holds no event' },
  notJson: { reason: 'REQUEST_INVALID', detail: 'the body starts as a JSON array but is not one' },
  notFound: {
    reason: 'NOT_FOUND',
    detail: 'the routes are POST /authorize, POST /events, GET /health, /healthz and /readyz',
  },
} as const satisfies Record<string, Problem>

/** 405 for a known route, with its methods. */
export const wrongMethod = (allowed: string): Problem => ({
  reason: 'METHOD_NOT_ALLOWED',
  detail: `use ${allowed}`,
  headers: { allow: allowed },
})

/** Writes the problem and ends the response. */
export function sendProblem(
  response: ServerResponse,
  problem: Problem,
  correlationId: string,
): void {
  writeProblem(response, problem, correlationId)
  response.end()
}

/** Writes the whole problem without ending the response, for a request that is still being read. */
export function writeProblem(
  response: ServerResponse,
  problem: Problem,
  correlationId: string,
): void {
  const { reason, detail, headers } = problem
  const { http: status, title } = reasons[reason]
  const code = reason.toLowerCase()
  const body = JSON.stringify({
    type: 'about:blank',
    title,
    status,
    detail,
    code,
    error: code,
    correlation_id: correlationId,
  })
  response.writeHead(status, {
    'content-type': 'application/problem+json',
    'content-length': Buffer.byteLength(body),
    'x-correlation-id': correlationId,
    ...headers,
  })
  response.write(body)
}
