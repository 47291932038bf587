import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { Log } from '../../core/lib/log.ts'
import type { Explanations } from '../explain/explanations.ts'
import { declaredLength, drainAndEnd, receiveBody } from '../http/body.ts'
import type { CallerOf, Signer } from '../http/callers.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { type Decision, refuse } from './decision.ts'
import { type Refusal, refusals } from './refusals.ts'
import { type AuthorizeBody, parseBody } from './request.ts'

export interface WebhookDeps {
  readonly authorize: (body: AuthorizeBody) => Decision | Promise<Decision>
  readonly explanations: Explanations
  readonly callerOf: CallerOf
  /**
   * Maximum number of concurrent decisions; further ones are refused immediately with body status
   * 503.
   */
  readonly maxInFlight: number
  readonly metrics: Pick<SidecarMetrics, 'countDecision'>
  readonly log: Log
}

const maxBody = 1024 * 1024
const answerOf = (body: string): Answer => ({ body, bytes: Buffer.byteLength(body) })
const unauthorized = answerOf('{"status":401,"reason":"unauthorized webhook caller"}')
const tooManyGuesses = answerOf('{"status":429,"reason":"too many wrong webhook secrets"}')
const invalidJson = answerOf('{"status":400,"reason":"invalid request json"}')
const json = 'application/json'

/**
 * The decision call as a raw handler for node:http; the caller routes `POST` to it. Decisions are
 * HTTP 200 with a `status` in the body. Answers HTTP 401 to a caller that is not our signer, and
 * HTTP 400 to a body that is not a JSON object.
 */
export function createWebhook(
  deps: WebhookDeps,
): (request: IncomingMessage, response: ServerResponse) => void {
  const { authorize, explanations, callerOf, maxInFlight, metrics, log } = deps
  let inFlight = 0
  const isVerbose = log.isLevelEnabled('debug')

  return (request, response) => {
    const caller = callerOf(request)
    if (typeof caller === 'string') return refuseCaller(caller, request, response)
    if (inFlight >= maxInFlight) return refuseUnread(refusals.overloaded, request, response)
    receiveBody(request, maxBody, {
      onBody: (body) => void decide(body, caller, response),
      onTooLarge: () => refuseUnread(refusals.tooLarge, request, response),
    })
  }

  function refuseUnread(
    refusal: Refusal,
    request: IncomingMessage,
    response: ServerResponse,
  ): void {
    const decision = refuse(refusal, 'none')
    metrics.countDecision(decision, 0)
    const { body, bytes } = explanations.explain({ decision, body: null, ms: 0 }, 'refusal')
    answerUnread({ request, response, body, bytes })
  }

  function decide(bytes: Buffer, signer: Signer, response: ServerResponse): void {
    const started = performance.now()
    const body = parseBody(bytes.toString('utf8'), signer.apps)
    if (!body) return send(response, 400, invalidJson)
    try {
      const decision = authorize(body)
      if (!(decision instanceof Promise)) return answer({ decision, body, response, started })
      inFlight++
      decision
        .then((known) => answer({ decision: known, body, response, started }))
        .catch((error: unknown) => answerFault(error, body, response))
        .finally(() => inFlight--)
    } catch (error) {
      answerFault(error, body, response)
    }
  }

  function answer({ decision, body, response, started }: Answering): void {
    const occasion = explanations.occasionOf(decision, body)
    const explained =
      occasion &&
      explanations.explain({ decision, body, ms: performance.now() - started }, occasion)
    send(response, 200, explained ?? decision)
    const ms = performance.now() - started
    metrics.countDecision(decision, ms)
    if (isVerbose)
      log.debug({ ...lineOf(decision, body), decisionId: explained?.id, ms }, 'authorize')
  }

  function answerFault(error: unknown, body: AuthorizeBody, response: ServerResponse): void {
    log.error({ err: error }, 'authorize failed')
    if (response.headersSent) return
    const decision = refuse(refusals.authorizationUnavailable, 'none')
    send(response, 200, explanations.explain({ decision, body, ms: 0 }, 'refusal'))
  }
}

interface Answering {
  readonly decision: Decision
  readonly body: AuthorizeBody
  readonly response: ServerResponse
  /** performance.now() when the whole body was received. */
  readonly started: number
}

function lineOf(
  { status, code, source, money, authId }: Decision,
  { session }: AuthorizeBody,
): object {
  return {
    status,
    code,
    source,
    money,
    authId,
    sessionId: session?.id,
    sequence: session?.sequence,
  }
}

function refuseCaller(
  caller: 'unknown' | 'limited',
  request: IncomingMessage,
  response: ServerResponse,
): void {
  if (caller === 'limited') {
    response.setHeader('retry-after', '60')
    return answerUnread({ request, response, ...tooManyGuesses, status: 429 })
  }
  response.setHeader('www-authenticate', 'Bearer')
  answerUnread({ request, response, ...unauthorized, status: 401 })
}

interface Answer {
  readonly body: string
  /** Length of the body in UTF-8, computed once instead of for every answer. */
  readonly bytes: number
}

function send(response: ServerResponse, status: number, { body, bytes }: Answer): void {
  response.writeHead(status, { 'content-type': json, 'content-length': bytes })
  // For ASCII, Node writes latin1 without encoding the text first.
  response.end(body, bytes === body.length ? 'latin1' : 'utf8')
}

interface Unread extends Answer {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly status?: number
}

// Node reads and drops a small body by itself and keeps the connection. Close the connection after
// a large or endless one.
function answerUnread({ request, response, body, bytes, status = 200 }: Unread): void {
  if (declaredLength(request) <= maxBody && !request.headers['transfer-encoding'])
    return send(response, status, { body, bytes })
  response.writeHead(status, {
    'content-type': json,
    'content-length': bytes,
    connection: 'close',
  })
  response.write(body)
  drainAndEnd(request, response)
}
