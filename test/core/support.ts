import { createHmac } from 'node:crypto'
import { type Server, type Socket, connect as connectSocket, createServer } from 'node:net'
import { credentials } from '@grpc/grpc-js'
import { Pool } from 'pg'
import { type Core, startCore } from '../../core/app.ts'
import { type CoreConfig, readCoreConfig } from '../../core/config.ts'
import type { OutsideParts } from '../../core/modules.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { unary } from '../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { silentLog } from '../../core/lib/log.ts'
import { type Metrics, createMetrics } from '../../core/lib/metrics.ts'
import { DomainError, type Reason, isReason } from '../../proto/errors.ts'
import * as allowances from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import * as limits from '../../proto/gen/ts-proto/tollgate/allowances/v1/limits.ts'
import * as escrow from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import * as identity from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import * as registrations from '../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import * as tenants from '../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import * as keys from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import * as decisions from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import * as signer from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import * as grants from '../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import * as tokens from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import * as loss from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import * as metering from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import * as usage from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { createDatabase } from '../support/postgres.ts'
import { registerSecret } from '../support/secrecy.ts'

export const serviceToken = registerSecret('service-token-of-the-core-tests-0123456789')
/** One token for all roles, as with CORE_TOKEN alone. */
export const serviceTokens = {
  gateway: [serviceToken],
  sidecar: [serviceToken],
  collector: [serviceToken],
  operator: [serviceToken],
}
export const issuer = 'https://svc.example/api/v1/oidc'
export const pepper = registerSecret('pepper-of-the-core-tests-0123456789-abcdef')
/** Not on a whole second, so that rounding shows. */
export const begin = new Date('2026-03-10T12:00:00.250Z')

export interface Clock {
  readonly now: () => Date
  set(instant: Date): void
  advance(milliseconds: number): void
}

export function createClock(start: Date = begin): Clock {
  let at = start.getTime()
  return {
    now: () => new Date(at),
    set: (instant) => {
      at = instant.getTime()
    },
    advance: (milliseconds) => {
      at += milliseconds
    },
  }
}

/**
 * Sessions of this database that wait for a lock. Other databases of the server belong to other
 * tests.
 */
export const lockWaits =
  "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

export const second = 1_000
export const day = 86_400_000

/** Core's settings from an environment, with a fixed rate of 3000 USD per ETH. */
export function configOf(env: Readonly<Record<string, string>>): CoreConfig {
  const reader = createEnvReader({
    CORE_PORT: '0',
    CORE_TOKEN: serviceToken,
    PUBLIC_URL: 'https://svc.example',
    RATE_FIXED: '3000',
    // Apps in tests sell and grow without the gate, which test/core/billing covers.
    ACTIVATION_GATE_MODE: 'off',
    UNPAID_NETWORK_USD: '1000000000',
    APP_CREATION: 'accounts',
    QUOTA_APPS_PER_OWNER: '1000',
    QUOTA_MANUAL_CREDIT_USD: '1000000000',
    KEY_ENCRYPTION_KEY: registerSecret('sealing-key-of-the-core-tests-0123456789'),
    SECRET_PEPPERS: `p1:${pepper}`,
    ...env,
  })
  const config = readCoreConfig(reader)
  if (reader.problems.length > 0) throw new Error(reader.problems.join('; '))
  return config
}

/**
 * Settings for a core where tickets may have to wait: it starts with an observed rate of 3000 USD,
 * and observes no other.
 */
export const observedRate = { RATE_FIXED: '', RATE_URLS: 'http://127.0.0.1:9' }

export interface TestCore {
  readonly core: Core
  readonly clock: Clock
  readonly databaseUrl: string
  /** Metrics of the first core. */
  readonly metrics: Metrics
  /** The tests' own database connections. */
  readonly sql: Pool
  /** Every RPC, called with this Authorization value. */
  as(authorization?: string): Rpcs
  /** Creates an app to which every account may log in, unless another policy is given. */
  newApp(options?: AppOptions & { loginPolicy?: string }): Promise<TestApp>
  /** Starts another core on the same database and clock. */
  startAnother(
    env?: Readonly<Record<string, string>>,
  ): Promise<{ core: Core; as(authorization?: string): Rpcs }>
  stop(): Promise<void>
}

