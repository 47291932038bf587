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
import {
  DomainError,
  type Reason,
  membersText,
  membersTrailer,
  reasonTrailer,
  reasons,
} from '../../proto/errors.ts'
import { type Authenticator, type Caller, parseCredential } from './callers.ts'
import type { Guard, OperatorLogging } from './guards.ts'
import {
  correlationHeader,
  correlationIdFrom,
  operatorHeader,
  selfHeader,
  sessionHeader,
} from '../../proto/headers.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import type { ServiceRole } from '../lib/core-link/address.ts'
import { isUnavailable } from '../lib/sql.ts'
import { type OperatorLog, operatorName } from '../shared/operator-log.ts'
import { traceStream, traceUnary } from './trace.ts'

/** Data about a call, in addition to its request and caller. */
export interface Context {
  readonly correlationId: string
  /** The operator's name as sent by the command. */
  readonly operator?: string | undefined
  /** Aborts when the caller disconnects or its deadline passes. */
  readonly signal: AbortSignal
}

/** The credentials of a call, as they were sent. */
export interface CallCredentials {
  readonly authorization: string | undefined
  /** The token of a dashboard session. */
  readonly session: string | undefined
  /** The session's account calls as its own end user of this app. */
  readonly self: string | undefined
  /** The operator's name, as the command sent it. */
  readonly operator: string | undefined
  /** Whether an operator's command sent the call. */
  readonly isOperator: boolean
}
export interface Call<Request> {
  readonly request: Request
  readonly credentials: CallCredentials
  readonly context: Context
  /** Receives the platform admin that the guard of a recorded RPC has admitted. */
  readonly admin?: AdmittedAdmin | undefined
}
interface AdmittedAdmin {
  accountId?: string
}
/** The rules by which a call is admitted by its metadata, before its message is read. */
export interface Admission {
  /** Roles that may call. Messages of other callers are not read. */
  readonly roles: readonly ServiceRole[]
  /** Maximum size of a request message in bytes. Default is `smallMessageBytes`. */
  readonly messageMaxBytes?: number
  /** See `Guard`. */
  readonly operatorLog?: OperatorLogging | undefined
}
// Method syntax, so that handlers of many request types fit into one map.
export interface Rpc<Request, Response> extends Admission {
  unary(call: Call<Request>, runtime: Runtime): Promise<Response>
}
export interface StreamRpc<Request, Response> extends Admission {
  stream(
    call: Call<Request> & FlowControl,
    deps: ServeDeps,
    emit: (message: Response) => void,
  ): Promise<void>
}
interface FlowControl {
  /** Resolves when the client has read enough that more may be emitted. */
  writable(): Promise<void>
}
/** Data and functions for the handler of a stream. */
export interface StreamContext<C extends Caller> extends Context, FlowControl {
  readonly caller: C
  /** Runs the guard again, because permissions may end during a stream. Throws its error. */
  reauthorize(): Promise<void>
}

export interface ServeDeps {
  readonly authenticator: Authenticator
  readonly log: Log
  readonly metrics: Metrics
}

export interface BinderDeps extends ServeDeps {
  readonly operatorLog: Pick<OperatorLog, 'record'>
  /** Whether an operator's command sent an admitted call of an RPC with these roles. */
  isOperator(metadata: Metadata, roles: readonly ServiceRole[]): boolean
}

export interface Refusal {
  readonly reason: Reason
  readonly membersJson: string | undefined
  readonly reply: { readonly code: number; readonly details: string; readonly metadata: Metadata }
}
/** Dependencies of unary RPCs. */
interface Runtime extends ServeDeps {
  /** Runs and times one call. Logs and returns a refusal instead of throwing it. */
  settle<Response>(
    path: string,
    context: Context,
    work: () => Promise<Response>,
  ): Promise<{ response: Response } | Refusal>
}

/**
 * A unary RPC. The guard runs first and decides who may call; the handler runs only if it passed.
 */
export function rpc<Request, Response, C extends Caller>(
  guard: Guard<C>,
  handler: (request: Request, caller: C, context: Context) => Promise<Response>,
  options: Pick<Admission, 'messageMaxBytes'> = {},
): Rpc<Request, Response> {
  return {
    ...options,
    roles: guard.roles,
    operatorLog: guard.operatorLog,
    unary: async (call, deps) =>
      handler(call.request, await admitCaller(guard, call, deps), call.context),
  }
}

/** A server-streaming RPC. It ends when the handler's promise settles or the client disconnects. */
export function streamRpc<Request, Response, C extends Caller>(
  guard: Guard<C>,
  handler: (
    request: Request,
    emit: (message: Response) => void,
    context: StreamContext<C>,
  ) => Promise<void>,
): StreamRpc<Request, Response> {
  return {
    roles: guard.roles,
    operatorLog: guard.operatorLog,
    stream: async ({ writable, ...call }, deps, emit) => {
      const caller = await admitCaller(guard, call, deps)
      await handler(call.request, emit, {
        ...call.context,
        writable,
        caller,
        reauthorize: async () => void (await runGuard(guard, call, deps)),
      })
    },
  }
}

