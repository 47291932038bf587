import { parseJson } from '../../../lib/json.ts'
import { currentValue } from '../../../lib/settings/reloadable.ts'
import { readBounded, toReason } from '../../../lib/text/fetch.ts'
import type { OpenMeterConfig } from '../config.ts'

export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** Path below the configured address, already encoded. */
  readonly path: string
  readonly query?: Readonly<Record<string, string>>
  /** The body, sent unchanged. */
  readonly text?: string
  readonly contentType?: string
  readonly signal?: AbortSignal | undefined
}

/** A response, or the reason why there is none. `why` never contains a credential. */
export type HttpAnswer =
  | { readonly status: number; readonly body: unknown; readonly retryAfterMs: number | undefined }
  | { readonly status: null; readonly kind: 'away' | 'broken'; readonly why: string }

const maxAnswerBytes = 32 * 1024 * 1024

/** Sends requests with a time limit and a bounded response. Never throws. */
export function createHttp({ url, apiKey, timeoutMs }: OpenMeterConfig) {
  return async ({
    method,
    path,
    query,
    text,
    contentType = 'application/json',
    signal,
  }: HttpRequest): Promise<HttpAnswer> => {
    const search = query === undefined ? '' : `?${new URLSearchParams(query)}`
    const limit = AbortSignal.timeout(timeoutMs)
    const key = currentValue(apiKey)
    try {
      const response = await fetch(`${url}${path}${search}`, {
        method,
        redirect: 'manual',
        signal: signal ? AbortSignal.any([limit, signal]) : limit,
        headers: {
          accept: 'application/json, application/problem+json',
          'user-agent': 'tollgate',
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
          ...(text === undefined ? {} : { 'content-type': contentType }),
        },
        ...(text === undefined ? {} : { body: text }),
      })
      const answer = await readBounded(response.body, maxAnswerBytes)
      if (answer === null)
        return { status: null, kind: 'broken', why: `answered more than ${maxAnswerBytes} bytes` }
      return {
        status: response.status,
        body: parseJson(answer),
        retryAfterMs: retryAfter(response.headers.get('retry-after')),
      }
    } catch (error) {
      return {
        status: null,
        kind: 'away',
        why: limit.aborted ? `no answer within ${timeoutMs} ms` : toReason(error),
      }
    }
  }
}

const retryAfterMaxSeconds = 3_600

/**
 * Parses Retry-After (RFC 9110 section 10.2.3) in whole seconds; undefined for a date, so that our
 * own back-off applies.
 */
function retryAfter(value: string | null): number | undefined {
  const seconds = value !== null && /^\d{1,9}$/.test(value) ? Number(value) : null
  return seconds === null ? undefined : Math.min(seconds, retryAfterMaxSeconds) * 1000
}

/** A failed request. */
export interface Failure {
  /**
   * - `away`: no response, or a temporary rejection.
   * - `misconfigured`: wrong address or key; an operator must correct it.
   * - `refused`: the backend rejects the content of this request.
   * - `broken`: the backend failed while handling it.
   */
  readonly kind: 'away' | 'misconfigured' | 'refused' | 'broken'
  readonly why: string
  readonly status: number | null
  readonly retryAfterMs: number | undefined
}

const temporary = new Set([408, 425, 429, 502, 503, 504])
const misconfigured = new Set([401, 403, 404, 405, 407])

/** Returns null for a successful response. */
export function toFailure(answer: HttpAnswer): Failure | null {
  if (answer.status === null)
    return { kind: answer.kind, why: answer.why, status: null, retryAfterMs: undefined }
  const { status, body, retryAfterMs } = answer
  if (status >= 200 && status < 300) return null
  const kind = temporary.has(status)
    ? 'away'
    : misconfigured.has(status) || status < 400
      ? 'misconfigured'
      : status >= 500
        ? 'broken'
        : 'refused'
  return { kind, why: `${hint(status)}${detailOf(body)}`, status, retryAfterMs }
}

function hint(status: number): string {
  if (status === 401 || status === 403) return `answered ${status}; check OPENMETER_API_KEY`
  if (status === 404 || status === 405 || status < 400)
    return `answered ${status}; check OPENMETER_URL`
  return `answered ${status}`
}

const detailLength = 300

// Returns the detail of a problem document (RFC 9457), bounded and without control characters.
function detailOf(body: unknown): string {
  const detail =
    typeof body === 'object' && body !== null && 'detail' in body ? body.detail : undefined
  return typeof detail === 'string'
    ? `: ${detail.replace(/\p{Cc}+/gu, ' ').slice(0, detailLength)}`
    : ''
}

/** A failure without an answer; callers add the reason. */
export const away: Omit<Failure, 'why'> = { kind: 'away', status: null, retryAfterMs: undefined }

/** The failure of an answer that OpenMeter would not give. */
export const strange = (what: string): Failure => ({
  kind: 'broken',
  why: `${what} is not a response of OpenMeter; check OPENMETER_URL`,
  status: null,
  retryAfterMs: undefined,
})
