import type { IncomingMessage, ServerResponse } from 'node:http'
import { correlationIdFrom } from '../../proto/headers.ts'
import type { Log } from '../../core/lib/log.ts'
import { DomainError } from '../../proto/errors.ts'
import { type Push, splitEnvelopes } from './ndjson.ts'
import type { CallerOf, Signer } from '../callers/callers.ts'
import { type Problem, problems, sendProblem, writeProblem } from '../http/problems.ts'
import { foreignApp } from './foreign-events.ts'
import { declaredLength, drainAndEnd, receiveBody } from '../http/body.ts'

/** Stores events durably. */
export interface EventSink {
  /**
   * Resolves when all events are durable, with counts for the answer; throws if that is uncertain.
   */
  store(
    envelopes: readonly Buffer[],
    correlationId: string,
  ): Promise<Readonly<Record<string, number>>>
  /** Maximum number of concurrent pushes. */
  readonly maxInFlight: number
}

export interface EventsDeps {
  readonly sink: EventSink
  /** Converts a usage push to an event; returns anything else unchanged. */
  readonly complete: (envelope: Buffer) => Buffer
  readonly callerOf: CallerOf
  readonly log: Log
}

const maxBody = 4 * 1024 * 1024
const maxEnvelope = 2 * 1024 * 1024
const maxElements = 1_000
const maxLines = 10_000
const maxBytesInFlight = 64 * 1024 * 1024

/**
 * Direct mode (decision 5): receives the signer's events and answers 202 when all are durable.
 * Otherwise acknowledges nothing and the sender retries; events that were already stored are then
 * duplicates.
 */
export function createEventsHandler(
  deps: EventsDeps,
): (request: IncomingMessage, response: ServerResponse) => void {
  const { sink, complete, callerOf, log } = deps
  let inFlight = 0
  let bytesInFlight = 0

  return (request, response) => {
    const id = correlationIdFrom(request.headers['x-correlation-id'])
    response.setHeader('x-correlation-id', id)
    const bytes = bytesOf(request)
    const admission = admit(request, bytes)
    if (!('apps' in admission)) return refuseUnread(request, response, admission)
    inFlight++
    bytesInFlight += bytes
    response.once('close', () => {
      inFlight--
      bytesInFlight -= bytes
    })
    receiveBody(request, maxBody, {
      onBody: (body) => void take({ body, signer: admission }, response, id),
      onTooLarge: () => refuseUnread(request, response, problems.bodyTooLarge),
    })
  }

  function admit(request: IncomingMessage, bytes: number): Signer | Problem {
    const caller = callerOf(request)
    if (typeof caller === 'string')
      return caller === 'limited' ? problems.guesses : problems.unauthorized
    if (inFlight >= sink.maxInFlight || bytesInFlight + bytes > maxBytesInFlight)
      return problems.busy
    return (request.headers['content-encoding'] ?? 'identity') === 'identity'
      ? caller
      : problems.encoded
  }

  async function take(
    { body, signer }: { readonly body: Buffer; readonly signer: Signer },
    response: ServerResponse,
    id: string,
  ): Promise<void> {
    const push = splitEnvelopes(body)
    if (!push) return sendProblem(response, problems.notJson, id)
    const problem = pushProblem(push) ?? foreignProblem(push, signer)
    if (problem) return sendProblem(response, problem, id)
    try {
      const figures = await sink.store(push.envelopes.map(complete), id)
      const answer = JSON.stringify({ accepted: push.envelopes.length, ...figures })
      response.writeHead(202, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(answer),
      })
      response.end(answer)
    } catch (error) {
      log.warn(
        { err: error, envelopes: push.envelopes.length, correlationId: id },
        'events were not accepted',
      )
      sendProblem(response, problemOfFault(error), id)
    }
  }
}

/** Bytes that the request may hold in memory; the maximum when it does not declare its length. */
function bytesOf(request: IncomingMessage): number {
  const declared = declaredLength(request)
  return request.headers['transfer-encoding'] === undefined ? Math.min(declared, maxBody) : maxBody
}

/** The sender retries after any 5xx (docs/signer-events.md). */
function problemOfFault(error: unknown): Problem {
  return error instanceof DomainError && error.reason === 'SPOOL_UNAVAILABLE'
    ? { ...problems.spoolUnavailable, detail: error.message }
    : problems.coreAway
}

/**
 * Stores nothing of such a push, because its sender is misconfigured or charges users of other
 * apps.
 */
function foreignProblem({ envelopes }: Push, { apps }: Signer): Problem | null {
  const app = foreignApp(envelopes, apps)
  if (app === null) return null
  return {
    reason: 'SCOPE_MISSING',
    detail: `this signer pushes no events of the app ${app.slice(0, 64)}`,
  }
}

function pushProblem({ envelopes, isArray }: Push): Problem | null {
  if (envelopes.length === 0 && !isArray) return problems.empty
  if (isArray && envelopes.length > maxElements) return problems.tooMany
  if (envelopes.length > maxLines) return problems.tooManyLines
  return envelopes.some(({ length }) => length > maxEnvelope) ? problems.envelopeTooLarge : null
}

function refuseUnread(request: IncomingMessage, response: ServerResponse, problem: Problem): void {
  const id = String(response.getHeader('x-correlation-id'))
  if (declaredLength(request) <= maxBody && !request.headers['transfer-encoding'])
    return sendProblem(response, problem, id)
  response.setHeader('connection', 'close')
  writeProblem(response, problem, id)
  drainAndEnd(request, response)
}
