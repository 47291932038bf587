import { type CallOptions, Code, ConnectError } from '@connectrpc/connect'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../../proto/headers.ts'
import {
  DomainError,
  isReason,
  readMembers,
  membersTrailer,
  reasonTrailer,
} from '../../proto/errors.ts'
import type { BatchedCall } from './batched-calls.ts'

/**
 * Credential and correlation id that a call to core carries. Core checks the credential; the
 * gateway only forwards it.
 */
export interface CallerCredential {
  /** The Authorization header as received. */
  readonly authorization?: string | undefined
  /** The token of a dashboard session. */
  readonly session?: string | undefined
  readonly correlationId: string
}

/** Core's address and the deadline for its answers. */
export interface CoreOptions extends CoreAddress {
  readonly deadlineMs: number
}

/**
 * Wraps the methods of Connect's clients for one request: adds its headers and a deadline, and
 * throws all failures as DomainErrors.
 */
export interface CallContext {
  /** Whether a call was made. */
  hasCalled: boolean
  /** A unary call. `timeoutMs` replaces the default deadline for methods that take longer. */
  call<I, O>(
    method: (request: I, options: CallOptions) => Promise<O>,
    timeoutMs?: number,
  ): (request: I) => Promise<O>
  /** A unary call that is batched with others into one RPC. */
  batched<I, O>(send: (call: BatchedCall<I>) => Promise<O>): (request: I) => Promise<O>
  /** A server stream. It has no deadline and runs until the signal aborts it. */
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
 * Returns a constructor of objects with one member per group. A member is created when it is first
 * read, because each request reads only one or two of about 20.
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

// Connect reports a reset connection as Aborted; core's own refusals with that code carry a reason.
const connectionCodes = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.ResourceExhausted,
  Code.Aborted,
])

/**
 * Whether the connection broke: a system error code as the cause shows that core did not send the
 * error.
 */
const isBroken = ({ cause }: ConnectError): boolean =>
  cause instanceof Error && 'code' in cause && typeof cause.code === 'string'

const wrongToken =
  'core does not accept the token of this gateway; the operator must correct the token'

/**
 * Throws the DomainError named in the trailer. Without a trailer no handler ran: throws UNAVAILABLE
 * or INTERNAL.
 */
export function rethrow(thrown: unknown): never {
  const error = ConnectError.from(thrown)
  const reason = error.metadata.get(reasonTrailer)
  // The deployment is misconfigured. Core's message goes only to the log.
  if (reason === 'SERVICE_TOKEN_INVALID' || reason === 'SERVICE_ROLE_FORBIDDEN') {
    throw new DomainError('SERVICE_TOKEN_INVALID', wrongToken, { cause: error })
  }
  if (isReason(reason)) {
    const members = readMembers(error.metadata.get(membersTrailer))
    throw new DomainError(reason, error.rawMessage, { cause: error, members })
  }
  if (connectionCodes.has(error.code) || isBroken(error)) {
    throw new DomainError('UNAVAILABLE', 'the service is unavailable now; try again', {
      cause: error,
    })
  }
  throw new DomainError('INTERNAL', 'the service failed', { cause: error })
}

/** Returns the same stream, with errors converted to DomainErrors. */
async function* withDomainErrors<O>(messages: AsyncIterable<O>): AsyncGenerator<O> {
  try {
    yield* messages
  } catch (error) {
    rethrow(error)
  }
}