/** Starts a core on its own database, with a clock that the test moves. */
export async function startTestCore(
  env: Readonly<Record<string, string>> = {},
  parts: OutsideParts = {},
): Promise<TestCore> {
  const database = env['DATABASE_URL'] === undefined ? await createDatabase() : null
  const databaseUrl = database?.url ?? env['DATABASE_URL'] ?? ''
  const clock = createClock()
  const start = (more: Readonly<Record<string, string>>, metrics = createMetrics('core')) =>
    startCore(configOf({ ...env, DATABASE_URL: databaseUrl, ...more }), {
      log: silentLog(),
      metrics,
      now: clock.now,
      ...parts,
    })
  const sql = new Pool({ connectionString: databaseUrl, max: 4 })
  sql.on('error', () => {})
  const metrics = createMetrics('core')
  const core = await start({}, metrics)
  if (env['RATE_FIXED'] === '')
    await sql.query(
      `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3000 * 10::numeric ^ 18, 'test', $1, $1)`,
      [begin],
    )
  const caller = createCaller(core.target)
  const stops = [core.stop, async () => caller.close()]

  async function startAnother(more: Readonly<Record<string, string>> = {}) {
    const other = await start(more)
    const otherCaller = createCaller(other.target)
    stops.push(other.stop, async () => otherCaller.close())
    return { core: other, as: otherCaller.as }
  }

  async function stop(): Promise<void> {
    await Promise.all(stops.map((step) => step()))
    await sql.end()
    await database?.drop()
  }

  return {
    core,
    clock,
    databaseUrl,
    metrics,
    sql,
    as: caller.as,
    startAnother,
    stop,
    async newApp({ loginPolicy = 'anyone', ...options } = {}) {
      const app = await createApp(caller.as(), options)
      await sql.query(
        'update apps set login_policy = $1 from clients c where c.app_id = apps.id and c.client_id = $2',
        [loginPolicy, app.clientId],
      )
      return app
    },
  }
}

export interface AppOptions {
  readonly starterUsdMicros?: string
  /** Whether the app has a clock (docs/test-clock.md). */
  readonly isTest?: boolean
  readonly isCustomer?: boolean
}

export interface TestApp {
  readonly clientId: string
  readonly m2mClientId: string
  readonly secret: string
  readonly basic: string
}

async function createApp(rpcs: Rpcs, options: AppOptions): Promise<TestApp> {
  const { clientId, m2mClientId, m2mClientSecret } = await rpcs.createApp({
    name: 'An app',
    isCustomer: true,
    ...options,
  })
  registerSecret(m2mClientSecret)
  return {
    clientId,
    m2mClientId,
    secret: m2mClientSecret,
    basic: basicOf(m2mClientId, m2mClientSecret),
  }
}

