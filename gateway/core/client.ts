import { setTimeout as sleep } from 'node:timers/promises'
import type {
  DescMessage,
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf'
import {
  type CallOptions,
  type Interceptor,
  type Transport,
  createClient,
} from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'
import { isOfOtherIssuer } from '../../core/lib/foreign-tokens/form.ts'
import { currentValue } from '../../core/lib/settings/reloadable.ts'
import { activeTracing, traceCall } from '../../core/lib/telemetry/tracing.ts'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { DomainError } from '../../proto/errors.ts'
import { type BatchedCall, type CallAnswer, batchCalls } from './batched-calls.ts'
import {
  type CallContext,
  type CallerCredential,
  type CoreOptions,
  createCallContext,
  isConnectionError,
  rethrow,
} from './call-context.ts'
import { services } from './services.ts'
import { openSessions } from './sessions.ts'

const maxAnswerBytes = 16 * 1024 * 1024

/**
 * Time for a method that calls the payment processor: two slow requests in a row, each after up to
 * 10 s in the queue and with two attempts of 10 s (STRIPE_TIMEOUT_MS). If the processor is down,
 * core reports it after the first request. A customer who was deleted there costs up to six requests;
 * if all of them are slow, the caller gets UNAVAILABLE and repeats the call.
 */
const processorMs = 65_000

/** Deadlines of methods that may take longer than the others. */
const deadlines = new Map<DescMethod, number>([
  [services.payments.method.createTopUp, processorMs],
  [services.payments.method.createCardSetup, processorMs],
  [services.payments.method.createPlanCheckout, processorMs],
  [services.subscriptions.method.updateSubscription, processorMs],
  [services.ownerAccounts.method.updateOwnerPlan, processorMs],
  [services.billing.method.connectProcessor, processorMs],
  [services.billing.method.completeProcessorConnection, processorMs],
  [services.billing.method.refreshProcessorConnection, processorMs],
  [services.billing.method.getProcessorBalance, processorMs],
  [services.billing.method.listPayouts, processorMs],
  // Core stops after a minute and reports it.
  [services.whatIf.method.simulatePlans, 65_000],
  // The identity provider may take 12 s of it; then core reports it as unavailable.
  [services.builderUsers.method.provisionUser, 20_000],
  // Core stops after 3 s, once a page of 20 events is finished.
  [services.quarantine.method.redriveReason, 30_000],
  // Core answers after 15 s and reports what is unfinished.
  [services.testClock.method.advanceTestClock, 40_000],
])

/** The methods of a service as called on behalf of one request. */
type CallsOf<Service extends DescService> = {
  readonly [Name in keyof Service['method']]: Service['method'][Name] extends DescMethodUnary<
    infer I,
    infer O
  >
    ? (request: MessageInitShape<I>) => Promise<MessageShape<O>>
    : Service['method'][Name] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>, signal: AbortSignal) => AsyncGenerator<MessageShape<O>>
      : never
}

/** The calls to core on behalf of one request: `core.allowances.createGrant({ ... })`. */
export type CoreCalls = {
  readonly [Name in keyof typeof services]: CallsOf<(typeof services)[Name]>
} & {
  /** Whether core has received this caller's credential. */
  readonly hasCalled: boolean
}

/**
 * Opens this process's connection to core. `callsFor` returns the calls on behalf of one request;
 * each has a deadline and throws only DomainErrors: core's reason, or UNAVAILABLE if core does not
 * answer. `issuer` is the issuer of our own tokens.
 */
export function connectCore({ deadlineMs, ...address }: CoreOptions, issuer: string) {
  const { baseUrl, sessionManager } = openSessions(address)
  const transport = createGrpcTransport({
    baseUrl,
    sessionManager,
    readMaxBytes: maxAnswerBytes,
    interceptors: activeTracing() === null ? [repeatReads] : [traceRpc, repeatReads],
  })
  const options = { transport, token: address.token, deadlineMs }
  const prototype = createPrototype({ batches: createBatches(options), issuer })
  const callsFor = (credential: CallerCredential): CoreCalls =>
    Object.assign(Object.create(prototype), { context: createCallContext(credential, options) })
  return { callsFor, close: () => sessionManager.abort() }
}

const traceRpc: Interceptor = (next) => (request) =>
  traceCall(`${request.service.typeName}/${request.method.name}`, (headers) => {
    for (const [name, value] of Object.entries(headers)) request.header.set(name, value)
    return next(request)
  })

const repeatAfterMs = 50

/**
 * Repeats a read once whose connection broke, because the core or a proxy before it has stopped.
 * Others are not repeated: core may have done them.
 */
