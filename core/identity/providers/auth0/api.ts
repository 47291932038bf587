import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError } from '../../../../proto/errors.ts'
import { createKeyedSemaphore } from '../../../lib/concurrency.ts'
import { isObject, readText } from '../../../lib/json.ts'
import type { Log } from '../../../lib/log.ts'
import { backoffMs } from '../../../lib/loop.ts'
import { currentValue } from '../../../lib/settings/reloadable.ts'
import type { Auth0Config } from '../config.ts'
import type { CallBounds } from '../directory.ts'
import { type HttpAnswer, type HttpRequest, sendToAuth0 } from './http.ts'
import { type AccessToken, createTokenCache } from './token.ts'

export type ManagementRequest = Pick<HttpRequest, 'method' | 'path' | 'body'>

/** A response that is neither a temporary failure nor a fault in our settings. */
export interface ManagementAnswer {
  readonly status: number
  readonly body: unknown
}

export interface Auth0Deps {
  readonly config: Auth0Config
  readonly log: Log
}

const requestMs = 5_000
const running = 8
const waiting = 1_000
const backoff = { firstMs: 100, lastMs: 2_000 }
const temporary = new Set([408, 425, 429, 500, 502, 503, 504])
const misconfigured = new Set([401, 403])

/**
 * Client of Auth0's Management API. Renews its token ahead of expiry, limits concurrent requests,
 * respects the rate limits, and retries temporary failures within the caller's bounds. Every
 * request must be safe to repeat. Throws PROVIDER_UNAVAILABLE when no response arrives in time, and
 * for responses that an operator must fix.
 */
export function createManagementApi({ config, log }: Auth0Deps) {
  const places = createKeyedSemaphore({ running, waiting, refusal: () => unavailable() })
  const token = createTokenCache(fetchToken)
  let pausedUntil = 0
  let problem: string | null = null

  /** Logs a problem once, and again when it changes. */
  function note(next: string | null): void {
    if (next !== null && next !== problem)
      log.error({ provider: 'auth0', problem: next }, 'the identity provider cannot be used')
    if (next === null && problem !== null)
      log.info({ provider: 'auth0' }, 'the identity provider answers again')
    problem = next
  }

  async function fetchToken(): Promise<AccessToken | HttpAnswer> {
    const { clientId, clientSecret, audience } = config
    const body = {
      grant_type: 'client_credentials',
      client_id: clientId,
      client_secret: currentValue(clientSecret),
      audience,
    }
    const answer = await send({ method: 'POST', path: '/oauth/token', body, timeoutMs: requestMs })
    if (answer.status !== 200) return answer
    const reply = isObject(answer.body) ? answer.body : {}
    const [text, seconds] = [readText(reply['access_token']), reply['expires_in']]
    if (text === '') return { status: null, why: 'answered without a token' }
    return { text, lifetimeSeconds: typeof seconds === 'number' ? seconds : 0 }
  }

  /** Also records the pause that the response demands, for all requests. */
  async function send(request: HttpRequest): Promise<HttpAnswer> {
    const answer = await sendToAuth0(config.url, request)
    if (answer.status !== null && answer.pauseMs !== null)
      pausedUntil = Math.max(pausedUntil, performance.now() + answer.pauseMs)
    return answer
  }

  /**
   * Waits until the rate limit has room. Throws PROVIDER_UNAVAILABLE if that is after the bounds.
   */
  async function waitForRoom({ until }: CallBounds): Promise<void> {
    for (let ms = pausedUntil - performance.now(); ms > 0; ms = pausedUntil - performance.now()) {
      if (performance.now() + ms > until) {
        note('its rate limit is reached')
        throw unavailable()
      }
      // Spread the requests, because all waiting requests share one budget.
      await sleep(ms + Math.random() * 200)
    }
    if (performance.now() > until) throw unavailable()
  }

  async function attempt(request: ManagementRequest, bounds: CallBounds): Promise<HttpAnswer> {
    await waitForRoom(bounds)
    const access = await token.get()
    if (access.text === null) return access.answer
    const timeoutMs = Math.min(requestMs, bounds.until - performance.now())
    const answer = await send({ ...request, token: access.text, timeoutMs })
    if (answer.status === 401) token.discard(access.text)
    return answer
  }

  async function call(request: ManagementRequest, bounds: CallBounds): Promise<ManagementAnswer> {
    let isRenewed = false
    for (let failures = 1; ; failures++) {
      const answer = await attempt(request, bounds)
      const isFirst401: boolean = answer.status === 401 && !isRenewed
      isRenewed ||= isFirst401
      if (!isFirst401 && !isTemporary(answer)) return settle(answer)
      const ms = isFirst401 ? 0 : backoffMs(failures, backoff)
      if (performance.now() + ms > bounds.until) {
        note(describe(answer))
        throw unavailable()
      }
      await sleep(ms)
    }
  }

  function settle(answer: HttpAnswer): ManagementAnswer {
    if (answer.status === null || misconfigured.has(answer.status)) {
      note(`${describe(answer)}; check AUTH0_CLIENT_ID, its secret and its permissions`)
      throw unavailable()
    }
    note(null)
    return answer
  }

  return (request: ManagementRequest, bounds: CallBounds): Promise<ManagementAnswer> =>
    places.run(config.url, () => call(request, bounds))
}

export type ManagementApi = ReturnType<typeof createManagementApi>

const isTemporary = ({ status }: HttpAnswer): boolean => status === null || temporary.has(status)

/** Describes a response for the log. */
function describe(answer: HttpAnswer): string {
  if (answer.status === null) return answer.why
  const message = readMessage(answer.body)
  return `answered ${answer.status}${message === '' ? '' : ` (${message})`}`
}

const messageLength = 200

/** Returns the response's error message, shortened, on one line. */
export function readMessage(body: unknown): string {
  const message = isObject(body) ? readText(body['message'] ?? body['error_description']) : ''
  return message.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').slice(0, messageLength)
}

export const unavailable = (): DomainError =>
  new DomainError(
    'PROVIDER_UNAVAILABLE',
    'the identity provider is unavailable; nothing was changed, repeat the request later',
  )
