import { createBatchLoader } from '../../core/lib/batch-loader.ts'
import { DomainError, isReason } from '../../proto/errors.ts'

/** One caller's call of an RPC that is sent to core with others. */
export interface JoinedCall<Request> {
  readonly request: Request
  readonly authorization: string | undefined
  readonly correlationId: string
}

interface Answer<Response> {
  readonly response?: Response | undefined
  readonly refusal?: { readonly reason: string; readonly details: string } | undefined
}

interface Options {
  /** How many go in one RPC, and how many RPCs are under way, at most. */
  readonly batchMax: number
  readonly lanes: number
  /** How long a call may wait for its RPC to leave. */
  readonly waitMs: number
}

interface Waiting<Request> {
  readonly call: JoinedCall<Request>
  readonly until: number
}

/**
 * Sends calls that are made at the same time to core in one RPC, which costs as much as each of them would alone. Every
 * call has its own credential and its own answer; a refusal is thrown as the DomainError that it is, UNAVAILABLE when
 * the call could not leave in time.
 */
export function joinCalls<Request, Response>(
  ask: (calls: JoinedCall<Request>[]) => Promise<readonly Answer<Response>[]>,
  { waitMs, ...bounds }: Options,
): (call: JoinedCall<Request>) => Promise<Response> {
  const answerOf = createBatchLoader(async (waiting: readonly Waiting<Request>[]) => {
    const at = performance.now()
    const inTime = waiting.filter(({ until }) => until > at)
    const answers = inTime.length === 0 ? [] : await ask(inTime.map(({ call }) => call))
    const found = new Map(inTime.map((one, index) => [one, answers[index]]))
    return (one): Answer<Response> | undefined => (found.has(one) ? found.get(one) : tooLate)
  }, bounds)

  return async (call) => {
    const answer = await answerOf({ call, until: performance.now() + waitMs })
    if (answer?.response !== undefined) return answer.response
    throw refused(answer?.refusal)
  }
}

const tooLate = { refusal: { reason: 'UNAVAILABLE', details: 'the service does not answer now' } }

function refused(refusal: Answer<unknown>['refusal']): DomainError {
  return refusal && isReason(refusal.reason)
    ? new DomainError(refusal.reason, refusal.details)
    : new DomainError('INTERNAL', "core's answer is neither a response nor a refusal")
}