const repeatReads: Interceptor = (next) => async (request) => {
  try {
    return await next(request)
  } catch (error) {
    if (!isRead(request.method) || request.signal.aborted || !isConnectionError(error)) throw error
    await sleep(repeatAfterMs, undefined, { signal: request.signal })
    return next(request)
  }
}

/** Reads are named by these verbs. */
const isRead = (method: DescMethod): boolean =>
  isUnary(method) && /^(?:get|list)[A-Z]/.test(method.localName)

export type Core = ReturnType<typeof connectCore>

interface Caller {
  readonly context: CallContext
}

/**
 * Creates the prototype of all callers' calls. A service's methods are created when it is first
 * read, because each request calls only one or two services.
 */
function createPrototype(sending: Sending): object {
  const members = Object.entries(services).map(([name, { methods }]) => {
    const senders = methods.map((method) => [method.localName, senderOf(method, sending)] as const)
    const callsOf = ({ context }: Caller) =>
      Object.fromEntries(senders.map(([method, send]) => [method, send(context)]))
    return [name, getter(callsOf)]
  })
  const hasCalled = getter(({ context }) => context.hasCalled)
  return Object.defineProperties({}, { hasCalled, ...Object.fromEntries(members) })
}

const getter = (read: (caller: Caller) => unknown) => ({
  get(this: Caller) {
    return read(this)
  },
})

interface Sending {
  readonly batches: ReadonlyMap<DescMethod, (call: BatchedCall<never>) => Promise<unknown>>
  /** The issuer of our own tokens. */
  readonly issuer: string
}

/** Returns how a caller calls a method: in a batch, as a stream, or alone. */
function senderOf(method: DescMethod, { batches, issuer }: Sending) {
  const batch = batches.get(method)
  return (context: CallContext) => (request: never, signal: AbortSignal) => {
    if (isStream(method)) return context.stream(method, request, signal)
    if (!isUnary(method)) throw new Error(`calls of ${method.name} are not supported`)
    return batch === undefined || context.hasSession || mayBeSlow(request, issuer)
      ? context.unary(method, request, deadlines.get(method))
      : context.batched(batch, request)
  }
}

const isUnary = (method: DescMethod): method is DescMethod & DescMethodUnary =>
  method.methodKind === 'unary'

const isStream = (method: DescMethod): method is DescMethod & DescMethodServerStreaming =>
  method.methodKind === 'server_streaming'

/**
 * Whether the request has a subject token of another issuer. It is not batched, because fetching the
 * issuer's keys may be slow and would delay a whole batch.
 */
const mayBeSlow = ({ subjectToken = '' }: { subjectToken?: string }, issuer: string): boolean =>
  isOfOtherIssuer(subjectToken, issuer)

/** A method of a Connect client that takes a batch of calls, each with its own credential. */
type PluralMethod<Request, Response> = (
  request: { calls: BatchedCall<Request>[] },
  options: CallOptions,
) => Promise<{ readonly answers: readonly CallAnswer<Response>[] }>

/** Methods that are called so often that concurrent calls share an RPC. */
function createBatches({
  transport,
  token,
  deadlineMs,
}: Pick<CoreOptions, 'token' | 'deadlineMs'> & { readonly transport: Transport }) {
  const users = createClient(services.users, transport)
  const keys = createClient(services.keys, transport)
  const tokens = createClient(services.tokens, transport)
  const allowances = createClient(services.allowances, transport)
  const grants = createClient(services.grants, transport)
  // Three small batches at a time, so that core works on one while another is in transit.
  const inBatches = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    plural: PluralMethod<MessageInitShape<I>, MessageShape<O>>,
  ) => {
    const send = batchCalls<MessageInitShape<I>, MessageShape<O>>(
      async (calls) => {
        const headers = { [serviceTokenHeader]: currentValue(token) }
        return (await plural({ calls }, { headers, timeoutMs: deadlineMs }).catch(rethrow)).answers
      },
      { batchMax: 128, concurrency: 3, waitMs: deadlineMs },
    )
    return [method, send] as const
  }
  return new Map<DescMethod, (call: BatchedCall<never>) => Promise<unknown>>([
    inBatches(services.tokens.method.mintUserToken, tokens.mintUserTokens),
    inBatches(services.users.method.upsertUser, users.upsertUsers),
    inBatches(services.keys.method.createKey, keys.createKeys),
    inBatches(services.allowances.method.createGrant, allowances.createGrants),
    inBatches(services.allowances.method.getBalance, allowances.getBalances),
    inBatches(services.grants.method.exchangeToken, grants.exchangeTokens),
    inBatches(services.grants.method.exchangeBuilderToken, grants.exchangeBuilderTokens),
  ])
}

/**
 * Returns a field that core always sets. Throws INTERNAL if it is missing, which is a bug in core.
 */
export function requireField<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new DomainError('INTERNAL', `core's answer lacks ${name}`)
  return value
}
