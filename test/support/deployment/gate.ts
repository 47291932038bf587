import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { inject } from 'vitest'
import { formatDecimal18 } from '../../../core/lib/money.ts'
import { type Pool } from '../../../core/lib/sql.ts'
import { type CoreClient, basic, connectCore } from '../../../deploy/cli/client.ts'
import { chainEv } from '../../../deploy/signer-double/options.ts'
import type { Faults, Sink } from '../../../deploy/signer-double/events/lossy-queue.ts'
import { callbackSink, kafkaSink } from '../../../deploy/signer-double/events/sinks.ts'
import {
  type SignerDouble,
  createSignerDouble,
} from '../../../deploy/signer-double/signer-double.ts'
import { createTopic } from '../run/kafka.ts'
import { createDatabase } from '../run/postgres.ts'
import { startPooler } from '../run/pgbouncer.ts'
import { startOwnPostgres } from '../run/own-postgres.ts'
import { type Stops, coreSecrets, openPool, secret, startParts } from './parts.ts'
import { type RunningProcess, freePorts, runProcess } from './processes.ts'

/** Cores, sidecars and signers that run side by side, and users with a set amount of money. */
export interface Gate {
  readonly cores: readonly RunningProcess[]
  readonly sidecars: readonly RunningProcess[]
  readonly pool: Pool
  readonly operator: CoreClient
  /** Creates a user with a Starter allowance of `usdMicros`, and a key. */
  createUser(usdMicros: bigint): Promise<GateUser>
  /** Creates several users of one app. The app has an owner who pays for it, if an address is given. */
  createUsers(count: number, usdMicros: bigint, ownerEmail?: string): Promise<GateUser[]>
  /** Starts a signer that calls this sidecar. */
  startSigner(sidecar: number, options?: SignerSettings): Promise<GateSigner>
  /** Returns the text of the sidecar's metrics page. */
  sidecarMetrics(sidecar: number): Promise<string>
  /** Returns whether the sidecar reports that it is ready. */
  isReady(sidecar: number): Promise<boolean>
  /**
   * Requests one decision about a `fixed` call of a cent. Returns its status and its duration in
   * milliseconds.
   */
  decide(sidecar: number, user: GateUser): Promise<{ readonly status: number; readonly ms: number }>
  /** Crashes the gate's own database and starts it again after `awayMs`. */
  stopDatabase(awayMs: number): Promise<void>
  stop(): Promise<void>
}

export interface GateUser {
  readonly clientId: string
  readonly externalUserId: string
  readonly key: string
  readonly headers: readonly (readonly [string, string])[]
  balance(): Promise<Readonly<Record<string, unknown>>>
}

export interface SignerSettings {
  readonly pricePerUnit?: bigint
  /** At least a hundredth of the most expensive call. */
  readonly ev?: bigint
  readonly mode?: 'go-livepeer' | 'go-v0.8.11'
  /**
   * Delay in milliseconds before an event is delivered; null for only by `deliver`. Without Kafka
   * only. Default is 0.
   */
  readonly delayMs?: number | null
  readonly faults?: Partial<Faults>
  /** Events that may wait; 100 in the real signer. */
  readonly queueCapacity?: number
}

export interface GateSigner extends SignerDouble {
  /** Returns the exact cost of all tickets signed so far, in atto-dollars at the fixed rate. */
  readonly signedAttos: () => bigint
  /** Delivers all waiting events. */
  deliver(): Promise<void>
}

/** Price of one ETH in USD, in every gate. */
export const ethUsd = 3_000n

/** Returns the wei that cost exactly `usdMicros`. */
export const weiOf = (usdMicros: bigint): bigint => (usdMicros * 10n ** 12n) / ethUsd

export const dollars = (attos: bigint): number => Number(formatDecimal18(attos))