interface GuardedCall {
  readonly request: unknown
  readonly credentials: CallCredentials
}

export const runGuard = <C extends Caller>(
  guard: Guard<C>,
  { request, credentials: { authorization, ...credentials } }: GuardedCall,
  { authenticator }: ServeDeps,
): Promise<C> =>
  guard.admit(
    {
      ...credentials,
      credential: parseCredential(authorization),
      clientId: readClientId(request),
    },
    authenticator,
  )

/** Like `runGuard`; also reports a platform admin, whose calls of a recorded RPC are recorded. */
async function admitCaller<C extends Caller>(
  guard: Guard<C>,
  call: Call<unknown>,
  deps: ServeDeps,
): Promise<C> {
  const caller = await runGuard(guard, call, deps)
  if (call.admin && guard.operatorLog && caller.kind === 'account' && caller.isPlatformAdmin)
    call.admin.accountId = caller.accountId
  return caller
}

/** The app that a request names in its `clientId`. */
export function readClientId(request: unknown): string | undefined {
  const clientId =
    typeof request === 'object' && request !== null && 'clientId' in request
      ? request.clientId
      : undefined
  return typeof clientId === 'string' ? clientId : undefined
}

/** The handlers of a generated service. A missing or misspelt name does not compile. */
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

/** Combines a service definition with the handlers that have its generated types. */
export const grpcService = <Server>(
  definition: ServiceDefinition,
  handlers: Handlers<Server>,
): Service => ({
  definition,
  handlers: Object.fromEntries(
    Object.entries<Rpc<unknown, unknown> | StreamRpc<unknown, unknown>>(handlers),
  ),
})

interface NotedCall extends GuardedCall {
  readonly context: Pick<Context, 'correlationId'>
  readonly admin: AdmittedAdmin
  readonly reason: Reason | null
}

/** A stream ends if more messages than this wait for its reader. */
const unreadMax = 10_000

const correlationIdOf = (metadata: Metadata): string =>
  correlationIdFrom(metadata.get(correlationHeader)[0])

export function readMetadata(metadata: Metadata, name: string): string | undefined {
  const value = metadata.get(name)[0]
  return typeof value === 'string' ? value : undefined
}

/** Reads the context of a unary call on demand, because few handlers use it. */
function createContext(
  call: ServerUnaryCall<unknown, unknown>,
  isAnswered: () => boolean,
): Context {
  let abort: AbortController | undefined
  return {
    correlationId: correlationIdOf(call.metadata),
    get operator() {
      return readMetadata(call.metadata, operatorHeader)
    },
    get signal() {
      if (abort) return abort.signal
      const controller = (abort = new AbortController())
      if (call.cancelled) controller.abort()
      // grpc-js also emits "cancelled" when an answered call closes. An abort would then only cost
      // an error.
      else call.on('cancelled', () => isAnswered() || controller.abort())
      return controller.signal
    },
  }
}

