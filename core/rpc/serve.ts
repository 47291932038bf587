import {
  Metadata,
  type ServiceDefinition,
  type UntypedServiceImplementation,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type sendUnaryData,
  type ServerUnaryCall,
  type ServerWritableStream,
} from '@grpc/grpc-js'
import { once } from 'node:events'
import { Histogram } from 'prom-client'
import { DomainError, type Reason, reasonTrailer, reasons } from '../../proto/errors.ts'
import { type Authenticator, type Caller, type Guard, parseCredential } from './callers.ts'
import { correlationIdFrom } from '../lib/correlation.ts'
import { equalSecrets } from '../lib/crypto.ts'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../lib/grpc.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import { isUnavailable } from '../lib/sql.ts'

/** What a handler may know of the call besides request and caller. */
export interface Context {
  readonly correlationId: string
  /** Aborts when the caller has gone or its deadline has passed. */
  readonly signal: AbortSignal
}

/** What was shown with a call, as it was sent. */
export interface Shown {
  readonly serviceToken: string | undefined
  readonly authorization: string | undefined
  readonly session: string | undefined
}
export interface Call<Request> {
  readonly request: Request
  readonly shown: Shown
  readonly context: Context
}
// Method syntax on purpose: handlers of many request types stand in one map.
export interface Rpc<Request, Response> {
  unary(call: Call<Request>, deps: Serving): Promise<Response>
}
export interface StreamRpc<Request, Response> {
  stream(
    call: Call<Request> & Writing,
    deps: ServeDeps,
    emit: (message: Response) => void,
  ): Promise<void>
}
interface Writing {
  /** Resolves when what was emitted has been read so far that more may follow. */
  writable(): Promise<void>
}
/** What the handler of a stream may know besides. */
export interface StreamContext<C extends Caller> extends Context, Writing {
  readonly caller: C
  /** Asks again whether the caller may call this; throws the refusal when that is over. */
  readmit(): Promise<void>
}

export interface ServeDeps {
  readonly authenticator: Authenticator
  readonly serviceToken: string
  readonly log: Log
  readonly metrics: Metrics
}

interface Refused {
  readonly reason: Reason
  readonly reply: { readonly code: number; readonly details: string; readonly metadata: Metadata }
}
/** What a handler is run with. */
interface Serving extends ServeDeps {
  /** Times one call; logs and gives its refusal instead of throwing it. */
  settle<Response>(
    path: string,
    context: Context,
    work: () => Promise<Response>,
  ): Promise<{ response: Response } | Refused>
}

/** A unary RPC: the guard runs first and decides who may call; the handler sees only what passed it. */
export function rpc<Request, Response, C extends Caller>(
  guard: Guard<C>,
  handler: (request: Request, caller: C, context: Context) => Promise<Response>,
): Rpc<Request, Response> {
  return {
    unary: async ({ request, shown, context }, deps) =>
      handler(request, await admit(guard, { request, shown }, deps), context),
  }
}

/** A server-streaming RPC; it ends when the handler's promise settles or the caller goes. */
export function streamRpc<Request, Response, C extends Caller>(
  guard: Guard<C>,
  handler: (
    request: Request,
    emit: (message: Response) => void,
    context: StreamContext<C>,
  ) => Promise<void>,
): StreamRpc<Request, Response> {
  return {
    stream: async ({ request, shown, context, writable }, deps, emit) => {
      const readmit = (): Promise<C> => admit(guard, { request, shown }, deps)
      const caller = await readmit()
      await handler(request, emit, {
        ...context,
        writable,
        caller,
        readmit: async () => void (await readmit()),
      })
    },
  }
}

interface Admitted {
  readonly request: unknown
  readonly shown: Shown
}

async function admit<C extends Caller>(
  guard: Guard<C>,
  call: Admitted,
  deps: ServeDeps,
): Promise<C> {
  requireService(call.shown, deps)
  return judge(guard, call, deps)
}

export function requireService({ serviceToken }: Shown, deps: ServeDeps): void {
  if (serviceToken === undefined || !equalSecrets(serviceToken, deps.serviceToken)) {
    throw new DomainError(
      'SERVICE_TOKEN_INVALID',
      'the service token (CORE_TOKEN) is missing or wrong',
    )
  }
}

export const judge = <C extends Caller>(
  guard: Guard<C>,
  { request, shown: { authorization, session } }: Admitted,
  { authenticator }: ServeDeps,
): Promise<C> =>
  guard(
    { credential: parseCredential(authorization), clientId: namedApp(request), session },
    authenticator,
  )

export function namedApp(request: unknown): string | undefined {
  const named =
    typeof request === 'object' && request !== null && 'clientId' in request
      ? request.clientId
      : undefined
  return typeof named === 'string' ? named : undefined
}

/** The handler map of a generated service: a name that is missing or misspelt does not compile. */
export type Handlers<Service> = {
  [
    Method in keyof Service as string extends Method
      ? never
      : number extends Method
        ? never
        : Method
  ]: Service[Method] extends handleUnaryCall<infer Request, infer Response>
    ? Rpc<Request, Response>
    : Service[Method] extends handleServerStreamingCall<infer Request, infer Response>
      ? StreamRpc<Request, Response>
      : never
}

/** A generated service definition with its handlers. */
export interface Service {
  readonly definition: ServiceDefinition
  readonly handlers: Readonly<Record<string, Rpc<unknown, unknown> | StreamRpc<unknown, unknown>>>
}

