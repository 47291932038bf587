import {
  type handleServerStreamingCall,
  type handleUnaryCall,
  Metadata,
  Server,
  ServerCredentials,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js'
import { type Reason, reasonTrailer, reasons } from '../../../proto/errors.ts'
import * as billing from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import * as clock from '../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import * as collections from '../../../proto/gen/ts-proto/tollgate/billing/v1/collections.ts'
import * as invoices from '../../../proto/gen/ts-proto/tollgate/billing/v1/invoices.ts'
import * as overage from '../../../proto/gen/ts-proto/tollgate/billing/v1/overage.ts'
import * as owners from '../../../proto/gen/ts-proto/tollgate/billing/v1/owners.ts'
import * as payments from '../../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import * as wallet from '../../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import * as webhooks from '../../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import * as whatif from '../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import * as escrow from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import * as mail from '../../../proto/gen/ts-proto/tollgate/mail/v1/mail.ts'
import * as metering from '../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import * as checks from '../../../proto/gen/ts-proto/tollgate/books/v1/checks.ts'
import * as outbox from '../../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import * as reconciliation from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import * as discovery from '../../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import * as quarantine from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import * as readiness from '../../../proto/gen/ts-proto/tollgate/shared/v1/readiness.ts'
import * as settings from '../../../proto/gen/ts-proto/tollgate/shared/v1/settings.ts'
import * as decisions from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import * as signers from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import * as balances from './balances.ts'
import * as identity from './identity.ts'
import * as plans from './plans.ts'
import * as tokens from './tokens.ts'
import * as usage from './usage.ts'

/** Default answers of core, for RPCs that a test does not script. */
const answers = {
  ...identity.answers,
  ...tokens.answers,
  ...balances.answers,
  ...plans.answers,
  ...usage.answers,
  getMailDelivery: { delivery: 'none' } satisfies mail.GetMailDeliveryResponse,
  getReadiness: { parts: [], now: '' } satisfies readiness.GetReadinessResponse,
}

export type Rpc = keyof typeof answers

export interface SeenCall {
  readonly rpc: Rpc
  readonly request: object
  readonly metadata: Metadata
}
interface Refusal {
  readonly reason: Reason | null
  readonly code: number
  readonly details: string
  /** Selects the refused callers; all if absent. */
  readonly isFor?: (caller: { readonly authorization: string }) => boolean
}

function trailersOf({ reason }: Refusal): Metadata {
  const trailers = new Metadata()
  if (reason) trailers.set(reasonTrailer, reason)
  return trailers
}

const services: ServiceDefinition[] = [
  ...identity.services,
  ...tokens.services,
  ...balances.services,
  ...plans.services,
  ...usage.services,
  billing.BillingServiceService,
  collections.CollectionServiceService,
  invoices.InvoiceServiceService,
  overage.OverageServiceService,
  owners.OwnerAccountServiceService,
  payments.PaymentServiceService,
  wallet.WalletServiceService,
  webhooks.WebhookEndpointServiceService,
  clock.TestClockServiceService,
  whatif.WhatIfServiceService,
  signers.AppSecretServiceService,
  decisions.DecisionServiceService,
  discovery.DiscoveryServiceService,
  quarantine.QuarantineServiceService,
  reconciliation.ProcessorReconciliationServiceService,
  escrow.HoldServiceService,
  mail.MailServiceService,
  metering.MeteringServiceService,
  checks.CheckServiceService,
  outbox.OutboxServiceService,
  signers.SignersServiceService,
  readiness.ReadinessServiceService,
  settings.SettingServiceService,
]

/** Creates a server of core's services. RPCs without a script answer NOT_FOUND. */
function createServer(scripted: UntypedServiceImplementation): Server {
  const server = new Server()
  for (const service of services) {
    const implementation = Object.entries(service).map(([name, { responseStream }]) => [
      name,
      scripted[name] ?? (responseStream ? refuseStream : refuseCall),
    ])
    server.addService(service, Object.fromEntries(implementation))
  }
  return server
}

function notFound() {
  const metadata = new Metadata()
  metadata.set(reasonTrailer, 'NOT_FOUND')
  return { code: reasons.NOT_FOUND.grpc, details: 'not there', metadata }
}

const refuseCall: handleUnaryCall<object, object> = (_, done) => done(notFound())

const refuseStream: handleServerStreamingCall<object, object> = (call) =>
  void call.emit('error', notFound())

const listen = (server: Server): Promise<number> =>
  new Promise((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  )

interface BatchRequest {
  readonly calls: readonly {
    readonly request?: object
    readonly authorization?: string
    readonly correlationId: string
  }[]
}

/** Serves core's services with scripted answers and records the calls. */
export async function startCoreDouble() {
  const calls: SeenCall[] = []
  const batches: Rpc[] = []
  const refusals = new Map<Rpc, Refusal>()
  const silent = new Set<Rpc>()
  const replaced = new Map<Rpc, object>()

  function refusalFor(rpc: Rpc, metadata: Metadata): Refusal | undefined {
    const refusal = refusals.get(rpc)
    const authorization = String(metadata.get('authorization')[0] ?? '')
    return refusal?.isFor?.({ authorization }) === false ? undefined : refusal
  }

  const handlers: Record<string, handleUnaryCall<object, object>> = {}
  for (const [name, fallback] of Object.entries(answers)) {
    const rpc = rpcName(name)
    handlers[rpc] = ({ request, metadata }, done) => {
      calls.push({ rpc, request, metadata })
      const refusal = refusalFor(rpc, metadata)
      if (silent.has(rpc)) return
      if (!refusal) return done(null, replaced.get(rpc) ?? fallback)
      done({ code: refusal.code, details: refusal.details, metadata: trailersOf(refusal) })
    }
  }

  /**
   * Answers each call of the batch like the RPC for one call. A failure without a reason fails the
   * whole RPC.
   */
  const batched =
    (rpc: Rpc): handleUnaryCall<BatchRequest, object> =>
    (call, done) => {
      if (silent.has(rpc)) return
      const seen = call.request.calls.map(({ request = {}, authorization, correlationId }) => {
        const metadata = call.metadata.clone()
        if (authorization !== undefined) metadata.set('authorization', authorization)
        metadata.set('x-correlation-id', correlationId)
        return { rpc, request, metadata }
      })
      calls.push(...seen)
      batches.push(rpc)
      const refusal = refusals.get(rpc)
      if (refusal && (refusal.reason === null || refusal.reason === 'SERVICE_TOKEN_INVALID')) {
        return done({ code: refusal.code, details: refusal.details, metadata: trailersOf(refusal) })
      }
      const response = replaced.get(rpc) ?? answers[rpc]
      const answersOf = seen.map(({ metadata }) => {
        const { reason, details = '' } = refusalFor(rpc, metadata) ?? {}
        return reason ? { refusal: { reason, details } } : { response }
      })
      done(null, { answers: answersOf })
    }

  const server = createServer({
    ...handlers,
    mintUserTokens: batched('mintUserToken'),
    upsertUsers: batched('upsertUser'),
    createKeys: batched('createKey'),
    createGrants: batched('createGrant'),
    getBalances: batched('getBalance'),
    exchangeBuilderTokens: batched('exchangeBuilderToken'),
  })
  const port = await listen(server)

  return {
    target: `127.0.0.1:${port}`,
    calls,
    /** The RPC of each batched message. */
    batches,
    last: (): SeenCall => calls.at(-1) ?? missing(),
    names: () => calls.map(({ rpc }) => rpc),
    refuse: (rpc: Rpc, reason: Reason, details = `because of ${reason}`) =>
      void refusals.set(rpc, { reason, code: reasons[reason].grpc, details }),
    /** Refuses the callers that `isFor` selects. */
    refuseWhen: (rpc: Rpc, isFor: NonNullable<Refusal['isFor']>, reason: Reason) =>
      void refusals.set(rpc, {
        reason,
        code: reasons[reason].grpc,
        details: `because of ${reason}`,
        isFor,
      }),
    /** Fails without a reason, as gRPC itself does. */
    fail: (rpc: Rpc, code: number) =>
      void refusals.set(rpc, { reason: null, code, details: 'secret detail' }),
    hang: (rpc: Rpc) => void silent.add(rpc),
    answer: <R extends Rpc>(rpc: R, message: (typeof answers)[R] | object) =>
      void replaced.set(rpc, message),
    reset: () => {
      calls.length = 0
      refusals.clear()
      silent.clear()
      replaced.clear()
    },
    stop: () => server.forceShutdown(),
  }
}

export type CoreDouble = Awaited<ReturnType<typeof startCoreDouble>>

function missing(): never {
  throw new Error('core was not asked')
}

function isRpc(name: string): name is Rpc {
  return Object.hasOwn(answers, name)
}

function rpcName(name: string): Rpc {
  return isRpc(name) ? name : missing()
}