export const basicOf = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`
export const bearerOf = (token: string): string => `Bearer ${token}`

/** The stored form of a secret with the tests' pepper. */
export const storedHash = (secret: string): Buffer =>
  createHmac('sha256', pepper).update(secret).digest()

export interface Caller {
  as(authorization?: string): Rpcs
  close(): void
}

/** Calls core over gRPC as our own processes do. */
export function createCaller(target: string, token: string | null = serviceToken): Caller {
  const insecure = credentials.createInsecure()
  const clients = {
    apps: new identity.AppServiceClient(target, insecure),
    callers: new identity.CallerServiceClient(target, insecure),
    users: new identity.UserServiceClient(target, insecure),
    keys: new keys.KeyServiceClient(target, insecure),
    grants: new grants.GrantServiceClient(target, insecure),
    tokens: new tokens.TokenServiceClient(target, insecure),
    allowances: new allowances.AllowanceServiceClient(target, insecure),
    limits: new limits.LimitServiceClient(target, insecure),
    operatorLimits: new limits.OperatorLimitServiceClient(target, insecure),
    escrow: new escrow.EscrowServiceClient(target, insecure),
    losses: new loss.LossServiceClient(target, insecure),
    metering: new metering.MeteringServiceClient(target, insecure),
    usage: new usage.UsageServiceClient(target, insecure),
    signer: new signer.SignerServiceClient(target, insecure),
    decisions: new decisions.DecisionServiceClient(target, insecure),
    tenants: new tenants.TenantServiceClient(target, insecure),
    registrationTokens: new registrations.RegistrationTokenServiceClient(target, insecure),
    registrations: new registrations.RegistrationServiceClient(target, insecure),
  }
  return {
    as: (authorization) =>
      bind(clients, {
        ...(token === null ? {} : { [serviceTokenHeader]: token }),
        ...(authorization === undefined ? {} : { authorization }),
      }),
    close: () => Object.values(clients).forEach((client) => client.close()),
  }
}

export type Rpcs = ReturnType<typeof bind>

interface Clients {
  readonly apps: identity.AppServiceClient
  readonly callers: identity.CallerServiceClient
  readonly users: identity.UserServiceClient
  readonly keys: keys.KeyServiceClient
  readonly grants: grants.GrantServiceClient
  readonly tokens: tokens.TokenServiceClient
  readonly allowances: allowances.AllowanceServiceClient
  readonly limits: limits.LimitServiceClient
  readonly operatorLimits: limits.OperatorLimitServiceClient
  readonly escrow: escrow.EscrowServiceClient
  readonly losses: loss.LossServiceClient
  readonly metering: metering.MeteringServiceClient
  readonly usage: usage.UsageServiceClient
  readonly signer: signer.SignerServiceClient
  readonly decisions: decisions.DecisionServiceClient
  readonly tenants: tenants.TenantServiceClient
  readonly registrationTokens: registrations.RegistrationTokenServiceClient
  readonly registrations: registrations.RegistrationServiceClient
}

interface BatchRequest<Request> {
  calls: {
    request: Request | undefined
    authorization?: string | undefined
    correlationId: string
  }[]
}
interface BatchResponse<Response> {
  answers: {
    response: Response | undefined
    refusal: { reason: string; details: string } | undefined
  }[]
}

function bind(to: Clients, headers: Readonly<Record<string, string>>) {
  const call =
    <Request extends object, Response>(
      empty: Request,
      method: Parameters<typeof unary<Request, Response>>[0],
    ) =>
    (request: Partial<Request> = {}): Promise<Response> =>
      unary(method)({ ...empty, ...request }, { deadlineMs: 15_000, headers })
  const { apps, callers, users } = to
  const mintUserTokens = call(
    tokens.MintUserTokensRequest.fromPartial({}),
    to.tokens.mintUserTokens.bind(to.tokens),
  )
  /** Makes one call as part of a batch. */
  const amongOthers =
    <Request extends object, Response>(
      empty: Request,
      method: Parameters<typeof unary<BatchRequest<Request>, BatchResponse<Response>>>[0],
    ) =>
    async (request: Partial<Request>): Promise<Response> => {
      const authorization = headers['authorization']
      const one = { request: { ...empty, ...request }, authorization, correlationId: 'one' }
      const {
        answers: [answer],
      } = await unary(method)({ calls: [one] }, { deadlineMs: 15_000, headers })
      if (answer?.response) return answer.response
      const { reason = '', details = '' } = answer?.refusal ?? {}
      throw isReason(reason)
        ? new DomainError(reason, details)
        : new Error(`neither an answer nor a reason: ${reason}`)
    }
  return {
    mintUserTokens,
    mintAmongOthers: amongOthers(
      tokens.MintUserTokenRequest.fromPartial({}),
      to.tokens.mintUserTokens.bind(to.tokens),
    ),
    upsertAmongOthers: amongOthers(
      identity.UpsertUserRequest.fromPartial({}),
      users.upsertUsers.bind(users),
    ),
    createKeyAmongOthers: amongOthers(
      keys.CreateKeyRequest.fromPartial({}),
      to.keys.createKeys.bind(to.keys),
    ),
    grantAmongOthers: amongOthers(
      allowances.CreateGrantRequest.fromPartial({}),
      to.allowances.createGrants.bind(to.allowances),
    ),
    balanceAmongOthers: amongOthers(
      allowances.GetBalanceRequest.fromPartial({}),
      to.allowances.getBalances.bind(to.allowances),
    ),
    createRegistrationToken: call(
      registrations.CreateRegistrationTokenRequest.fromPartial({}),
      to.registrationTokens.createRegistrationToken.bind(to.registrationTokens),
    ),
    listRegistrationTokens: call(
      registrations.ListRegistrationTokensRequest.fromPartial({}),
      to.registrationTokens.listRegistrationTokens.bind(to.registrationTokens),
    ),
    revokeRegistrationToken: call(
      registrations.RevokeRegistrationTokenRequest.fromPartial({}),
      to.registrationTokens.revokeRegistrationToken.bind(to.registrationTokens),
    ),
    registerClient: call(
      registrations.RegisterClientRequest.fromPartial({}),
      to.registrations.registerClient.bind(to.registrations),
    ),
    createTenant: call(
      tenants.CreateTenantRequest.fromPartial({}),
      to.tenants.createTenant.bind(to.tenants),
    ),
    listTenants: call(
      tenants.ListTenantsRequest.fromPartial({}),
      to.tenants.listTenants.bind(to.tenants),
    ),
    rotateTenantSecret: call(
      tenants.RotateTenantSecretRequest.fromPartial({}),
      to.tenants.rotateTenantSecret.bind(to.tenants),
    ),
    disableTenant: call(
      tenants.DisableTenantRequest.fromPartial({}),
      to.tenants.disableTenant.bind(to.tenants),
    ),
    enableTenant: call(
      tenants.EnableTenantRequest.fromPartial({}),
      to.tenants.enableTenant.bind(to.tenants),
    ),
    createApp: call(identity.CreateAppRequest.fromPartial({}), apps.createApp.bind(apps)),
    listApps: call(identity.ListAppsRequest.fromPartial({}), apps.listApps.bind(apps)),
    checkCaller: call(
      identity.CheckCallerRequest.fromPartial({}),
      callers.checkCaller.bind(callers),
    ),
    upsertUser: call(identity.UpsertUserRequest.fromPartial({}), users.upsertUser.bind(users)),
    updateUser: call(identity.UpdateUserRequest.fromPartial({}), users.updateUser.bind(users)),
    deactivateUser: call(
      identity.DeactivateUserRequest.fromPartial({}),
      users.deactivateUser.bind(users),
    ),
    listUsers: call(identity.ListUsersRequest.fromPartial({}), users.listUsers.bind(users)),
    createKey: call(keys.CreateKeyRequest.fromPartial({}), to.keys.createKey.bind(to.keys)),
    validateKey: call(keys.ValidateKeyRequest.fromPartial({}), to.keys.validateKey.bind(to.keys)),
    listKeys: call(keys.ListKeysRequest.fromPartial({}), to.keys.listKeys.bind(to.keys)),
    revokeKey: call(keys.RevokeKeyRequest.fromPartial({}), to.keys.revokeKey.bind(to.keys)),
    issueMachineToken: call(
      tokens.IssueMachineTokenRequest.fromPartial({}),
      to.tokens.issueMachineToken.bind(to.tokens),
    ),
    mintUserToken: call(
      tokens.MintUserTokenRequest.fromPartial({}),
      to.tokens.mintUserToken.bind(to.tokens),
    ),
    exchangeApiKey: call(
      tokens.ExchangeApiKeyRequest.fromPartial({}),
      to.tokens.exchangeApiKey.bind(to.tokens),
    ),
    rotateSigningKeys: call(
      tokens.RotateSigningKeysRequest.fromPartial({}),
      to.tokens.rotateSigningKeys.bind(to.tokens),
    ),
    listSigningKeys: call(
      tokens.ListSigningKeysRequest.fromPartial({}),
      to.tokens.listSigningKeys.bind(to.tokens),
    ),
    getJwks: call(tokens.GetJwksRequest.fromPartial({}), to.tokens.getJwks.bind(to.tokens)),
    getAllowance: call(
      allowances.GetAllowanceRequest.fromPartial({}),
      to.allowances.getAllowance.bind(to.allowances),
    ),
    createGrant: call(
      allowances.CreateGrantRequest.fromPartial({ source: 'manual' }),
      to.allowances.createGrant.bind(to.allowances),
    ),
    getBalance: call(
      allowances.GetBalanceRequest.fromPartial({}),
      to.allowances.getBalance.bind(to.allowances),
    ),
    getOwnBalance: call(
      allowances.GetOwnBalanceRequest.fromPartial({}),
      to.allowances.getOwnBalance.bind(to.allowances),
    ),
    getLimits: call(limits.GetLimitsRequest.fromPartial({}), to.limits.getLimits.bind(to.limits)),
    setLimits: call(limits.SetLimitsRequest.fromPartial({}), to.limits.setLimits.bind(to.limits)),
    clearLimits: call(
      limits.ClearLimitsRequest.fromPartial({}),
      to.limits.clearLimits.bind(to.limits),
    ),
    readLimits: call(
      limits.ReadLimitsRequest.fromPartial({}),
      to.operatorLimits.readLimits.bind(to.operatorLimits),
    ),
    replaceLimits: call(
      limits.ReplaceLimitsRequest.fromPartial({}),
      to.operatorLimits.replaceLimits.bind(to.operatorLimits),
    ),
    removeLimits: call(
      limits.RemoveLimitsRequest.fromPartial({}),
      to.operatorLimits.removeLimits.bind(to.operatorLimits),
    ),
    lend: call(escrow.LendRequest.fromPartial({}), to.escrow.lend.bind(to.escrow)),
    reserve: call(escrow.ReserveRequest.fromPartial({}), to.escrow.reserve.bind(to.escrow)),
    report: call(escrow.ReportRequest.fromPartial({}), to.escrow.report.bind(to.escrow)),
    ingestEvents: call(
      metering.IngestEventsRequest.fromPartial({}),
      to.metering.ingestEvents.bind(to.metering),
    ),
    createAdjustment: call(
      allowances.CreateAdjustmentRequest.fromPartial({ author: 'test', reason: 'test' }),
      to.allowances.createAdjustment.bind(to.allowances),
    ),
    recordRate: call(
      metering.RecordRateRequest.fromPartial({ source: 'test' }),
      to.metering.recordRate.bind(to.metering),
    ),
    listLoss: call(loss.ListLossRequest.fromPartial({}), to.losses.listLoss.bind(to.losses)),
    queryUsage: call(usage.QueryUsageRequest.fromPartial({}), to.usage.queryUsage.bind(to.usage)),
    queryOwnUsage: call(
      usage.QueryOwnUsageRequest.fromPartial({}),
      to.usage.queryOwnUsage.bind(to.usage),
    ),
    exchangeToken: call(
      grants.ExchangeTokenRequest.fromPartial({}),
      to.grants.exchangeToken.bind(to.grants),
    ),
    mintOwnerToken: call(
      grants.MintOwnerTokenRequest.fromPartial({}),
      to.grants.mintOwnerToken.bind(to.grants),
    ),
    revokeToken: call(
      grants.RevokeTokenRequest.fromPartial({}),
      to.grants.revokeToken.bind(to.grants),
    ),
    exchangeTokens: call(
      grants.ExchangeTokensRequest.fromPartial({}),
      to.grants.exchangeTokens.bind(to.grants),
    ),
    listSignerSessions: call(
      grants.ListSignerSessionsRequest.fromPartial({}),
      to.grants.listSignerSessions.bind(to.grants),
    ),
    revokeSignerSession: call(
      grants.RevokeSignerSessionRequest.fromPartial({}),
      to.grants.revokeSignerSession.bind(to.grants),
    ),
    verifyForeignToken: call(
      signer.VerifyForeignTokenRequest.fromPartial({}),
      to.signer.verifyForeignToken.bind(to.signer),
    ),
    checkToken: call(
      signer.CheckTokenRequest.fromPartial({}),
      to.signer.checkToken.bind(to.signer),
    ),
    verifySignerSession: call(
      signer.VerifySignerSessionRequest.fromPartial({}),
      to.signer.verifySignerSession.bind(to.signer),
    ),
    verifyApiKey: call(
      signer.VerifyApiKeyRequest.fromPartial({}),
      to.signer.verifyApiKey.bind(to.signer),
    ),
    verifyApiKeys: call(
      signer.VerifyApiKeysRequest.fromPartial({}),
      to.signer.verifyApiKeys.bind(to.signer),
    ),
    getAccess: call(signer.GetAccessRequest.fromPartial({}), to.signer.getAccess.bind(to.signer)),
    recordDecisions: call(
      decisions.RecordDecisionsRequest.fromPartial({}),
      to.decisions.recordDecisions.bind(to.decisions),
    ),
    getDecision: call(
      decisions.GetDecisionRequest.fromPartial({}),
      to.decisions.getDecision.bind(to.decisions),
    ),
    listDecisions: call(
      decisions.ListDecisionsRequest.fromPartial({}),
      to.decisions.listDecisions.bind(to.decisions),
    ),
    listAppDecisions: call(
      decisions.ListAppDecisionsRequest.fromPartial({}),
      to.decisions.listAppDecisions.bind(to.decisions),
    ),
    getAppDecision: call(
      decisions.GetAppDecisionRequest.fromPartial({}),
      to.decisions.getAppDecision.bind(to.decisions),
    ),
  }
}

/** The result of a call: the reason of its refusal, or OK. */
export async function outcome(call: Promise<unknown>): Promise<Reason | 'OK'> {
  try {
    await call
    return 'OK'
  } catch (error) {
    if (error instanceof DomainError) return error.reason
    throw error
  }
}

/** The error of a refused call, as the caller receives it. */
export async function refusal(call: Promise<unknown>): Promise<DomainError> {
  const error: unknown = await call.then(
    () => null,
    (refused: unknown) => refused,
  )
  if (error instanceof DomainError) return error
  throw new Error('the call was not refused', { cause: error })
}

/** Runs `work` concurrently, `times` times. Returns results in the order of the calls. */
export const atOnce = <T>(times: number, work: (index: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: times }, (_, index) => work(index)))

/** Waits until `check` holds. Throws after ten seconds. */
export async function until(check: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 10_000
  while (!(await check())) {
    if (Date.now() > end) throw new Error('waited ten seconds in vain')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

export interface Proxy {
  readonly port: number
  /** `refuse` closes everything, `hang` accepts connections without answering, `pass` forwards. */
  mode(mode: 'pass' | 'refuse' | 'hang'): void
  stop(): void
}

/** Starts a TCP proxy to `target` that a test can interrupt. */
export async function startProxy(target: { host: string; port: number }): Promise<Proxy> {
  let current: 'pass' | 'refuse' | 'hang' = 'pass'
  const open = new Set<Socket>()
  const server: Server = createServer((socket) => {
    keep(socket)
    if (current === 'refuse') return void socket.destroy()
    if (current === 'hang') return
    const upstream = connectSocket(target)
    keep(upstream)
    socket.pipe(upstream).pipe(socket)
    socket.on('close', () => upstream.destroy())
    upstream.on('close', () => socket.destroy())
  })
  const keep = (socket: Socket): void => {
    open.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => open.delete(socket))
  }
  const mode = (next: 'pass' | 'refuse' | 'hang'): void => {
    current = next
    for (const socket of open) socket.destroy()
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  return {
    port: address.port,
    mode,
    stop: () => {
      mode('refuse')
      server.close()
    },
  }
}