/** Puts handlers to the definition that was generated with their types. */
export const grpcService = <Server>(
  definition: ServiceDefinition,
  handlers: Handlers<Server>,
): Service => ({
  definition,
  handlers: Object.fromEntries(
    Object.entries<Rpc<unknown, unknown> | StreamRpc<unknown, unknown>>(handlers),
  ),
})

/** Messages that may wait for a slow reader of a stream; beyond them it is cut off. */
const waitingMax = 10_000

const correlationIdOf = (metadata: Metadata): string =>
  correlationIdFrom(metadata.get(correlationHeader)[0])

const shownWith = (metadata: Metadata): Shown => ({
  serviceToken: textOf(metadata, serviceTokenHeader),
  authorization: textOf(metadata, 'authorization'),
  session: textOf(metadata, sessionHeader),
})

function textOf(metadata: Metadata, name: string): string | undefined {
  const value = metadata.get(name)[0]
  return typeof value === 'string' ? value : undefined
}

/** Makes the one place where calls are timed, refused and logged. */
export function createServing(deps: ServeDeps) {
  const seconds = new Histogram({
    name: 'core_rpc_seconds',
    help: 'Time to answer an RPC',
    labelNames: ['rpc', 'reason'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
    registers: [deps.metrics],
  })
  const serving: Serving = { ...deps, settle }

  function refuse(error: unknown, path: string, context: Context): Refused {
    const known = error instanceof DomainError ? error : unexpected(error)
    const row = reasons[known.reason]
    const level = row.http >= 500 ? 'error' : 'debug'
    deps.log[level](
      {
        rpc: path,
        reason: known.reason,
        correlationId: context.correlationId,
        err: row.http >= 500 ? error : undefined,
      },
      'rpc refused',
    )
    const metadata = new Metadata()
    metadata.set(reasonTrailer, known.reason)
    return {
      reason: known.reason,
      reply: {
        code: row.grpc,
        details: row.http === 500 ? 'internal error' : known.message,
        metadata,
      },
    }
  }

  async function settle<Response>(
    path: string,
    context: Context,
    work: () => Promise<Response>,
  ): Promise<{ response: Response } | Refused> {
    const stop = seconds.startTimer({ rpc: path })
    try {
      const response = await work()
      stop({ reason: 'OK' })
      return { response }
    } catch (error) {
      const refused = refuse(error, path, context)
      stop({ reason: refused.reason })
      return refused
    }
  }

  function unaryHandler<Request, Response>(
    path: string,
    handler: Rpc<Request, Response>,
  ): handleUnaryCall<Request, Response> {
    return (call: ServerUnaryCall<Request, Response>, done: sendUnaryData<Response>) => {
      let abort: AbortController | undefined
      let answered = false
      const context: Context = {
        correlationId: correlationIdOf(call.metadata),
        // Made for the few handlers that look at it.
        get signal() {
          if (abort) return abort.signal
          const made = (abort = new AbortController())
          if (call.cancelled) made.abort()
          // A call is "cancelled" when it closes, too; to abort then would only cost the making of an error.
          else call.on('cancelled', () => answered || made.abort())
          return made.signal
        },
      }
      const work = (): Promise<Response> =>
        handler.unary({ request: call.request, shown: shownWith(call.metadata), context }, serving)
      void settle(path, context, work).then((settled) => {
        answered = true
        if ('response' in settled) done(null, settled.response)
        else done(settled.reply)
      })
    }
  }

  function streamHandler<Request, Response>(
    path: string,
    handler: StreamRpc<Request, Response>,
  ): handleServerStreamingCall<Request, Response> {
    return (call: ServerWritableStream<Request, Response>) => {
      const abort = new AbortController()
      call.on('cancelled', () => abort.abort())
      const context = { correlationId: correlationIdOf(call.metadata), signal: abort.signal }
      // Headers at once: the caller learns that it is connected before the first message.
      call.sendMetadata(new Metadata())
      const emit = (message: Response): void => {
        if (call.writableLength < waitingMax) call.write(message)
        else abort.abort()
      }
      const writable = async (): Promise<void> => {
        if (call.writableNeedDrain) await once(call, 'drain', { signal: abort.signal })
      }
      const fail = (error: unknown) => call.emit('error', refuse(error, path, context).reply)
      handler
        .stream(
          { request: call.request, shown: shownWith(call.metadata), context, writable },
          deps,
          emit,
        )
        .then(() => (call.writableLength < waitingMax ? call.end() : fail(tooSlow())), fail)
    }
  }

  /** The handlers of a service as grpc-js calls them. */
  function bind(
    definition: ServiceDefinition,
    handlers: Service['handlers'],
  ): UntypedServiceImplementation {
    const implementation: UntypedServiceImplementation = {}
    for (const [name, handler] of Object.entries(handlers)) {
      const path = definition[name]?.path.replace(/^\//, '') ?? name
      implementation[name] =
        'unary' in handler ? unaryHandler(path, handler) : streamHandler(path, handler)
    }
    return implementation
  }

  return { bind }
}

const tooSlow = (): DomainError =>
  new DomainError('UNAVAILABLE', 'the stream was not read fast enough; open it again')

// Postgres away is not a bug: the caller may come again.
function unexpected(error: unknown): DomainError {
  return isUnavailable(error)
    ? new DomainError('UNAVAILABLE', 'the database does not answer; try again', { cause: error })
    : new DomainError('INTERNAL', 'internal error', { cause: error })
}
