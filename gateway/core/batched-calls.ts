import { createBatchLoader } from '../../core/lib/concurrency.ts'
import { DomainError, isReason, readMembers } from '../../proto/errors.ts'

/** One caller's call of an RPC that is batched with other calls. */
export interface BatchedCall<Request> {
  readonly request: Request
  readonly authorization: string | undefined
  readonly correlationId: string
}

/** Core's answer to one of the calls. */
export interface CallAnswer<Response> {
  readonly response?: Response | undefined
  readonly refusal?:
    | {
        readonly reason: string
        readonly details: string
        readonly membersJson?: string | undefined
      }
    | undefined
}

interface BatchOptions {
  /** Maximum calls per RPC. */
  readonly batchMax: number
  /** Maximum concurrent RPCs. */
  readonly concurrency: number
  /** How long a call may wait before its RPC is sent. */
  readonly waitMs: number
}

interface QueuedCall<Request> {
  readonly call: BatchedCall<Request>
  readonly expiresAt: number
}

/**
 * Batches concurrent calls into one RPC to core, because one RPC costs as much for a hundred calls
 * as for one (bench row `user-token-mint`; the plain version sends one RPC per call). Each call
 * keeps its own credential and gets its own answer. Throws a refusal as a DomainError, UNAVAILABLE
 * if the call waited longer than `waitMs`.
 */
export function batchCalls<Request, Response>(
  send: (calls: BatchedCall<Request>[]) => Promise<readonly CallAnswer<Response>[]>,
  { waitMs, batchMax, concurrency }: BatchOptions,
): (call: BatchedCall<Request>) => Promise<Response> {
  const answerTo = createBatchLoader(
    async (queued: readonly QueuedCall<Request>[]) => {
      const now = performance.now()
      const inTime = queued.filter(({ expiresAt }) => expiresAt > now)
      const answers = new Map<BatchedCall<Request>, CallAnswer<Response> | undefined>()
      const sendAll = async (calls: BatchedCall<Request>[]): Promise<void> => {
        const list = await send(calls)
        for (const [index, call] of calls.entries()) answers.set(call, list[index])
      }
      await Promise.all(messagesOf(inTime.map(({ call }) => call)).map(sendAll))
      return ({ call }): CallAnswer<Response> | undefined =>
        answers.has(call) ? answers.get(call) : tooLate
    },
    { batchMax, concurrency },
  )

  return async (call) => {
    const answer = await answerTo({ call, expiresAt: performance.now() + waitMs })
    if (answer?.response !== undefined) return answer.response
    throw toDomainError(answer?.refusal)
  }
}

// Half of core's message limit, so that a call with long texts does not get its neighbours
// rejected.
const messageMaxBytes = 512 * 1024
const utf8Max = 3

/** Splits the calls, in order, into as few messages as their size allows. */
function messagesOf<Request>(calls: readonly BatchedCall<Request>[]): BatchedCall<Request>[][] {
  const messages: BatchedCall<Request>[][] = []
  let bytes = Infinity
  for (const call of calls) {
    const size = utf8Max * JSON.stringify(call).length
    if (bytes + size > messageMaxBytes) {
      messages.push([])
      bytes = 0
    }
    messages.at(-1)?.push(call)
    bytes += size
  }
  return messages
}

const tooLate = {
  refusal: { reason: 'UNAVAILABLE', details: 'the service is unavailable now; try again' },
}

function toDomainError(refusal: CallAnswer<unknown>['refusal']): DomainError {
  return refusal && isReason(refusal.reason)
    ? new DomainError(refusal.reason, refusal.details, {
        members: readMembers(refusal.membersJson),
      })
    : new DomainError('INTERNAL', "core's answer is neither a result nor an error")
}
