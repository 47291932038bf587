import { type CallOptions, Code, ConnectError } from '@connectrpc/connect'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../../core/lib/grpc.ts'
import { DomainError, isReason, reasonTrailer } from '../../proto/errors.ts'
import type { CoreAddress } from '../config.ts'
import type { JoinedCall } from './batched-calls.ts'

/** For whom core is called: the raw Authorization value is core's to judge. */
export interface OnBehalfOf {
  readonly authorization?: string | undefined
  /** The dashboard session's token. */
  readonly session?: string | undefined
  readonly correlationId: string
}

/** How the methods of Connect's clients become calls on behalf of one request, each with a deadline and its refusals. */
export interface Asking {
  /** Whether any was made. */
  asked: boolean
  call<I, O>(method: (request: I, options: CallOptions) => Promise<O>): (request: I) => Promise<O>
  joined<I, O>(ask: (call: JoinedCall<I>) => Promise<O>): (request: I) => Promise<O>
  follow<I, O>(
    method: (request: I, options: CallOptions) => AsyncIterable<O>,
  ): (request: I, signal: AbortSignal) => AsyncGenerator<O>
}

export function createAsking(
  { authorization, session, correlationId }: OnBehalfOf,
  { token, deadlineMs }: Pick<CoreAddress, 'token' | 'deadlineMs'>,
): Asking {
  const headers = (): Record<string, string> => ({
    [serviceTokenHeader]: token,
    [correlationHeader]: correlationId,
    ...(authorization === undefined ? {} : { authorization }),
    ...(session === undefined ? {} : { [sessionHeader]: session }),
  })
  const own: Asking = {
    asked: false,
    call: (method) => async (request) => {
      own.asked = true
      return method(request, { headers: headers(), timeoutMs: deadlineMs }).catch(rethrow)
    },
    joined: (ask) => async (request) => {
      own.asked = true
      return ask({ request, authorization, correlationId })
    },
    follow: (method) => (request, signal) => {
      own.asked = true
      return refusing(method(request, { headers: headers(), signal }))
    },
  }
  return own
}

/**
 * Makes objects with a member for each of `groups`, which is made when it is read: every request has such an object and
 * needs a fraction of it.
 */
export function lazily<Groups extends Record<string, (own: Asking) => unknown>>(groups: Groups) {
  const members = Object.entries(groups).map(([name, make]) => [
    name,
    {
      get(this: { readonly own: Asking }) {
        return make(this.own)
      },
    },
  ])
  const prototype = Object.defineProperties({}, Object.fromEntries(members))
  return (own: Asking): { readonly [Name in keyof Groups]: ReturnType<Groups[Name]> } =>
    Object.assign(Object.create(prototype), { own })
}

// Aborted is how Connect reports a connection that was reset; core's own refusals by that code carry a reason.
const lost = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.ResourceExhausted,
  Code.Aborted,
])

/** The connection broke off: what went wrong came from the system, not from core. */
const isBroken = ({ cause }: ConnectError): boolean =>
  cause instanceof Error && 'code' in cause && typeof cause.code === 'string'

/** Rebuilds the DomainError from the trailer; without one the call never reached a handler. */
export function rethrow(thrown: unknown): never {
  const error = ConnectError.from(thrown)
  const reason = error.metadata.get(reasonTrailer)
  // Ours to mend, and nothing for the public.
  if (reason === 'SERVICE_TOKEN_INVALID') {
    throw new DomainError('UNAVAILABLE', 'the service cannot be reached now', { cause: error })
  }
  if (isReason(reason)) throw new DomainError(reason, error.rawMessage, { cause: error })
  if (lost.has(error.code) || isBroken(error)) {
    throw new DomainError('UNAVAILABLE', 'the service does not answer now', { cause: error })
  }
  throw new DomainError('INTERNAL', 'the service failed', { cause: error })
}

/** A stream whose end is a DomainError, too. */
async function* refusing<O>(messages: AsyncIterable<O>): AsyncGenerator<O> {
  try {
    yield* messages
  } catch (error) {
    rethrow(error)
  }
}
