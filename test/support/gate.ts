import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { inject } from 'vitest'
import { formatDecimal18 } from '../../core/lib/money.ts'
import { type Pool, createPool } from '../../core/lib/sql.ts'
import { type CoreClient, basic, connectCore } from '../../deploy/cli/client.ts'
import { chainEv } from '../../deploy/signer-double/options.ts'
import type { Faults, Sink } from '../../deploy/signer-double/events/lossy-queue.ts'
import { callbackSink, kafkaSink } from '../../deploy/signer-double/events/sinks.ts'
import { type SignerDouble, createSignerDouble } from '../../deploy/signer-double/signer-double.ts'
import { createTopic } from './kafka.ts'
import { createDatabase } from './postgres.ts'
import { startOwnPostgres } from './own-postgres.ts'
import { type RunningProcess, freePorts, runProcess } from './processes.ts'

/** Cores, sidecars and signers as they run beside each other, and users with an amount of money each. */
export interface Gate {
  readonly cores: readonly RunningProcess[]
  readonly sidecars: readonly RunningProcess[]
  readonly pool: Pool
  readonly operator: CoreClient
  /** A user with a Starter allowance of `usdMicros`, and a key. */
  createUser(usdMicros: bigint): Promise<GateUser>
  /** Several users of one app. */
  createUsers(count: number, usdMicros: bigint): Promise<GateUser[]>
  /** A signer that asks a sidecar, and whose events wait until `deliver`. */
  startSigner(sidecar: number, options?: SignerSettings): Promise<GateSigner>
  /** What the page of a sidecar's metrics says. */
  sidecarMetrics(sidecar: number): Promise<string>
  /** One decision of a sidecar about a `fixed` call of a cent, with the milliseconds that it took. */
  decide(sidecar: number, user: GateUser): Promise<{ readonly status: number; readonly ms: number }>
  /** Ends the gate's own database as a crash does, and starts it again after `awayMs`. */
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
  /** At least a hundredth of the dearest call. */
  readonly ev?: bigint
  readonly mode?: 'go-livepeer' | 'go-v0.8.11'
  /** Milliseconds after which events are delivered by themselves; null for never. Without Kafka only. */
  readonly delayMs?: number | null
  readonly faults?: Partial<Faults>
  /** Events that may wait; the real signer's is 100. */
  readonly queueCapacity?: number
}

export interface GateSigner extends SignerDouble {
  /** The true cost of all that was signed so far, in atto-dollars at the rate. */
  readonly signedAttos: () => bigint
  /** Delivers all events that wait. */
  deliver(): Promise<void>
}

/** USD of one ETH in every gate. */
export const ethUsd = 3_000n
const secret = (): string => randomBytes(32).toString('hex')

/** The wei that cost `usdMicros`, exactly. */
export const weiOf = (usdMicros: bigint): bigint => (usdMicros * 10n ** 12n) / ethUsd

export const dollars = (attos: bigint): number => Number(formatDecimal18(attos))

export interface GateOptions {
  readonly cores?: number
  readonly sidecars?: number
  readonly coreEnv?: Readonly<Record<string, string>>
  readonly sidecarEnv?: Readonly<Record<string, string>>
  /** False: no rate source answers. */
  readonly rate?: boolean
  /** A PostgreSQL of the gate's own, which `stopDatabase` ends for some time. */
  readonly ownPostgres?: boolean
  /** Events go through the Kafka of this vitest project, where it has one; the cores collect. */
  readonly kafka?: boolean
}

