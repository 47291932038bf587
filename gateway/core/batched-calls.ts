import { createBatchLoader } from '../../core/lib/concurrency.ts'
import { DomainError, isReason } from '../../proto/errors.ts'

/** One caller's call of an RPC that goes to core together with others. */
export interface BatchedCall<Request> {
  readonly request: Request
  readonly authorization: string | undefined
  readonly correlationId: string
}

/** What core answers to one of the calls. */
export interface CallAnswer<Response> {
  readonly response?: Response | undefined
  readonly refusal?: { readonly reason: string; readonly details: string } | undefined
}

interface BatchOptions {
  /** Most calls of one RPC. */
  readonly batchMax: number
  /** Most RPCs under way at the same time. */
  readonly concurrency: number
  /** How long a call may wait until its RPC is sent. */
  readonly waitMs: number
}

interface QueuedCall<Request> {
  readonly call: BatchedCall<Request>
  readonly expiresAt: number
}

/**
 * Sends the calls that are made at the same time to core in one RPC (bench row `user-token-mint`: one RPC costs as much
 * for a hundred calls as for one; the plain version is a call for each). Every call has its own credential and its own
 * answer; a refusal is thrown as the DomainError that it is, UNAVAILABLE when the call waited too long to be sent.
 */
export function batchCalls<Request, Response>(
  send: (calls: BatchedCall<Request>[]) => Promise<readonly CallAnswer<Response>[]>,
  { waitMs, batchMax, concurrency }: BatchOptions,
): (call: BatchedCall<Request>) => Promise<Response> {
  const answerTo = createBatchLoader(
    async (queued: readonly QueuedCall<Request>[]) => {
      const now = performance.now()
      const inTime = queued.filter(({ expiresAt }) => expiresAt > now)
      const list = inTime.length === 0 ? [] : await send(inTime.map(({ call }) => call))
      const answers = new Map(inTime.map((one, index) => [one, list[index]]))
      return (one): CallAnswer<Response> | undefined =>
        answers.has(one) ? answers.get(one) : tooLate
    },
    { batchMax, concurrency },
  )

  return async (call) => {
    const answer = await answerTo({ call, expiresAt: performance.now() + waitMs })
    if (answer?.response !== undefined) return answer.response
    throw toDomainError(answer?.refusal)
  }
}

const tooLate = { refusal: { reason: 'UNAVAILABLE', details: 'the service does not answer now' } }

function toDomainError(refusal: CallAnswer<unknown>['refusal']): DomainError {
  return refusal && isReason(refusal.reason)
    ? new DomainError(refusal.reason, refusal.details)
    : new DomainError('INTERNAL', "core's answer is neither a response nor a refusal")
}