/** Turns handlers into functions for grpc-js. Calls are timed, refused and logged only here. */
export function createBinder(deps: BinderDeps) {
  const seconds = createDurations(deps.metrics)
  const runtime: Runtime = { ...deps, settle }

  const credentialsOf = (metadata: Metadata, { roles }: Admission): CallCredentials => ({
    authorization: readMetadata(metadata, 'authorization'),
    session: readMetadata(metadata, sessionHeader),
    self: readMetadata(metadata, selfHeader),
    operator: readMetadata(metadata, operatorHeader),
    isOperator: deps.isOperator(metadata, roles),
  })

  /** Records a call whose message is not read. */
  function refuseUnread(error: unknown, path: string, metadata: Metadata): Refusal {
    const correlationId = correlationIdOf(metadata)
    const refusal = refuse(deps.log, error, { rpc: path, correlationId })
    seconds.observe({ rpc: path, reason: refusal.reason }, 0)
    return refusal
  }

  async function settle<Response>(
    path: string,
    context: Context,
    work: () => Promise<Response>,
  ): Promise<{ response: Response } | Refusal> {
    const stop = seconds.startTimer({ rpc: path })
    try {
      const response = await work()
      stop({ reason: 'OK' })
      return { response }
    } catch (error) {
      const { correlationId } = context
      const refusal = refuse(deps.log, error, { rpc: path, correlationId })
      stop({ reason: refusal.reason })
      return refusal
    }
  }

  /**
   * Records a call of an operator or platform admin before the response is sent, so that its
   * recipient finds the entry.
   */
  async function note(
    path: string,
    { operatorLog }: Admission,
    { request, credentials, context, admin, reason }: NotedCall,
  ): Promise<void> {
    if (operatorLog === undefined || (!credentials.isOperator && !admin.accountId)) return
    await deps.operatorLog.record({
      rpc: path,
      request,
      actor: admin.accountId ?? operatorName(credentials.operator),
      correlationId: context.correlationId,
      isRepeated: operatorLog === 'repeated',
      reason,
    })
  }

  function unaryHandler<Request, Response>(
    path: string,
    handler: Rpc<Request, Response>,
  ): handleUnaryCall<Request, Response> {
    return (call: ServerUnaryCall<Request, Response>, done: sendUnaryData<Response>) => {
      let answered = false
      const context = createContext(call, () => answered)
      const guarded = { request: call.request, credentials: credentialsOf(call.metadata, handler) }
      const admin: AdmittedAdmin = {}
      const work = (): Promise<Response> => handler.unary({ ...guarded, context, admin }, runtime)
      const settled = settle(path, context, work).then(async (outcome) => {
        const reason = 'response' in outcome ? null : outcome.reason
        await note(path, handler, { ...guarded, context, admin, reason })
        return outcome
      })
      void settled.then((settled) => {
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
      // Send the headers at once, so that the client can detect the connection before the first
      // message.
      call.sendMetadata(new Metadata())
      const emit = (message: Response): void => {
        if (call.writableLength < unreadMax) call.write(message)
        else abort.abort()
      }
      const writable = async (): Promise<void> => {
        if (call.writableNeedDrain) await once(call, 'drain', { signal: abort.signal })
      }
      const guarded = { request: call.request, credentials: credentialsOf(call.metadata, handler) }
      const admin: AdmittedAdmin = {}
      const run = async (): Promise<void> => {
        await handler.stream({ ...guarded, context, writable, admin }, deps, emit)
        if (call.writableLength >= unreadMax) throw tooSlow()
      }
      const end = async (refusal: Refusal | null): Promise<void> => {
        const reason = refusal?.reason ?? null
        await note(path, handler, { ...guarded, context, admin, reason })
        if (refusal) call.emit('error', refusal.reply)
        else call.end()
      }
      void run().then(
        () => end(null),
        (error: unknown) =>
          end(refuse(deps.log, error, { rpc: path, correlationId: context.correlationId })),
      )
    }
  }

  /** The handlers of a service in the form that grpc-js calls. */
  function bind(
    definition: ServiceDefinition,
    handlers: Service['handlers'],
  ): UntypedServiceImplementation {
    const implementation: UntypedServiceImplementation = {}
    for (const [name, handler] of Object.entries(handlers)) {
      const path = toServicePath(definition, name)
      implementation[name] =
        'unary' in handler
          ? traceUnary(path, unaryHandler(path, handler))
          : traceStream(path, streamHandler(path, handler))
    }
    return implementation
  }

  return { bind, refuseUnread }
}

const createDurations = (metrics: BinderDeps['metrics']) =>
  new Histogram({
    name: 'tollgate_core_rpc_duration_seconds',
    help: 'Time to answer an RPC',
    labelNames: ['rpc', 'reason'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
    registers: [metrics],
  })

/** Logs an error and turns it into the reply of its call. */
function refuse(
  log: BinderDeps['log'],
  error: unknown,
  { rpc: path, correlationId }: { readonly rpc: string; readonly correlationId: string },
): Refusal {
  const { reason, message, members } = error instanceof DomainError ? error : domainErrorOf(error)
  const row = reasons[reason]
  const level = row.http >= 500 ? 'error' : 'debug'
  log[level](
    { rpc: path, reason, correlationId, err: row.http >= 500 ? error : undefined },
    'rpc refused',
  )
  const metadata = new Metadata()
  metadata.set(reasonTrailer, reason)
  const membersJson = members && membersText(members)
  if (membersJson !== undefined) metadata.set(membersTrailer, membersJson)
  return {
    reason,
    membersJson,
    reply: {
      code: row.grpc,
      details: row.http === 500 ? 'internal error' : message,
      metadata,
    },
  }
}

/** The path of an RPC by its handler's name, as used in logs and metrics. */
export const toServicePath = (definition: ServiceDefinition, name: string): string =>
  definition[name]?.path.replace(/^\//, '') ?? name

const tooSlow = (): DomainError =>
  new DomainError('UNAVAILABLE', 'the stream was not read fast enough; open it again')

// An unavailable database is not a bug: the caller may try again.
function domainErrorOf(error: unknown): DomainError {
  return isUnavailable(error)
    ? new DomainError('UNAVAILABLE', 'the database does not answer; try again', { cause: error })
    : new DomainError('INTERNAL', 'internal error', { cause: error })
}