export interface GateOptions {
  readonly cores?: number
  readonly sidecars?: number
  readonly coreEnv?: Readonly<Record<string, string>>
  readonly sidecarEnv?: Readonly<Record<string, string>>
  /** If false, no rate source is reachable. Default is true. */
  readonly rate?: boolean
  /** Whether the gate has its own PostgreSQL, which `stopDatabase` can stop. */
  readonly ownPostgres?: boolean
  /** Connections to the database of a PgBouncer before it. Default is none. */
  readonly poolerConnections?: number
  /**
   * Whether events go through Kafka and the cores collect them. Ignored if this vitest project has
   * no Kafka.
   */
  readonly kafka?: boolean
}

/** Starts cores, sidecars and one gateway as processes, with a new database. */
export const startGate = (options: GateOptions = {}): Promise<Gate> =>
  startParts((stops) => start(stops, options))

type Env = Readonly<Record<string, string>>

async function start(stops: Stops, options: GateOptions): Promise<Omit<Gate, 'stop'>> {
  const { cores: coreCount = 1, sidecars: sidecarCount = 1, coreEnv, sidecarEnv } = options
  const data = await openData(stops, options)
  const ports = (await freePorts(2 * (coreCount + sidecarCount) + 3)).map(String)
  const port = (): string => ports.pop() ?? ''
  const { redisUrl } = inject('parts')
  const shared = {
    CORE_TOKEN: secret(),
    WEBHOOK_SECRET: secret(),
    LOG_LEVEL: 'info',
    RATE_LIMITS: 'off',
    ...(redisUrl && { REDIS_URL: redisUrl }),
  }
  const keys = {
    ...coreSecrets(),
    QUOTA_MANUAL_CREDIT_USD: '1000000000',
  }
  const run = async (name: 'core' | 'gateway' | 'sidecar', env: Env): Promise<RunningProcess> => {
    const running = await runProcess({ name, env: { ...shared, ...env } })
    stops.push(running.stop)
    return running
  }
  const targets: string[] = []
  const cores: RunningProcess[] = []
  for (let i = 0; i < coreCount; i++) {
    const CORE_PORT = port()
    targets.push(`127.0.0.1:${CORE_PORT}`)
    const own = { CORE_PORT, CORE_ADMIN_PORT: port() }
    cores.push(await run('core', { ...keys, ...data.env, ...own, ...coreEnv }))
  }
  const targetOf = (i: number): string => targets[i % targets.length] ?? ''
  const platformPort = port()
  await run('gateway', {
    CORE_TARGET: targetOf(0),
    PLATFORM_PORT: platformPort,
    BUILDER_PORT: port(),
    GATEWAY_ADMIN_PORT: port(),
    // These tests do not use the gateway's own sidecar.
    WEBHOOK_SECRET: '',
  })
  const sidecars: RunningProcess[] = []
  const places: Place[] = []
  for (let i = 0; i < sidecarCount; i++) {
    const [SIDECAR_PORT, SIDECAR_ADMIN_PORT] = [port(), port()]
    places.push({ url: `http://127.0.0.1:${SIDECAR_PORT}`, admin: SIDECAR_ADMIN_PORT })
    const own = { SIDECAR_ID: `sidecar-${i}`, SIDECAR_PORT, SIDECAR_ADMIN_PORT }
    sidecars.push(await run('sidecar', { CORE_TARGET: targetOf(i), ...own, ...sidecarEnv }))
  }
  const operator = connectCore({ target: targetOf(0), token: shared.CORE_TOKEN })
  stops.push(async () => operator.close())
  return {
    cores,
    sidecars,
    pool: data.pool,
    operator,
    stopDatabase: data.stopDatabase,
    ...userMakers({ operator, url: `http://127.0.0.1:${platformPort}` }),
    ...sidecarCalls(stops, {
      places,
      sink: data.sink,
      authorization: `Bearer ${shared.WEBHOOK_SECRET}`,
    }),
  }
}

/** Addresses of a sidecar. */
interface Place {
  readonly url: string
  readonly admin: string
}

