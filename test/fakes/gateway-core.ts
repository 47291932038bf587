import {
  type handleServerStreamingCall,
  type handleUnaryCall,
  Metadata,
  Server,
  ServerCredentials,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js'
import { type Reason, reasonTrailer, reasons } from '../../proto/errors.ts'
import * as accounts from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as allowances from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import * as limits from '../../proto/gen/ts-proto/tollgate/allowances/v1/limits.ts'
import * as quotas from '../../proto/gen/ts-proto/tollgate/allowances/v1/quotas.ts'
import * as billing from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import * as clock from '../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import * as whatif from '../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import * as identity from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import * as issuers from '../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import * as registrations from '../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import * as management from '../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import * as builder from '../../proto/gen/ts-proto/tollgate/keys/v1/builder.ts'
import * as keys from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import * as subscriptions from '../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import * as catalog from '../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import * as plans from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import * as readiness from '../../proto/gen/ts-proto/tollgate/platform/v1/readiness.ts'
import * as grants from '../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import * as devices from '../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import * as authorization from '../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import * as tokens from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import * as decisions from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import * as signers from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import * as loss from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import * as receipts from '../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import * as tickets from '../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import * as meters from '../../proto/gen/ts-proto/tollgate/usage/v1/meters.ts'
import * as usage from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'

export const clientId = 'app_0123456789abcdef01234567'
const at = '2026-01-02T03:04:05.000Z'

const user: identity.User = {
  id: '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11',
  clientId,
  externalUserId: 'ada',
  email: 'ada@example.com',
  status: 'active',
  createdAt: at,
  updatedAt: at,
  deactivatedAt: undefined,
  role: 'user',
}
const explained = tickets.Ticket.fromPartial({
  clientId,
  eventId: 'e-1',
  gatewayRequestId: 'r-1',
  endUserId: user.id,
  externalUserId: 'ada',
  sessionId: 's-1',
  sequenceNumber: '7',
  manifestId: 'm-1',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  signedAt: '2026-01-02T03:04:05.000001Z',
  receivedAt: at,
  feeWei: '1000000000000000',
  sale: {
    rate: { id: '1', source: 'fixed', observedAt: at, usdPerEth: '3000' },
    networkCostUsd: '3',
    plan: { id: 'p-1', name: 'Pro', version: 2, termsId: '9' },
    rule: { name: 'plan', retailRateUsd: '0.0000015', multiple: '1.5' },
    retailCostUsd: '4.5',
    platformFeeUsd: '0',
    platformFeeWei: '0',
    ownerChargeUsd: '3',
    charge: {
      id: 'c-1',
      seq: '4',
      bookedAt: at,
      ticketCount: 2,
      paidUsd: '9',
      overageUsd: '0',
      draws: [{ creditId: 'g-1', kind: 'grant', source: 'manual', amountUsd: '9' }],
    },
  },
  formula: ['fee = 1000000000000000 wei = 0.001 ETH'],
})
const issuedReceipt = receipts.Receipt.fromPartial({
  receipt: 'e30.e30.c2ln',
  proof: { day: '2026-01-02', leafIndex: 1, treeSize: 2, inclusionPath: ['0'.repeat(64)] },
  root: 'e30.e30.cm9vdA',
  keys: [{ kty: 'EC', kid: 'k-1', alg: 'ES256', use: 'sig', crv: 'P-256', x: 'eA', y: 'eQ' }],
  jwksUri: 'https://svc.example/api/v1/oidc/jwks',
})
const grant: allowances.Grant = {
  id: 'g-1',
  amountUsdMicros: '5000000',
  source: 'plan_adjustment',
  createdAt: at,
  featureKey: undefined,
  expiresAt: undefined,
  remainingUsdMicros: '4999990',
}
const allowance: allowances.Allowance = {
  externalUserId: 'ada',
  balanceUsdMicros: '4999990',
  consumedUsdMicros: '10',
  lifetimeGrantedUsdMicros: '5000000',
  grants: [grant],
  remainingUsdMicros: '4999980',
  hasAccess: true,
  featureBalances: [{ featureKey: 'live', balanceUsdMicros: '7' }],
}
const balance: allowances.Balance = {
  externalUserId: 'ada',
  balanceUsdMicros: '4999990',
  remainingUsdMicros: '4999980',
  consumedUsdMicros: '10',
  lifetimeGrantedUsdMicros: '5000000',
  hasAccess: true,
  unpricedTickets: '2',
  featureBalances: [],
}
const sums = {
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  requestCount: '3',
  feeWei: '3000000000000000',
  networkFeeUsdMicros: '9000000',
  networkFeeUsdExact: '9',
  ownerChargeUsdMicros: '9000000',
  platformFeeUsdMicros: '0',
  billableSecs: '1.5',
  firstAt: at,
  lastAt: at,
}
const ticket: usage.UsageRequest = {
  time: at,
  eventId: 'e-1',
  gatewayRequestId: 'req-9',
  endUserId: user.id,
  externalUserId: 'ada',
  appName: 'Demo',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  manifestId: 'm-1',
  sessionId: 's-1',
  sequenceNumber: '0',
  feeWei: '1000000000',
  networkFeeUsdMicros: '3',
  networkFeeUsdExact: '0.000003',
  ethUsdPrice: '3000',
  billableSecs: '1.5',
  pixels: '262144',
  endUserBillableUsdMicros: '5',
  endUserBillableUsdExact: '0.0000045',
  ownerChargeUsdMicros: '4',
  platformFeeUsdExact: '0.0000003',
  platformFeeWei: '100000000',
  termsId: '7',
  priceRule: 'plan',
}
const unpriced: usage.UsageRequest = {
  ...ticket,
  eventId: 'e-2',
  externalUserId: undefined,
  networkFeeUsdMicros: undefined,
  networkFeeUsdExact: undefined,
  ethUsdPrice: undefined,
  endUserBillableUsdMicros: undefined,
  endUserBillableUsdExact: undefined,
  ownerChargeUsdMicros: undefined,
  platformFeeUsdExact: undefined,
  platformFeeWei: undefined,
  termsId: undefined,
  priceRule: undefined,
}
const session: usage.UsageSession = {
  sessionId: 's-1',
  manifestId: 'm-1',
  endUserId: user.id,
  externalUserId: 'ada',
  appName: 'Demo',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  requestCount: '3',
  unpricedCount: '1',
  feeWei: '3000000000',
  networkFeeUsdMicros: '9',
  networkFeeUsdExact: '0.000009',
  billableSecs: '1.5',
  pixels: '262144',
  endUserBillableUsdMicros: '14',
  endUserBillableUsdExact: '0.0000135',
  ownerChargeUsdMicros: '10',
  platformFeeUsdExact: '0.0000009',
  platformFeeWei: '300000000',
  startedAt: at,
  endedAt: at,
}
const used: usage.Usage = {
  clientId,
  start: undefined,
  end: undefined,
  totals: {
    requestCount: '3',
    totalFeeWei: '3000000000000000',
    totalFeeEth: '0.003',
    networkFeeUsdMicros: '9000000',
    unpricedCount: '1',
    ownerChargeWei: '3000000000000000',
    ownerChargeUsdMicros: '9000000',
    platformFeeWei: '0',
    platformFeeUsdMicros: '0',
  },
  byUser: [
    {
      endUserId: user.id,
      externalUserId: 'ada',
      requestCount: '2',
      feeWei: '2000000000000000',
      networkFeeUsdMicros: '6000000',
      ownerChargeUsdMicros: '6000000',
      platformFeeUsdMicros: '0',
    },
    {
      endUserId: 'unknown',
      externalUserId: undefined,
      requestCount: '1',
      feeWei: '1000000000000000',
      networkFeeUsdMicros: '3000000',
      ownerChargeUsdMicros: '3000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byPipelineModel: [
    {
      pipeline: 'text-to-image',
      modelId: 'sdxl',
      requestCount: '3',
      feeWei: '3000000000000000',
      feeEth: '0.003',
      networkFeeUsdMicros: '9000000',
      ownerChargeUsdMicros: '9000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byDailyPipeline: [
    {
      date: '2026-01-02',
      pipeline: 'text-to-image',
      modelId: 'sdxl',
      requestCount: '3',
      feeWei: '3000000000000000',
      feeEth: '0.003',
      networkFeeUsdMicros: '9000000',
      ownerChargeUsdMicros: '9000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byManifest: [{ ...sums, manifestId: 'm-1' }],
  bySession: [
    { ...sums, manifestId: 'm-1', sessionId: 's-1', endUserId: user.id, externalUserId: 'ada' },
  ],
  byDay: [
    {
      date: '2026-01-02',
      requestCount: '3',
      feeWei: '3000000000000000',
      networkFeeUsdMicros: '9000000',
      ownerChargeUsdMicros: '9000000',
      platformFeeUsdMicros: '0',
    },
  ],
  events: [ticket],
}
const calls: loss.CallTotals = {
  authorisedCount: '9',
  authorisedUsdMicros: '90',
  ticketedCount: '5',
  ticketedUsdMicros: '40',
  lostCount: '1',
  lostUsdMicros: '10',
  chargedCount: '0',
  chargedUsdMicros: '0',
  releasedCount: '2',
  releasedUsdMicros: '20',
  lateCount: '1',
  lateUsdMicros: '10',
}
const lost: loss.ListLossResponse = {
  clientId,
  period: { start: at, end: undefined },
  totals: {
    sessionCount: '1',
    lostCount: '3',
    estimatedUsdMicros: '7',
    forkedCount: '1',
    lateCount: '2',
  },
  sessions: [
    {
      externalUserId: 'ada',
      manifestId: 'm-1',
      sessionId: '9f86d081',
      startedAt: at,
      lastAt: at,
      requestCount: '5',
      lostCount: '3',
      forkedCount: '1',
      lateCount: '0',
      estimatedUsdMicros: '7',
      missing: [{ first: '2', last: '4' }],
      missingMore: false,
    },
  ],
  nextCursor: 'next',
  calls,
  callSessions: [
    {
      externalUserId: undefined,
      sessionId: '9f86d081',
      type: 'live',
      startedAt: at,
      lastAt: at,
      calls,
    },
  ],
}
const change: subscriptions.SubscriptionChange = {
  subscriptionId: 's-1',
  planId: 'p-1',
  timing: 'immediate',
  effectiveAt: '2026-03-10T12:00:00.000Z',
}

const limit: limits.Limits = {
  usdMicrosPerDay: '2000000',
  usdMicrosPerSession: undefined,
  callsPerMinute: 60,
  concurrentSessions: undefined,
  maxPrices: [{ type: 'live', app: '', maxWei: '1300' }],
}
const token = { accessToken: 'a.b.c', tokenType: 'Bearer', expiresIn: 300, scope: 'sign:job' }

/** Default answers of core, for RPCs that a test does not script. */
const registered = registrations.RegisteredClient.fromPartial({
  registeredClientId: 'dyn_0123456789abcdef01234567',
  redirectUris: ['https://client.example/callback'],
  grantTypes: ['authorization_code'],
  scope: 'openid',
  clientName: 'An agent',
  createdAt: at,
  registrationAccessToken: 'svc_ra_x',
})

const answers = {
  checkCaller: {} satisfies identity.CheckCallerResponse,
  getReadiness: { parts: [] } satisfies readiness.GetReadinessResponse,
  findApp: { clientId } satisfies identity.FindAppResponse,
  checkOrigin: { allowed: false } satisfies management.CheckOriginResponse,
  getSession: {
    session: {
      account: { id: 'a-1', email: 'ada@example.com', name: 'Ada', isPlatformAdmin: false },
      csrfToken: 'csrf',
      authTime: at,
      expiresAt: at,
    },
  } satisfies accounts.GetSessionResponse,
  logIn: { sessionToken: 'a-session', session: undefined } satisfies accounts.LogInResponse,
  upsertUser: { user, created: true } satisfies identity.UpsertUserResponse,
  updateUser: { user } satisfies identity.UpdateUserResponse,
  deactivateUser: {
    user: { ...user, status: 'inactive', deactivatedAt: at },
    effectiveBy: at,
  } satisfies identity.DeactivateUserResponse,
  listUsers: {
    users: [user, { ...user, email: undefined }],
    nextCursor: 'next',
  } satisfies identity.ListUsersResponse,
  createKey: {
    keyId: 'k-1',
    apiKey: `${clientId}_svc_ak_x`,
    createdAt: at,
    externalUserId: 'ada',
    clientId,
    label: undefined,
  } satisfies keys.CreateKeyResponse,
  provisionUser: {
    id: user.id,
    clientId,
    externalUserId: 'ada',
    email: 'ada@example.com',
    status: 'active',
    created: true,
    apiKey: 'sk_x',
  } satisfies builder.ProvisionUserResponse,
  exchangeBuilderToken: {
    ...token,
    issuedTokenType: 'urn:ietf:params:oauth:token-type:access_token',
    session: {
      hasAccess: true,
      balanceUsdMicros: '4200000',
      lifetimeGrantedUsdMicros: '5000000',
      signerUrl: 'https://signer.example',
      discoveryUrl: 'https://signer.example/discover-orchestrators',
    },
  } satisfies grants.ExchangeBuilderTokenResponse,
  registerClient: { client: registered } satisfies registrations.RegisterClientResponse,
  getRegistration: { client: registered } satisfies registrations.GetRegistrationResponse,
  replaceRegistration: { client: registered } satisfies registrations.ReplaceRegistrationResponse,
  deleteRegistration: {} satisfies registrations.DeleteRegistrationResponse,
  queryMeter: {
    externalUserId: 'ada',
    rows: [
      {
        windowStart: at,
        windowEnd: at,
        value: '1250000000000000000001',
        dimensions: { client_id: clientId, external_user_id: 'ada' },
      },
    ],
  } satisfies meters.QueryMeterResponse,
  listKeys: {
    keys: [
      {
        keyId: 'k-1',
        createdAt: at,
        status: 'active',
        revokedAt: undefined,
        lastUsedAt: undefined,
        prefix: 'svc_ak_1a2b',
        label: 'laptop',
      },
    ],
    nextCursor: undefined,
  } satisfies keys.ListKeysResponse,
  revokeKey: { revokedAt: at, effectiveBy: at } satisfies keys.RevokeKeyResponse,
  issueMachineToken: {
    ...token,
    expiresIn: 3600,
    scope: 'users:read',
  } satisfies tokens.IssueMachineTokenResponse,
  mintUserToken: token satisfies tokens.MintUserTokenResponse,
  exchangeApiKey: { ...token, externalUserId: 'ada' } satisfies tokens.ExchangeApiKeyResponse,
  getJwks: {
    keys: [
      {
        kty: 'RSA',
        kid: 'one',
        alg: 'RS256',
        use: 'sig',
        n: 'AQAB',
        e: 'AQAB',
        crv: undefined,
        x: undefined,
        y: undefined,
      },
    ],
  } satisfies tokens.GetJwksResponse,
  getAllowance: { allowance } satisfies allowances.GetAllowanceResponse,
  createGrant: {
    allowance,
    grant: { ...grant, source: 'manual' },
  } satisfies allowances.CreateGrantResponse,
  getBalance: { balance } satisfies allowances.GetBalanceResponse,
  getOwnBalance: { balance } satisfies allowances.GetOwnBalanceResponse,
  getLimits: { limits: limit } satisfies limits.GetLimitsResponse,
  setLimits: { limits: limit } satisfies limits.SetLimitsResponse,
  clearLimits: {} satisfies limits.ClearLimitsResponse,
  getSubscription: {
    state: { externalUserId: 'ada', source: 'ledger' },
  } satisfies subscriptions.GetSubscriptionResponse,
  listSubscriptions: {
    externalUserId: 'ada',
    items: [],
  } satisfies subscriptions.ListSubscriptionsResponse,
  changeSubscription: { change } satisfies subscriptions.ChangeSubscriptionResponse,
  cancelSubscription: { change } satisfies subscriptions.CancelSubscriptionResponse,
  resumeSubscription: { change } satisfies subscriptions.ResumeSubscriptionResponse,
  queryUsage: { usage: used } satisfies usage.QueryUsageResponse,
  listLoss: lost,
  getAppReceipt: { receipt: issuedReceipt } satisfies receipts.GetAppReceiptResponse,
  listAppRoots: {
    roots: {
      roots: [
        { day: '2026-01-02', treeSize: 2, rootHash: '0'.repeat(64), statement: 'e30.e30.cm9vdA' },
      ],
      keys: issuedReceipt.keys,
      nextFrom: '2026-01-03',
    },
  } satisfies receipts.ListAppRootsResponse,
  explainAppTicket: { ticket: explained } satisfies tickets.ExplainAppTicketResponse,
  queryOwnUsage: { usage: used } satisfies usage.QueryOwnUsageResponse,
  listUsageRequests: {
    requests: [ticket, unpriced],
    openmeterConfigured: true,
    nextCursor: 'next',
  } satisfies usage.ListUsageRequestsResponse,
  listOwnUsageRequests: {
    requests: [ticket],
    openmeterConfigured: true,
    nextCursor: undefined,
    clientId,
    externalUserId: 'ada',
  } satisfies usage.ListOwnUsageRequestsResponse,
  listUsageSessions: {
    sessions: [session],
    openmeterConfigured: true,
    nextCursor: undefined,
  } satisfies usage.ListUsageSessionsResponse,
  listOwnUsageSessions: {
    sessions: [{ ...session, endedAt: undefined }],
    openmeterConfigured: true,
    nextCursor: 'next',
    clientId,
    externalUserId: 'ada',
  } satisfies usage.ListOwnUsageSessionsResponse,
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
  identity.AppServiceService,
  identity.CallerServiceService,
  identity.UserServiceService,
  accounts.AccountServiceService,
  management.ManagementServiceService,
  issuers.TrustedIssuerServiceService,
  registrations.RegistrationServiceService,
  keys.KeyServiceService,
  builder.BuilderUserServiceService,
  meters.MeterServiceService,
  tokens.TokenServiceService,
  allowances.AllowanceServiceService,
  limits.LimitServiceService,
  quotas.CreditQuotaServiceService,
  quotas.NetworkQuotaServiceService,
  billing.BillingServiceService,
  clock.TestClockServiceService,
  whatif.WhatIfServiceService,
  signers.OwnSignerServiceService,
  loss.LossServiceService,
  decisions.DecisionServiceService,
  usage.UsageServiceService,
  tickets.TicketServiceService,
  receipts.ReceiptServiceService,
  catalog.CatalogServiceService,
  plans.PlanServiceService,
  subscriptions.SubscriptionServiceService,
  grants.GrantServiceService,
  devices.DeviceServiceService,
  authorization.AuthorizationServiceService,
  readiness.ReadinessServiceService,
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
