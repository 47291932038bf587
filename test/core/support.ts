import { createHmac } from 'node:crypto'
import { type Server, type Socket, connect as connectSocket, createServer } from 'node:net'
import { Client, credentials } from '@grpc/grpc-js'
import type { Pool } from 'pg'
import { type Core, type CoreDeps, startCore } from '../../core/app.ts'
import { type CoreConfig, readCoreConfig } from '../../core/config.ts'
import type { OutsideParts } from '../../core/modules.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { unary } from '../../core/lib/grpc.ts'
import { operatorHeader, serviceTokenHeader } from '../../proto/headers.ts'
import { silentLog } from '../../core/lib/log.ts'
import { type Metrics, createMetrics } from '../../core/lib/metrics.ts'
import { createPool } from '../../core/lib/sql.ts'
import { DomainError, type Reason, isReason } from '../../proto/errors.ts'
import * as allowances from '../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import * as limits from '../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import * as escrow from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
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
import * as webhooks from '../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import * as usage from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { createDatabase } from '../support/run/postgres.ts'
import { registerSecret } from '../support/run/secrecy.ts'

export { until } from '../support/waiting.ts'

export const serviceToken = registerSecret('service-token-of-the-core-tests-0123456789')
/** One token for all roles, as with CORE_TOKEN alone. */
export const serviceTokens = {
  gateway: [serviceToken],
  sidecar: [serviceToken],
  collector: [serviceToken],
  operator: [serviceToken],
  service: [serviceToken],
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
  // The simulated processor runs only in the all-in-one service.
  const isEmbedded = env['PAYMENT_PROCESSOR'] === 'simulated'
  const settings = {
    CORE_PORT: '0',
    CORE_TOKEN: serviceToken,
    PUBLIC_URL: 'https://svc.example',
    RATE_FIXED: '3000',
    // Apps in tests sell and grow without the gate, which test/core/billing covers.
    ACTIVATION_GATE_MODE: 'off',
    APP_CREATION: 'accounts',
    QUOTA_APPS_PER_OWNER: '1000',
    QUOTA_MANUAL_CREDIT_USD: '1000000000',
    KEY_ENCRYPTION_KEY: registerSecret('sealing-key-of-the-core-tests-0123456789'),
    SECRET_PEPPERS: `p1:${pepper}`,
    ...env,
  }
  const reader = createEnvReader(settings, { isEmbedded })
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
  /** Every RPC, called as an operator's command. */
  asOperator(): Rpcs
  /** Creates an app to which every account may log in, unless another policy is given. */
  newApp(options?: AppOptions & { loginPolicy?: string }): Promise<TestApp>
  /** Starts another core on the same database and clock. */
  startAnother(
    env?: Readonly<Record<string, string>>,
  ): Promise<{ core: Core; as(authorization?: string): Rpcs; asOperator(): Rpcs }>
  stop(): Promise<void>
}