/** Opens the database and the stream. Returns the settings of core for them and for the rate. */
async function openData(stops: Stops, options: GateOptions) {
  const { rate = true, ownPostgres, kafka, poolerConnections: connections } = options
  const own = ownPostgres ? await startOwnPostgres() : null
  const database = own ?? (await createDatabase())
  stops.push(own ? own.stop : async () => 'drop' in database && database.drop())
  const pool = openPool(stops, database.url)
  const pooler = connections === undefined ? null : await startPooler(database.url, { connections })
  if (pooler) stops.push(pooler.stop)
  const { kafkaBrokers } = inject('parts')
  const stream = kafka && kafkaBrokers ? await openStream(kafkaBrokers) : null
  return {
    pool,
    stopDatabase: async (awayMs: number) => own?.restart(awayMs),
    sink: stream?.sink ?? null,
    env: {
      DATABASE_URL: pooler?.url ?? database.url,
      DATABASE_DIRECT_URL: database.url,
      ...(rate ? { RATE_FIXED: String(ethUsd) } : { RATE_URLS: 'http://127.0.0.1:9/' }),
      ...(stream?.env ?? { COLLECTOR: 'off' }),
    },
  }
}

async function openStream(brokers: readonly string[]) {
  const topic = await createTopic(4, brokers)
  return {
    sink: () => kafkaSink(brokers, topic),
    env: {
      KAFKA_BROKERS: brokers.join(','),
      KAFKA_TOPIC: topic,
      KAFKA_GROUP: topic,
      KAFKA_SESSION_SECONDS: '6',
    },
  }
}

interface SidecarCalls {
  readonly places: readonly Place[]
  readonly sink: (() => Sink) | null
  readonly authorization: string
}

function sidecarCalls(stops: Stops, { places, sink, authorization }: SidecarCalls) {
  const placeOf = (sidecar: number): Place => places[sidecar] ?? { url: '', admin: '' }

  async function open(sidecar: number, settings: SignerSettings = {}): Promise<GateSigner> {
    const line = { url: placeOf(sidecar).url, sink: sink && sink(), authorization }
    const signer = await startSigner(line, settings)
    stops.push(signer.stop)
    return signer
  }

  async function decide(sidecar: number, { headers }: GateUser) {
    const began = performance.now()
    const response = await fetch(`${placeOf(sidecar).url}/authorize`, {
      method: 'POST',
      headers: { authorization },
      body: JSON.stringify({
        headers: Object.fromEntries(headers.map(([name, value]) => [name, [value]])),
        state: fixedState(),
      }),
    })
    const { status }: { status: number } = JSON.parse(await response.text())
    return { status, ms: performance.now() - began }
  }

  async function sidecarMetrics(sidecar: number): Promise<string> {
    return (await fetch(`http://127.0.0.1:${placeOf(sidecar).admin}/metrics`)).text()
  }

  const isReady = async (sidecar: number): Promise<boolean> =>
    (await fetch(`${placeOf(sidecar).url}/readyz`)).ok

  return { startSigner: open, decide, sidecarMetrics, isReady }
}

function userMakers(at: { operator: CoreClient; url: string }) {
  async function createUsers(
    count: number,
    usdMicros: bigint,
    ownerEmail?: string,
  ): Promise<GateUser[]> {
    const app = await createApp(at, usdMicros, ownerEmail)
    const users: GateUser[] = []
    for (let i = 0; i < count; i++) users.push(await app.addUser(`user-${i}`))
    return users
  }

  const createUser = async (usdMicros: bigint): Promise<GateUser> =>
    (await createApp(at, usdMicros)).addUser('ada')

  return { createUser, createUsers }
}

