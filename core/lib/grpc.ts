import {
  ChannelCredentials,
  type ClientOptions,
  type ClientReadableStream,
  type ClientUnaryCall,
  experimental,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js'
import {
  DomainError,
  isReason,
  readMembers,
  membersTrailer,
  reasonTrailer,
} from '../../proto/errors.ts'
import { createTlsProvider } from './core-link/tls-provider.ts'
import { type ClientTls, tlsAdvice } from './core-link/tls.ts'
import type { Log } from './log.ts'
import { traceInterceptor } from './telemetry/grpc-interceptor.ts'
import { activeTracing } from './telemetry/tracing.ts'

/**
 * grpc-js credentials and options for calls to core: plain text, or TLS with the current files at
 * each connection. Throws a one-line error for a file that cannot be read.
 */
export function channelTo(
  tls: ClientTls | undefined,
  log?: Pick<Log, 'info' | 'error'>,
): {
  readonly credentials: ChannelCredentials
  readonly options: ClientOptions
} {
  const traced = activeTracing() === null ? {} : { interceptors: [traceInterceptor] }
  if (!tls) return { credentials: ChannelCredentials.createInsecure(), options: traced }
  const { files, serverName } = tls
  const provider = createTlsProvider(files, ({ error }) => {
    if (error === undefined) log?.info('the certificates for core were read again')
    else
      log?.error(
        { err: error },
        'the new certificates for core cannot be used; the old ones stay in use',
      )
  })
  const identity = files.cert === undefined ? null : provider
  // grpc-js marks this as experimental; test/core/rpc/tls.test.ts fails if a new version changes
  // it.
  const credentials = experimental.createCertificateProviderChannelCredentials(provider, identity)
  return {
    credentials,
    options:
      serverName === undefined
        ? traced
        : {
            ...traced,
            'grpc.ssl_target_name_override': serverName,
            'grpc.default_authority': serverName,
          },
  }
}

type Unary<Request, Response> = (
  ...call: [
    request: Request,
    metadata: Metadata,
    options: { deadline: number },
    done: (error: ServiceError | null, response: Response) => void,
  ]
) => ClientUnaryCall

export interface CallOptions {
  readonly deadlineMs: number
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

/**
 * Returns a function that calls a unary method of a generated client, always with a deadline. It
 * rejects with the DomainError that core threw, or with UNAVAILABLE if the connection is broken or
 * slow.
 *
 *     const call = unary(client.getAccess.bind(client))
 *     await call({ clientId, externalUserId }, { deadlineMs: 1000 })
 */
export function unary<Request, Response>(method: Unary<Request, Response>) {
  return async (request: Request, options: CallOptions): Promise<Response> => {
    const metadata = new Metadata()
    for (const [name, value] of Object.entries(options.headers ?? {})) metadata.set(name, value)
    const { promise, resolve, reject } = Promise.withResolvers<Response>()
    const call = method(
      request,
      metadata,
      { deadline: Date.now() + options.deadlineMs },
      (error, response) => (error ? reject(fromServiceError(error)) : resolve(response)),
    )
    const abort = (): void => call.cancel()
    options.signal?.addEventListener('abort', abort, { once: true })
    return promise.finally(() => options.signal?.removeEventListener('abort', abort))
  }
}

type Streaming<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: { deadline: number },
) => ClientReadableStream<Response>

/**
 * Calls a server-streaming method of a generated client. Yields the messages, and reads no faster
 * than its caller.
 */
export function streaming<Request, Response>(method: Streaming<Request, Response>) {
  return async function* messages(
    request: Request,
    options: CallOptions,
  ): AsyncGenerator<Response> {
    const metadata = new Metadata()
    for (const [name, value] of Object.entries(options.headers ?? {})) metadata.set(name, value)
    const stream = method(request, metadata, { deadline: Date.now() + options.deadlineMs })
    try {
      for await (const message of stream) yield message
    } catch (error) {
      throw isServiceError(error) ? fromServiceError(error) : error
    } finally {
      stream.cancel()
    }
  }
}

const isServiceError = (error: unknown): error is ServiceError =>
  error instanceof Error && 'code' in error && 'details' in error && 'metadata' in error

/** Whether core is of an older release, which does not know the call. */
export const isUnknownCall = (thrown: unknown): boolean =>
  thrown instanceof DomainError &&
  isServiceError(thrown.cause) &&
  thrown.cause.code === status.UNIMPLEMENTED &&
  // Core's own refusals with that code carry a reason.
  thrown.cause.metadata.get(reasonTrailer).length === 0

const lost = new Set<number>([
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.RESOURCE_EXHAUSTED,
])

const coreAway = 'core does not answer'

/**
 * Rebuilds the DomainError from the trailer. Without a trailer, the call did not reach a handler.
 */
export function fromServiceError(error: ServiceError): DomainError {
  const reason = error.metadata?.get(reasonTrailer)[0]
  if (isReason(reason)) {
    const members = readMembers(error.metadata.get(membersTrailer)[0])
    return new DomainError(reason, error.details, { cause: error, members })
  }
  if (lost.has(error.code)) {
    const advice = tlsAdvice(error.details)
    const message = advice === undefined ? coreAway : `${coreAway}: ${advice}`
    return new DomainError('UNAVAILABLE', message, { cause: error })
  }
  return new DomainError('INTERNAL', 'core failed', { cause: error })
}
