import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { correlationIdFrom } from '../../core/lib/correlation.ts'
import type { Log } from '../../core/lib/log.ts'
import { DomainError } from '../../proto/errors.ts'
import { type Push, splitEnvelopes } from './ndjson.ts'
import { type Problem, problems, sendProblem, writeProblem } from '../http/problems.ts'
import { declaredLength, endPolitely, receive } from '../http/body.ts'

/** Where events are safe. */
export interface Keeper {
  /**
   * Returns when all of them are safe, with what there is to tell about them; throws when that is
   * not certain.
   */
  keep(
    envelopes: readonly Buffer[],
    correlationId: string,
  ): Promise<Readonly<Record<string, number>>>
  /** Pushes that it works on at the same time. */
  readonly maxInFlight: number
}

export interface EventsDeps {
  readonly keeper: Keeper
  /** Makes an event of a usage push; anything else stays as it is. */
  readonly complete: (envelope: Buffer) => Buffer
  readonly isKnownCaller: (headers: IncomingHttpHeaders) => boolean
  readonly log: Log
}

const maxBody = 4 * 1024 * 1024
const maxEnvelope = 2 * 1024 * 1024
const maxElements = 1_000
const maxLines = 10_000
const maxBytesInFlight = 64 * 1024 * 1024

/**
 * Direct mode (decision 5): takes the signer's events and answers 202 when they are safe, all of
 * them. Otherwise nothing is acknowledged and the sender repeats; what had come through is then a
 * duplicate.
 */
export function createEventsHandler(
  deps: EventsDeps,
): (request: IncomingMessage, response: ServerResponse) => void {
  const { keeper, complete, isKnownCaller, log } = deps
  let inFlight = 0
  let bytesInFlight = 0

  return (request, response) => {
    const id = correlationIdFrom(request.headers['x-correlation-id'])
    response.setHeader('x-correlation-id', id)
    const bytes = bytesOf(request)
    const problem = refusalOf(request, bytes)
    if (problem) return refuseUnread(request, response, problem)
    inFlight++
    bytesInFlight += bytes
    response.once('close', () => {
      inFlight--
      bytesInFlight -= bytes
    })
    receive(request, maxBody, {
      received: (body) => void take(body, response, id),
      tooLarge: () => refuseUnread(request, response, problems.bodyTooLarge),
    })
  }

  function refusalOf(request: IncomingMessage, bytes: number): Problem | null {
    if (!isKnownCaller(request.headers)) return problems.unauthorized
    if (inFlight >= keeper.maxInFlight || bytesInFlight + bytes > maxBytesInFlight)
      return problems.busy
    return (request.headers['content-encoding'] ?? 'identity') === 'identity'
      ? null
      : problems.encoded
  }

  async function take(body: Buffer, response: ServerResponse, id: string): Promise<void> {
    const push = splitEnvelopes(body)
    if (!push) return sendProblem(response, problems.notJson, id)
    const problem = problemOf(push)
    if (problem) return sendProblem(response, problem, id)
    try {
      const told = await keeper.keep(push.envelopes.map(complete), id)
      const answer = JSON.stringify({ accepted: push.envelopes.length, ...told })
      response.writeHead(202, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(answer),
      })
      response.end(answer)
    } catch (error) {
      log.warn(
        { err: error, envelopes: push.envelopes.length, correlationId: id },
        'events were not taken',
      )
      sendProblem(response, notKept(error), id)
    }
  }
}

/** A body of unknown length may be of any. */
function bytesOf(request: IncomingMessage): number {
  const declared = declaredLength(request)
  return request.headers['transfer-encoding'] === undefined ? Math.min(declared, maxBody) : maxBody
}

/** What the sender is told; it sends again after any 5xx (signer-contract 6.4). */
function notKept(error: unknown): Problem {
  return error instanceof DomainError && error.reason === 'SPOOL_UNAVAILABLE'
    ? { ...problems.spoolUnavailable, detail: error.message }
    : problems.coreAway
}

function problemOf({ envelopes, isArray }: Push): Problem | null {
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
  endPolitely(request, response)
}
