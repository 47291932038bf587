import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { IngestEventsResponse } from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { correlationIdFrom } from '../core/lib/correlation.ts'
import type { Log } from '../core/lib/log.ts'
import type { CoreClient } from './core.ts'
import { type Push, splitEnvelopes } from './envelopes.ts'
import type { Meters } from './meters.ts'
import { type Problem, problems, sendProblem, writeProblem } from './problems.ts'
import { declaredLength, endPolitely, receive } from './request-body.ts'

export interface EventsDeps {
  readonly core: Pick<CoreClient, 'ingestEvents'>
  readonly isKnownCaller: (headers: IncomingHttpHeaders) => boolean
  readonly meters: Meters
  readonly log: Log
}

const maxBody = 4 * 1024 * 1024
const maxEnvelope = 2 * 1024 * 1024
const maxEnvelopes = 1_000
const maxBatchBytes = 2 * 1024 * 1024
const maxInFlight = 32

/**
 * Direct mode (decision 5): takes the signer's events and answers 202 when core has committed them
 * all. Otherwise nothing is acknowledged and the sender repeats; what core already has is then a
 * duplicate.
 */
export function createEventsHandler(
  deps: EventsDeps,
): (request: IncomingMessage, response: ServerResponse) => void {
  const { core, isKnownCaller, meters, log } = deps
  let inFlight = 0

  return (request, response) => {
    const id = correlationIdFrom(request.headers['x-correlation-id'])
    response.setHeader('x-correlation-id', id)
    const problem = refusalOf(request)
    if (problem) return refuseUnread(request, response, problem)
    inFlight++
    response.once('close', () => void inFlight--)
    receive(request, maxBody, {
      received: (body) => void take(body, response, id),
      tooLarge: () => refuseUnread(request, response, problems.bodyTooLarge),
    })
  }

  function refusalOf(request: IncomingMessage): Problem | null {
    if (!isKnownCaller(request.headers)) return problems.unauthorized
    if (inFlight >= maxInFlight) return problems.busy
    return (request.headers['content-encoding'] ?? 'identity') === 'identity'
      ? null
      : problems.encoded
  }

  async function take(body: Buffer, response: ServerResponse, id: string): Promise<void> {
    const push = splitEnvelopes(body)
    if (!push) return sendProblem(response, problems.notJson, id)
    const problem = problemOf(push)
    if (problem) return sendProblem(response, problem, id)
    const { envelopes } = push
    try {
      const counts = await forward(envelopes, id)
      meters.forwarded(envelopes.length)
      const answer = JSON.stringify({ accepted: envelopes.length, ...counts })
      response.writeHead(202, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(answer),
      })
      response.end(answer)
    } catch (error) {
      meters.failed('core')
      log.warn(
        { err: error, envelopes: envelopes.length, correlationId: id },
        'events were not forwarded',
      )
      sendProblem(response, problems.coreAway, id)
    }
  }

  /** Returns when core has committed every envelope; throws when that is not certain. */
  async function forward(envelopes: readonly Buffer[], id: string): Promise<IngestEventsResponse> {
    const counts = { tickets: 0, duplicates: 0, ignored: 0, quarantined: 0 }
    for (const batch of batchesOf(envelopes)) {
      const { tickets, duplicates, ignored, quarantined } = await core.ingestEvents(batch, id)
      counts.tickets += tickets
      counts.duplicates += duplicates
      counts.ignored += ignored
      counts.quarantined += quarantined
    }
    return counts
  }
}

function problemOf({ envelopes, isArray }: Push): Problem | null {
  if (envelopes.length === 0 && !isArray) return problems.empty
  if (isArray && envelopes.length > maxEnvelopes) return problems.tooMany
  return envelopes.some(({ length }) => length > maxEnvelope) ? problems.envelopeTooLarge : null
}

// Core takes at most 1,000 envelopes and gRPC 4 MiB in one message.
function* batchesOf(envelopes: readonly Buffer[]): Generator<Buffer[]> {
  let batch: Buffer[] = []
  let bytes = 0
  for (const envelope of envelopes) {
    if (
      batch.length === maxEnvelopes
      || (batch.length > 0 && bytes + envelope.length > maxBatchBytes)
    ) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(envelope)
    bytes += envelope.length
  }
  if (batch.length > 0) yield batch
}


function refuseUnread(request: IncomingMessage, response: ServerResponse, problem: Problem): void {
  const id = String(response.getHeader('x-correlation-id'))
  if (declaredLength(request) <= maxBody && !request.headers['transfer-encoding'])
    return sendProblem(response, problem, id)
  response.setHeader('connection', 'close')
  writeProblem(response, problem, id)
  endPolitely(request, response)
}
