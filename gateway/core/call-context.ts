import { Readable } from 'node:stream'
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf'
import { Code, ConnectError, type Transport } from '@connectrpc/connect'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { currentValue } from '../../core/lib/settings/reloadable.ts'
import {
  correlationHeader,
  selfHeader,
  serviceTokenHeader,
  sessionHeader,
} from '../../proto/headers.ts'
import {
  DomainError,
  isReason,
  readMembers,
  membersTrailer,
  reasonTrailer,
} from '../../proto/errors.ts'
import type { BatchedCall } from './batched-calls.ts'
import type { Pings } from './sessions.ts'

/**
 * Credential and correlation id that a call to core carries. Core checks the credential; the
 * gateway only forwards it.
 */
export interface CallerCredential {
  /** The Authorization header as received. */
  readonly authorization?: string | undefined
  /** The token of a dashboard session. */
  readonly session?: string | undefined
  /** The app as whose end user the session's account calls. */
  readonly self?: string | undefined
  readonly correlationId: string
}

/** Core's address and the deadline for its answers. */
export interface CoreOptions extends CoreAddress {
  readonly deadlineMs: number
  /** Default is 5 s for each. */
  readonly pings?: Pings
}

/** Calls core on behalf of one request: adds its headers, and throws failures as DomainErrors. */
export function createCallContext(
  { authorization, session, self, correlationId }: CallerCredential,
  {
    transport,
    token,
    deadlineMs,
  }: Pick<CoreOptions, 'token' | 'deadlineMs'> & { readonly transport: Transport },
) {
  let hasCalled = false

  /** Returns the headers of a call that is about to be made. */
  function headersOfCall(): Record<string, string> {
    hasCalled = true
    return {
      [serviceTokenHeader]: currentValue(token),
      [correlationHeader]: correlationId,
      ...(authorization === undefined ? {} : { authorization }),
      ...(session === undefined ? {} : { [sessionHeader]: session }),
      ...(self === undefined ? {} : { [selfHeader]: self }),
    }
  }

  /** Makes a unary call. */
  async function unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    timeoutMs = deadlineMs,
  ): Promise<MessageShape<O>> {
    const headers = headersOfCall()
    const answer = await transport
      .unary(method, undefined, timeoutMs, headers, request)
      .catch(rethrow)
    return answer.message
  }

  /** Makes a unary call that is batched with others into one RPC. */
  async function batched<Request, Response>(
    send: (call: BatchedCall<Request>) => Promise<Response>,
    request: Request,
  ): Promise<Response> {
    hasCalled = true
    return send({ request, authorization, correlationId })
  }

  /** Opens a server stream. It has no deadline and runs until the signal aborts it. */
  async function* stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    signal: AbortSignal,
  ): AsyncGenerator<MessageShape<O>> {
    const requests = Readable.from([request])
    try {
      const headers = headersOfCall()
      yield* (await transport.stream(method, signal, undefined, headers, requests)).message
    } catch (error) {
      rethrow(error)
    }
  }

  return {
    unary,
    batched,
    stream,
    /** Whether the caller is a person with a session, which batches do not forward. */
    hasSession: session !== undefined,
    /** Whether a call was made. */
    get hasCalled() {
      return hasCalled
    },
  }
}

export type CallContext = ReturnType<typeof createCallContext>

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
const isBroken = ({ cause, rawMessage }: ConnectError): boolean =>
  rawMessage === withoutHeaders ||
  (cause instanceof Error && 'code' in cause && typeof cause.code === 'string')

/** Whether a call ended without an answer of core, before its deadline. */
export function isConnectionError(thrown: unknown): boolean {
  const error = ConnectError.from(thrown)
  if (error.metadata.has(reasonTrailer)) return false
  return error.code === Code.Unavailable || error.code === Code.Aborted || isBroken(error)
}

/** Whether core is of an older release, which does not know the call. */
export const isUnknownCall = (thrown: unknown): boolean =>
  thrown instanceof DomainError &&
  thrown.cause instanceof ConnectError &&
  thrown.cause.code === Code.Unimplemented &&
  // Core's own refusals with that code carry a reason.
  !thrown.cause.metadata.has(reasonTrailer)

/** What connect reports about an answer without gRPC's headers: the call ended before its answer. */
const withoutHeaders = 'unsupported content type null'

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
