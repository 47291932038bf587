import { parseJson } from '../../../lib/json.ts'
import { readBounded, toReason } from '../../../lib/text/fetch.ts'

/**
 * A response of Auth0, or the reason why there is no response. `why` never contains a credential.
 */
export type HttpAnswer =
  | {
      readonly status: number
      /** Undefined if the body is not JSON. */
      readonly body: unknown
      /** Milliseconds to pause all requests; null if the response demands no pause. */
      readonly pauseMs: number | null
    }
  | { readonly status: null; readonly why: string }

export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PATCH'
  /** Already percent-encoded. */
  readonly path: string
  readonly body?: Readonly<Record<string, unknown>>
  readonly token?: string
  readonly timeoutMs: number
}

const maxAnswerBytes = 1024 * 1024

/**
 * Sends a request to Auth0 with a time limit and a bounded response. Does not follow redirects.
 * Never throws.
 */
export async function sendToAuth0(
  origin: string,
  { method, path, body, token, timeoutMs }: HttpRequest,
): Promise<HttpAnswer> {
  const signal = AbortSignal.timeout(Math.ceil(Math.max(timeoutMs, 1)))
  try {
    const response = await fetch(origin + path, {
      method,
      signal,
      redirect: 'manual',
      headers: {
        accept: 'application/json',
        'user-agent': 'tollgate',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await readBounded(response.body, maxAnswerBytes)
    if (text === null) return { status: null, why: `answered more than ${maxAnswerBytes} bytes` }
    const { status, headers } = response
    return { status, body: parseJson(text), pauseMs: pauseOf(status, headers) }
  } catch (error) {
    return { status: null, why: signal.aborted ? 'no answer in time' : toReason(error) }
  }
}

const pauseMaxMs = 60_000

/**
 * Reads the pause from Retry-After in seconds, or from X-RateLimit-Reset, a time in Unix seconds.
 * Compares the latter with the response's Date, because clocks differ. A response that uses up the
 * budget counts as a 429.
 */
function pauseOf(status: number, headers: Headers): number | null {
  const isSpent = status === 429 || numberOf(headers, 'x-ratelimit-remaining') === 0
  if (!isSpent) return null
  const seconds = numberOf(headers, 'retry-after') ?? untilReset(headers)
  return seconds === null ? null : Math.min(Math.max(seconds, 0) * 1000, pauseMaxMs)
}

function untilReset(headers: Headers): number | null {
  const reset = numberOf(headers, 'x-ratelimit-reset')
  if (reset === null) return null
  const date = Date.parse(headers.get('date') ?? '')
  return reset - Math.floor((Number.isNaN(date) ? Date.now() : date) / 1000)
}

function numberOf(headers: Headers, name: string): number | null {
  const text = headers.get(name)
  return text !== null && /^\d{1,12}$/.test(text) ? Number(text) : null
}
