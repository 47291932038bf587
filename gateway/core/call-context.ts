import { type CallOptions, Code, ConnectError } from '@connectrpc/connect'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../../proto/headers.ts'
import {
  DomainError,
  isReason,
  membersOf,
  membersTrailer,
  reasonTrailer,
} from '../../proto/errors.ts'
import type { BatchedCall } from './batched-calls.ts'

/** What a call to core carries of the request that it serves. Core checks the credential; the gateway only forwards it. */
export interface CallerCredential {
  /** The Authorization header as it arrived. */
  readonly authorization?: string | undefined
  /** The token of a dashboard session. */
  readonly session?: string | undefined
  readonly correlationId: string
}

/** Where core is, and how long its answers may take. */
export interface CoreOptions extends CoreAddress {
  readonly deadlineMs: number
}

/**
 * Turns the methods of Connect's clients into calls on behalf of one request: with its headers and a deadline, and with
 * DomainErrors for everything that goes wrong.
 */
export interface CallContext {
  /** Whether a call was made. */
  hasCalled: boolean
  /** A unary call; with a deadline of its own where core says how long it may take. */
  call<I, O>(
    method: (request: I, options: CallOptions) => Promise<O>,
    timeoutMs?: number,
  ): (request: I) => Promise<O>
  /** A unary call that goes to core in one RPC with others. */
  batched<I, O>(send: (call: BatchedCall<I>) => Promise<O>): (request: I) => Promise<O>
  /** A server stream; without a deadline, until the signal aborts it. */
  stream<I, O>(
    method: (request: I, options: CallOptions) => AsyncIterable<O>,
  ): (request: I, signal: AbortSignal) => AsyncGenerator<O>
}

export function createCallContext(
  { authorization, session, correlationId }: CallerCredential,
  { token, deadlineMs }: Pick<CoreOptions, 'token' | 'deadlineMs'>,
): CallContext {
  const headers = (): Record<string, string> => ({
    [serviceTokenHeader]: token,
    [correlationHeader]: correlationId,
    ...(authorization === undefined ? {} : { authorization }),
    ...(session === undefined ? {} : { [sessionHeader]: session }),
  })
  const context: CallContext = {
    hasCalled: false,
    call:
      (method, timeoutMs = deadlineMs) =>
      async (request) => {
        context.hasCalled = true
        return method(request, { headers: headers(), timeoutMs }).catch(rethrow)
      },
    batched: (send) => async (request) => {
      context.hasCalled = true
      return send({ request, authorization, correlationId })
    },
    stream: (method) => (request, signal) => {
      context.hasCalled = true
      return withDomainErrors(method(request, { headers: headers(), signal }))
    },
  }
  return context
}

/**
 * Returns a constructor of objects with a member for each of `groups`. A member is made when it is read: every request
 * has such an object and uses one or two of its members, so the 18 others would be garbage.
 */
export function lazyGroups<Groups extends Record<string, (context: CallContext) => unknown>>(
  groups: Groups,
) {
  const members = Object.entries(groups).map(([name, make]) => [
    name,
    {
      get(this: { readonly context: CallContext }) {
        return make(this.context)
      },
    },
  ])
  const prototype = Object.defineProperties({}, Object.fromEntries(members))
  return (context: CallContext): { readonly [Name in keyof Groups]: ReturnType<Groups[Name]> } =>
    Object.assign(Object.create(prototype), { context })
}

// Connect reports a reset connection as Aborted; refusals of core with that code carry a reason.
const connectionCodes = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.ResourceExhausted,
  Code.Aborted,
])

/** Whether the connection broke: the error has a code of the system, so it is not core's. */
const isBroken = ({ cause }: ConnectError): boolean =>
  cause instanceof Error && 'code' in cause && typeof cause.code === 'string'

const wrongToken =
  'core does not accept the token of this gateway; only the operator can correct this'

/** Throws the DomainError that the trailer names; UNAVAILABLE or INTERNAL when there is no trailer, because no handler ran. */
export function rethrow(thrown: unknown): never {
  const error = ConnectError.from(thrown)
  const reason = error.metadata.get(reasonTrailer)
  // A fault of the deployment; core's message is for the log.
  if (reason === 'SERVICE_TOKEN_INVALID' || reason === 'SERVICE_ROLE_FORBIDDEN') {
    throw new DomainError('SERVICE_TOKEN_INVALID', wrongToken, { cause: error })
  }
  if (isReason(reason)) {
    const members = membersOf(error.metadata.get(membersTrailer))
    throw new DomainError(reason, error.rawMessage, { cause: error, members })
  }
  if (connectionCodes.has(error.code) || isBroken(error)) {
    throw new DomainError('UNAVAILABLE', 'the service does not answer now', { cause: error })
  }
  throw new DomainError('INTERNAL', 'the service failed', { cause: error })
}

/** The same stream; what it throws is a DomainError. */
async function* withDomainErrors<O>(messages: AsyncIterable<O>): AsyncGenerator<O> {
  try {
    yield* messages
  } catch (error) {
    rethrow(error)
  }
}
