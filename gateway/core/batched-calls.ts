import { createBatchLoader } from '../../core/lib/concurrency.ts'
import { DomainError, isReason, membersOf } from '../../proto/errors.ts'

/** One caller's call of an RPC that goes to core together with others. */
export interface BatchedCall<Request> {
  readonly request: Request
  readonly authorization: string | undefined
  readonly correlationId: string
}

/** What core answers to one of the calls. */
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

// Half of what core reads of one message: a call with long texts must not have its neighbours refused with it.
const messageMaxBytes = 512 * 1024
const utf8Max = 3

/** The calls in their order, in as many messages as their texts need; one where they are short. */
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

const tooLate = { refusal: { reason: 'UNAVAILABLE', details: 'the service does not answer now' } }

function toDomainError(refusal: CallAnswer<unknown>['refusal']): DomainError {
  return refusal && isReason(refusal.reason)
    ? new DomainError(refusal.reason, refusal.details, { members: membersOf(refusal.membersJson) })
    : new DomainError('INTERNAL', "core's answer is neither a response nor a refusal")
}
