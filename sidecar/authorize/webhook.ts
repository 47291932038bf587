import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import type { Log } from '../../core/lib/log.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import { activeTracing } from '../../core/lib/telemetry/tracing.ts'
import { declaredLength, drainAndEnd, receiveBody } from '../http/body.ts'
import type { CallerOf, Signer } from '../callers/callers.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { type Decision, refuse } from './decision.ts'
import { type Refusal, refusals } from '../decision/refusals.ts'
import { type AuthorizeBody, parseBody } from '../decision/request.ts'

/** A decision that was just made. */
export interface FreshDecision {
  readonly decision: Decision
  /** Null for a request that was not read. */
  readonly body: AuthorizeBody | null
  readonly ms: number
}

/** Why a decision is recorded. */
export type Occasion = 'refusal' | 'request' | 'sample'

/** An answer with the id of its decision. */
export interface ExplainedAnswer {
  readonly id: string
  readonly body: string
}

/** Records decisions, to explain them later. */
export interface Explanations {
  /** Returns why the decision is to be recorded; null for most permissions. */
  occasionOf(decision: Decision, body: AuthorizeBody | null): Occasion | null
  /** Records the decision if the limit permits it, and adds its id to the answer. */
  explain(fresh: FreshDecision, occasion: Occasion): ExplainedAnswer
}

export interface WebhookDeps {
  readonly authorize: (body: AuthorizeBody) => Decision | Promise<Decision>
  readonly explanations: Explanations
  readonly callerOf: CallerOf
  /**
   * Maximum number of concurrent decisions; further ones are refused immediately with body status
   * 503.
   */
  readonly maxInFlight: Reloadable<number>
  readonly metrics: Pick<SidecarMetrics, 'countDecision'>
  readonly log: Log
}

const maxBody = 1024 * 1024
const unauthorized = '{"status":401,"reason":"unauthorized webhook caller"}'
const tooManyGuesses = '{"status":429,"reason":"too many wrong webhook secrets"}'
const invalidJson = '{"status":400,"reason":"invalid request json"}'
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
  const tracing = activeTracing()
  let inFlight = 0

  return (request, response) => {
    const caller = callerOf(request)
    if (typeof caller === 'string') return refuseCaller(caller, request, response)
    if (inFlight >= currentValue(maxInFlight))
      return refuseUnread(refusals.overloaded, request, response)
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
    const { body } = explanations.explain({ decision, body: null, ms: 0 }, 'refusal')
    answerUnread({ request, response, body })
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
        .then((decided) => answer({ decision: decided, body, response, started }))
        .catch((error: unknown) => answerFault(error, body, response))
        .finally(() => inFlight--)
    } catch (error) {
      answerFault(error, body, response)
    }
  }

  function answer({ decision, body, response, started }: Answering): void {
    tracing?.annotate({ 'tollgate.decision': decision.code })
    const occasion = explanations.occasionOf(decision, body)
    const explained =
      occasion &&
      explanations.explain({ decision, body, ms: performance.now() - started }, occasion)
    send(response, 200, (explained ?? decision).body)
    const ms = performance.now() - started
    metrics.countDecision(decision, ms)
    if (log.isLevelEnabled('debug'))
      log.debug({ ...lineOf(decision, body), decisionId: explained?.id, ms }, 'authorize')
  }

  function answerFault(error: unknown, body: AuthorizeBody, response: ServerResponse): void {
    log.error({ err: error }, 'authorize failed')
    if (response.headersSent) return
    const decision = refuse(refusals.authorizationUnavailable, 'none')
    send(response, 200, explanations.explain({ decision, body, ms: 0 }, 'refusal').body)
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
    return answerUnread({ request, response, body: tooManyGuesses, status: 429 })
  }
  response.setHeader('www-authenticate', 'Bearer')
  answerUnread({ request, response, body: unauthorized, status: 401 })
}

function send(response: ServerResponse, status: number, body: string): void {
  response
    .writeHead(status, { 'content-type': json, 'content-length': Buffer.byteLength(body) })
    .end(body)
}

interface Unread {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly body: string
  readonly status?: number
}

// Node reads and drops a small body by itself and keeps the connection. Close the connection after
// a large or endless one.
function answerUnread({ request, response, body, status = 200 }: Unread): void {
  if (declaredLength(request) <= maxBody && !request.headers['transfer-encoding'])
    return send(response, status, body)
  response.writeHead(status, {
    'content-type': json,
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  })
  response.write(body)
  drainAndEnd(request, response)
}