/** The state of a new `fixed` session at a cent a call. */
const fixedState = () => ({
  StateID: randomBytes(4).toString('hex'),
  PMSessionID: `0x${secret()}`,
  LastUpdate: new Date().toISOString(),
  OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
  App: 'acme/echo',
  AuthExpiry: 0,
  SenderNonce: 1,
  Balance: '0',
  InitialPricePerUnit: Number(weiOf(10_000n)),
  InitialPixelsPerUnit: 1,
  Type: 'fixed',
  SequenceNumber: 0,
  AuthID: '',
})

async function createApp(
  { operator, url }: { operator: CoreClient; url: string },
  usdMicros: bigint,
  ownerEmail?: string,
) {
  const app = await operator.apps.createApp({
    name: `gate ${usdMicros}`,
    ownerEmail,
    ownerPassword: undefined,
    isCustomer: ownerEmail !== undefined,
    starterUsdMicros: String(usdMicros),
  })
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)

  async function call(method: string, path: string, json?: unknown) {
    const response = await fetch(`${url}/api/v1/apps/${app.clientId}${path}`, {
      method,
      headers: { authorization, ...(json !== undefined && { 'content-type': 'application/json' }) },
      body: json === undefined ? null : JSON.stringify(json),
    })
    const body: Record<string, unknown> = JSON.parse(await response.text())
    if (!response.ok)
      throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(body)}`)
    return body
  }

  async function addUser(externalUserId: string): Promise<GateUser> {
    await call('POST', '/users', { externalUserId })
    const key = String((await call('POST', `/users/${externalUserId}/keys`))['apiKey'])
    return {
      clientId: app.clientId,
      externalUserId,
      key,
      headers: [['Authorization', `Bearer ${key}`]],
      balance: () => call('GET', `/usage/balance?externalUserId=${externalUserId}`),
    }
  }

  return { addUser }
}

/** Starts a signer that calls the sidecar at `url`. */
export async function startSigner(
  { url, sink, authorization }: { url: string; sink: Sink | null; authorization: string },
  {
    pricePerUnit = weiOf(10_000n),
    ev = pricePerUnit,
    mode = 'go-livepeer',
    delayMs = 0,
    faults = {},
    queueCapacity = 100_000,
  }: SignerSettings,
): Promise<GateSigner> {
  let waiting: { bytes: string; due: number }[] = []
  const double = createSignerDouble({
    mode,
    // By default the price of one unit, so that few calls find enough credit and end in 482.
    ev: chainEv(ev),
    queueCapacity,
    faults,
    keepTickets: 100_000,
    orchestrator: { pricePerUnit, pixelsPerUnit: 1n },
    webhook: { url: `${url}/authorize`, headers: [['Authorization', authorization]] },
    sinks: [
      sink ??
        callbackSink((bytes) => {
          waiting.push({ bytes, due: performance.now() + (delayMs ?? Infinity) })
        }),
    ],
  })

  async function send(events: readonly { readonly bytes: string }[]): Promise<boolean> {
    const response = await fetch(`${url}/events`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/x-ndjson' },
      body: events.map(({ bytes }) => `${bytes}\n`).join(''),
    }).catch(() => null)
    return response?.status === 202
  }

  async function deliver(isDue: (event: { due: number }) => boolean): Promise<void> {
    const due = waiting.filter(isDue)
    if (due.length === 0) return
    waiting = waiting.filter((event) => !due.includes(event))
    for (let i = 0; i < due.length; i += 500) {
      const part = due.slice(i, i + 500)
      // Keep the events for a later try if the sidecar is down.
      if (!(await send(part))) waiting.push(...part)
    }
  }

  const stopping = new AbortController()
  const pump = (async () => {
    while (!stopping.signal.aborted) {
      await deliver(({ due }) => due <= performance.now())
      await sleep(50)
    }
  })()
  await double.start()
  return {
    ...double,
    signedAttos: () => double.stats().signed.fee * ethUsd,
    deliver: async () => {
      await double.flush()
      await deliver(() => true)
    },
    stop: async () => {
      stopping.abort()
      await pump
      await double.stop()
    },
  }
}
