import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import { type Pool } from '../../../core/lib/sql.ts'
import { type CoreClient, basic, connectCore } from '../../../deploy/cli/client.ts'
import { startBroker } from './broker.ts'
import { type Line, directLine, kafkaLine, spooledLine } from './delivery.ts'
import { createTopic } from '../run/kafka.ts'
import { startOwnPostgres } from '../run/own-postgres.ts'
import { createDatabase } from '../run/postgres.ts'
import { type Stops, coreSecrets, openPool, secret, startParts } from './parts.ts'
import { type RunningProcess, freePorts, runProcess } from './processes.ts'

export interface Deployment {
  readonly core: RunningProcess
  readonly gateway: RunningProcess
  readonly sidecar: RunningProcess
  /** Collectors that run as separate processes; empty in direct mode. */
  readonly collectors: readonly RunningProcess[]
  readonly operator: CoreClient
  readonly platformUrl: string
  readonly line: Line
  /** Null in direct mode. */
  readonly topic: string | null
  readonly pool: Pool
  /**
   * Kills and restarts the database or the broker. Null in direct mode, where both are shared with
   * other tests.
   */
  readonly outages: {
    readonly database: () => Promise<void>
    readonly broker: () => Promise<void>
  } | null
  /** Stops the collectors, runs `between`, and starts collectors in a new consumer group. */
  regroup(between: () => Promise<void>): Promise<void>
  stop(): Promise<void>
}

/**
 * Starts core, gateway and sidecar as separate processes. If this vitest project has Kafka, also
 * starts collectors, with a broker and a PostgreSQL that only this test uses and may stop.
 */
export const startDeployment = (): Promise<Deployment> => startParts(start)

async function start(stops: Stops): Promise<Omit<Deployment, 'stop'>> {
  const { redisUrl, kafkaBrokers } = inject('parts')
  const parts = kafkaBrokers === null ? await sharedParts(stops) : await ownParts(stops)
  const pool = openPool(stops, parts.databaseUrl)
  const ports = await settingsOfPorts()
  const shared = {
    ...ports,
    CORE_TARGET: `127.0.0.1:${ports.CORE_PORT}`,
    CORE_TOKEN: secret(),
    WEBHOOK_SECRET: secret(),
    LOG_LEVEL: 'info',
    RATE_LIMITS: 'off',
    ...(redisUrl && { REDIS_URL: redisUrl }),
  }
  const { core, sidecar, gateway, collectors } = await startProcesses(stops, { shared, parts })
  const operator = connectCore({ target: shared.CORE_TARGET, token: shared.CORE_TOKEN })
  stops.push(async () => operator.close())
  const line = parts.stream ? kafkaLine(parts.stream) : pushLine({ shared, core, sidecar })
  stops.push(line.close)
  return {
    core,
    gateway,
    sidecar,
    operator,
    line,
    pool,
    topic: parts.stream?.topic ?? null,
    outages: parts.outages,
    collectors: collectors?.running ?? [],
    regroup: async (between) => collectors?.regroup(between),
    platformUrl: `http://127.0.0.1:${ports.PLATFORM_PORT}`,
  }
}

type Parts = Awaited<ReturnType<typeof sharedParts>> | Awaited<ReturnType<typeof ownParts>>
type SharedSettings = Awaited<ReturnType<typeof settingsOfPorts>> &
  Readonly<Record<'CORE_TARGET' | 'CORE_TOKEN' | 'WEBHOOK_SECRET', string>>

/** Starts core first, then the others in parallel; collectors only if there is a stream. */
async function startProcesses(
  stops: Stops,
  { shared, parts }: { shared: SharedSettings; parts: Parts },
) {
  // The story sets the price of ETH: a fixed rate would price tickets that wait for a late
  // observation.
  const data = { ...shared, DATABASE_URL: parts.databaseUrl, RATE_URLS: 'http://127.0.0.1:9' }
  const core = await runProcess({
    name: 'core',
    env: {
      ...data,
      ...coreSecrets(),
      COLLECTOR: 'off',
      QUOTA_MANUAL_CREDIT_USD: '1000000000',
    },
  }).then((one) => stopLater(stops, one))
  const spool = await mkdtemp(join(tmpdir(), 'tollgate-spool-'))
  stops.push(() => rm(spool, { recursive: true, force: true }))
  const [sidecar, gateway, collectors] = await Promise.all([
    runProcess({ name: 'sidecar', env: { ...shared, SPOOL_DIR: spool } }).then((one) =>
      stopLater(stops, one),
    ),
    runProcess({ name: 'gateway', env: shared }).then((one) => stopLater(stops, one)),
    parts.stream && startCollectors(stops, { ...data, ...parts.stream.settings }),
  ])
  return { core, sidecar, gateway, collectors }
}

/** Direct mode: sends events to the sidecar, which spools them. */
function pushLine({
  shared,
  core,
  sidecar,
}: {
  shared: SharedSettings
  core: RunningProcess
  sidecar: RunningProcess
}): Line {
  const direct = directLine({
    url: `http://127.0.0.1:${shared.SIDECAR_PORT}`,
    secret: shared.WEBHOOK_SECRET,
  })
  return spooledLine(direct, {
    adminUrl: `http://127.0.0.1:${shared.SIDECAR_ADMIN_PORT}`,
    crashes: () => core.crashes() + sidecar.crashes(),
  })
}