/** Starts cores, sidecars and one gateway as processes on a database of their own. */
export async function startGate(options: GateOptions = {}): Promise<Gate> {
  const stops: (() => Promise<unknown>)[] = []
  const stop = async (): Promise<void> => {
    for (const step of stops.splice(0).toReversed()) await step()
  }
  try {
    return { ...(await start(stops, options)), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function start(
  stops: (() => Promise<unknown>)[],
  {
    cores: coreCount = 1,
    sidecars: sidecarCount = 1,
    coreEnv,
    sidecarEnv,
    rate = true,
    ownPostgres = false,
    kafka = false,
  }: GateOptions,
): Promise<Omit<Gate, 'stop'>> {
  const own = ownPostgres ? await startOwnPostgres() : null
  const database = own ?? (await createDatabase())
  stops.push(own ? own.stop : async () => 'drop' in database && database.drop())
  const pool = createPool({
    url: database.url,
    max: 4,
    name: 'tollgate-test',
    statementTimeoutMs: 60_000,
  })
  pool.on('error', () => {})
  stops.push(() => pool.end())
  const ports = (await freePorts(2 * (coreCount + sidecarCount) + 3)).map(String)
  const port = (): string => ports.pop() ?? ''
  const { redisUrl, kafkaBrokers } = inject('parts')
  const brokers = kafka ? kafkaBrokers : null
  const topic = brokers && (await createTopic(4, brokers))
  const stream = brokers &&
    topic && {
      KAFKA_BROKERS: brokers.join(','),
      KAFKA_TOPIC: topic,
      KAFKA_GROUP: topic,
      KAFKA_SESSION_SECONDS: '6',
    }
  const shared = {
    CORE_TOKEN: secret(),
    WEBHOOK_SECRET: secret(),
    LOG_LEVEL: 'info',
    RATE_LIMITS: 'off',
    ...(redisUrl && { REDIS_URL: redisUrl }),
  }
  const keys = { KEY_ENCRYPTION_KEY: secret(), SECRET_PEPPERS: `p1:${secret()}` }
  const targets: string[] = []
  const cores: RunningProcess[] = []
  const add = async (list: RunningProcess[], process: Promise<RunningProcess>): Promise<void> => {
    const running = await process
    list.push(running)
    stops.push(running.stop)
  }
  for (let i = 0; i < coreCount; i++) {
    const corePort = port()
    targets.push(`127.0.0.1:${corePort}`)
    const env = {
      ...shared,
      ...keys,
      DATABASE_URL: database.url,
      ...(rate ? { RATE_FIXED: String(ethUsd) } : { RATE_URLS: 'http://127.0.0.1:9/' }),
      CORE_PORT: corePort,
      CORE_ADMIN_PORT: port(),
      ...(stream ?? { COLLECTOR: 'off' }),
      ...coreEnv,
    }
    await add(cores, runProcess({ name: 'core', env }))
  }
  const targetOf = (i: number): string => targets[i % targets.length] ?? ''
  const platformPort = port()
  const gateways: RunningProcess[] = []
  await add(
    gateways,
    runProcess({
      name: 'gateway',
      env: {
        ...shared,
        CORE_TARGET: targetOf(0),
        PLATFORM_PORT: platformPort,
        BUILDER_PORT: port(),
        GATEWAY_ADMIN_PORT: port(),
        // The gateway's own sidecar is not part of these stories.
        WEBHOOK_SECRET: '',
      },
    }),
  )
  const sidecars: RunningProcess[] = []
  const sidecarPorts: { port: string; admin: string }[] = []
  for (let i = 0; i < sidecarCount; i++) {
    const own = { port: port(), admin: port() }
    sidecarPorts.push(own)
    const env = {
      ...shared,
      CORE_TARGET: targetOf(i),
      SIDECAR_ID: `sidecar-${i}`,
      SIDECAR_PORT: own.port,
      SIDECAR_ADMIN_PORT: own.admin,
      ...sidecarEnv,
    }
    await add(sidecars, runProcess({ name: 'sidecar', env }))
  }
  const operator = connectCore({ target: targetOf(0), token: shared.CORE_TOKEN })
  stops.push(async () => operator.close())
  const url = `http://127.0.0.1:${platformPort}`
  return {
    cores,
    sidecars,
    pool,
    operator,
    createUser: async (usdMicros) => (await createApp({ operator, url }, usdMicros)).addUser('ada'),
    createUsers: async (count, usdMicros) => {
      const app = await createApp({ operator, url }, usdMicros)
      const users: GateUser[] = []
      for (let i = 0; i < count; i++) users.push(await app.addUser(`user-${i}`))
      return users
    },
    startSigner: async (sidecar, settings = {}) => {
      const at = sidecarPorts[sidecar]?.port ?? ''
      const sink = brokers && topic ? kafkaSink(brokers, topic) : null
      const own = { url: `http://127.0.0.1:${at}`, sink, ...shared }
      const signer = await startSigner(own, settings)
      stops.push(signer.stop)
      return signer
    },
    stopDatabase: async (awayMs) => own?.restart(awayMs),
    decide: async (sidecar, user) => {
      const began = performance.now()
      const response = await fetch(`http://127.0.0.1:${sidecarPorts[sidecar]?.port}/authorize`, {
        method: 'POST',
        headers: { authorization: `Bearer ${shared.WEBHOOK_SECRET}` },
        body: JSON.stringify({
          headers: Object.fromEntries(user.headers.map(([name, value]) => [name, [value]])),
          state: fixedState(),
        }),
      })
      const { status }: { status: number } = JSON.parse(await response.text())
      return { status, ms: performance.now() - began }
    },
    sidecarMetrics: async (sidecar) => {
      const page = await fetch(`http://127.0.0.1:${sidecarPorts[sidecar]?.admin}/metrics`)
      return page.text()
    },
  }
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
) {
  const app = await operator.createApp({
    name: `gate ${usdMicros}`,
    ownerEmail: undefined,
    ownerPassword: undefined,
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

async function startSigner(
  { url, sink, WEBHOOK_SECRET }: { url: string; sink: Sink | null; WEBHOOK_SECRET: string },
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
  const authorization = `Bearer ${WEBHOOK_SECRET}`
  const double = createSignerDouble({
    mode,
    // By default a unit's worth, so that few calls find enough credit and end in 482.
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
      // A sidecar that is down takes them when it is back.
      if (!(await send(part))) waiting.push(...part)
    }
  }

  let stopped = false
  const pump = (async () => {
    while (!stopped) {
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
      stopped = true
      await pump
      await double.stop()
    },
  }
}