/** Starts a core on its own database, with a clock that the test moves. */
export async function startTestCore(
  env: Readonly<Record<string, string>> = {},
  parts: OutsideParts & Pick<CoreDeps, 'upkeepMs'> = {},
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
  const sql = createPool({ url: databaseUrl, max: 4, name: 'test', statementTimeoutMs: 60_000 })
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
    return { core: other, as: otherCaller.as, asOperator: otherCaller.asOperator }
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
    asOperator: caller.asOperator,
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

/** The RPCs that tests call, by name. */
const methods = {
  ...allowances.AllowanceServiceService,
  ...decisions.DecisionServiceService,
  ...escrow.EscrowServiceService,
  ...escrow.HoldServiceService,
  ...grants.GrantServiceService,
  ...identity.AppServiceService,
  ...identity.CallerServiceService,
  ...identity.UserServiceService,
  ...keys.KeyServiceService,
  ...limits.LimitServiceService,
  ...loss.LossServiceService,
  ...metering.MeteringServiceService,
  ...registrations.RegistrationServiceService,
  ...registrations.RegistrationTokenServiceService,
  ...signer.SignerServiceService,
  ...tenants.TenantServiceService,
  ...tokens.TokenServiceService,
  ...usage.UsageServiceService,
  ...webhooks.WebhookEndpointServiceService,
}
type Methods = typeof methods

/** Fields that most tests do not care about. */
const defaults: { readonly [Name in keyof Methods]?: object } = {
  createAdjustment: { author: 'test', reason: 'test' },
  createGrant: { source: 'manual' },
  recordRate: { source: 'test' },
}

/** The parts of a generated method that a call needs. */
interface Method<Request, Response> {
  readonly path: string
  requestSerialize(value: Request): Buffer
  requestDeserialize(bytes: Buffer): Request
  responseDeserialize(bytes: Buffer): Response
}

/** Each RPC as a function; fields that are not given are empty. */
type Calls = {
  readonly [Name in keyof Methods]: Methods[Name] extends Method<infer Request, infer Response>
    ? (request?: Partial<Request>) => Promise<Response>
    : never
}
type RequestTo<Name extends keyof Methods> =
  Methods[Name] extends Method<infer Request, unknown> ? Request : never
type Response<Name extends keyof Methods> = Awaited<ReturnType<Calls[Name]>>

/** Calls core over gRPC as our own processes do. */
export function createCaller(target: string, token: string | null = serviceToken) {
  const client = new Client(target, credentials.createInsecure())
  const service = token === null ? {} : { [serviceTokenHeader]: token }
  return {
    as: (authorization?: string) =>
      bind(client, {
        ...service,
        ...(authorization === undefined ? {} : { authorization }),
      }),
    asOperator: () => bind(client, { ...service, [operatorHeader]: 'test' }),
    close: () => client.close(),
  }
}

export type Caller = ReturnType<typeof createCaller>
export type Rpcs = ReturnType<typeof bind>

const emptyRequest = (name: keyof Methods): object => ({
  ...methods[name].requestDeserialize(Buffer.alloc(0)),
  ...defaults[name],
})

function bind(client: Client, headers: Readonly<Record<string, string>>) {
  const callOf = (name: string, method: Method<unknown, unknown>) => {
    const send = unary((request: unknown, ...call) =>
      client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        ...call,
      ),
    )
    return (request: object = {}) =>
      send({ ...emptyRequest(name as keyof Methods), ...request }, { deadlineMs: 15_000, headers })
  }
  const calls = Object.fromEntries(
    Object.entries<Method<unknown, unknown>>(methods).map(([name, method]) => [
      name,
      callOf(name, method),
    ]),
  ) as Calls

  /** Makes one call as part of a batch. */
  const amongOthers =
    <One extends keyof Methods>(
      one: One,
      plural: (request: { calls: BatchCall<RequestTo<One>>[] }) => Promise<{
        answers: BatchAnswer<Response<One>>[]
      }>,
    ) =>
    async (request: Partial<RequestTo<One>>): Promise<Response<One>> => {
      const filled = { ...emptyRequest(one), ...request } as RequestTo<One>
      const authorization = headers['authorization']
      const {
        answers: [answer],
      } = await plural({ calls: [{ request: filled, authorization, correlationId: 'one' }] })
      if (answer?.response) return answer.response
      const { reason = '', details = '' } = answer?.refusal ?? {}
      throw isReason(reason)
        ? new DomainError(reason, details)
        : new Error(`neither an answer nor a reason: ${reason}`)
    }
  return {
    ...calls,
    mintAmongOthers: amongOthers('mintUserToken', calls.mintUserTokens),
    upsertAmongOthers: amongOthers('upsertUser', calls.upsertUsers),
    createKeyAmongOthers: amongOthers('createKey', calls.createKeys),
    grantAmongOthers: amongOthers('createGrant', calls.createGrants),
    balanceAmongOthers: amongOthers('getBalance', calls.getBalances),
  }
}

interface BatchCall<Request> {
  request: Request | undefined
  authorization?: string | undefined
  correlationId: string
}
interface BatchAnswer<Response> {
  response: Response | undefined
  refusal: { reason: string; details: string } | undefined
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