function stopLater<Part extends { stop(): Promise<void> }>(stops: Stops, part: Part): Part {
  stops.push(part.stop)
  return part
}

async function sharedParts(stops: Stops) {
  const database = await createDatabase()
  stops.push(database.drop)
  return { databaseUrl: database.url, stream: null, outages: null }
}

const partitions = 12
const awayMs = 1_500

async function ownParts(stops: Stops) {
  const [postgres, broker] = await Promise.all([
    startOwnPostgres().then((one) => stopLater(stops, one)),
    startBroker().then((one) => stopLater(stops, one)),
  ])
  const topic = await createTopic(partitions, broker.brokers)
  const settings = {
    KAFKA_BROKERS: broker.brokers.join(','),
    KAFKA_TOPIC: topic,
    KAFKA_GROUP: topic,
    KAFKA_SESSION_SECONDS: '6',
  }
  const outages = {
    database: () => postgres.restart(awayMs),
    broker: async () => {
      await broker.kill()
      await broker.start()
    },
  }
  return {
    databaseUrl: postgres.url,
    stream: { brokers: broker.brokers, topic, settings },
    outages,
  }
}

const collectorCount = 2

async function startCollectors(stops: Stops, settings: Readonly<Record<string, string>>) {
  const running: RunningProcess[] = []
  stops.push(() => Promise.all(running.map((collector) => collector.stop())))
  const startAll = async (more: Readonly<Record<string, string>>): Promise<void> => {
    for (const port of await freePorts(collectorCount)) {
      running.push(
        await runProcess({
          name: 'collector',
          env: { ...settings, ...more, COLLECTOR_ADMIN_PORT: String(port) },
        }),
      )
    }
  }

  async function regroup(between: () => Promise<void>): Promise<void> {
    await Promise.all(running.splice(0).map((collector) => collector.stop()))
    await between()
    await startAll({ KAFKA_GROUP: `${settings['KAFKA_GROUP']}-again` })
  }

  await startAll({})
  return { running, regroup }
}

const portSettings = [
  'CORE_PORT',
  'PLATFORM_PORT',
  'BUILDER_PORT',
  'SIDECAR_PORT',
  'CORE_ADMIN_PORT',
  'GATEWAY_ADMIN_PORT',
  'SIDECAR_ADMIN_PORT',
] as const

async function settingsOfPorts(): Promise<Record<(typeof portSettings)[number], string>> {
  const [core, platform, builder, sidecar, coreAdmin, gatewayAdmin, sidecarAdmin] = (
    await freePorts(portSettings.length)
  ).map(String)
  return {
    CORE_PORT: core ?? '',
    PLATFORM_PORT: platform ?? '',
    BUILDER_PORT: builder ?? '',
    SIDECAR_PORT: sidecar ?? '',
    CORE_ADMIN_PORT: coreAdmin ?? '',
    GATEWAY_ADMIN_PORT: gatewayAdmin ?? '',
    SIDECAR_ADMIN_PORT: sidecarAdmin ?? '',
  }
}

export interface TestApp {
  readonly clientId: string
  readonly starterMicros: bigint
  /** Whether the app is a customer's, whose account its calls charge, too. */
  readonly isCustomer: boolean
  /** Sends a request as the app's backend, and repeats it until the answer is not 503. */
  call<Answer>(
    method: string,
    path: string,
    options?: { readonly json?: unknown; readonly key?: string },
  ): Promise<Answer>
}

const giveUpMs = 60_000

/**
 * Creates an app whose Starter plan includes `starterMicros`: the platform's own, or that of a
 * customer with this address.
 */
export async function createApp(
  { operator, platformUrl }: Deployment,
  starterMicros: bigint,
  customer?: string,
): Promise<TestApp> {
  const created = await operator.apps.createApp({
    name: `starter ${starterMicros}`,
    ownerEmail: customer,
    ownerPassword: undefined,
    isCustomer: customer !== undefined,
    starterUsdMicros: String(starterMicros),
  })
  const authorization = basic(created.m2mClientId, created.m2mClientSecret)

  async function call<Answer>(
    method: string,
    path: string,
    { json, key }: { json?: unknown; key?: string } = {},
  ): Promise<Answer> {
    const until = Date.now() + giveUpMs
    for (;;) {
      const response = await fetch(platformUrl + path, {
        method,
        signal: AbortSignal.timeout(10_000),
        headers: {
          authorization,
          ...(json !== undefined && { 'content-type': 'application/json' }),
          ...(key && { 'idempotency-key': key }),
        },
        body: json === undefined ? null : JSON.stringify(json),
      })
      const text = await response.text()
      if (response.ok) {
        const answer: Answer = JSON.parse(text)
        return answer
      }
      // Core is being killed, or an earlier request with this key is still running.
      const again = response.status === 503 || (key !== undefined && response.status === 409)
      if (!again || Date.now() > until)
        throw new Error(`${method} ${path}: ${response.status} ${text}`)
      await new Promise((resolve) => {
        setTimeout(resolve, 100)
      })
    }
  }

  return { clientId: created.clientId, starterMicros, isCustomer: customer !== undefined, call }
}
