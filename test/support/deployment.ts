import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import { type Pool, createPool } from '../../core/lib/sql.ts'
import { type CoreClient, basic, connectCore } from '../../deploy/core-client.ts'
import { type Line, directLine, kafkaLine, spooledLine } from './delivery.ts'
import { createTopic } from './kafka.ts'
import { createDatabase } from './postgres.ts'
import { type RunningProcess, freePorts, runProcess } from './processes.ts'

export interface Deployment {
  readonly core: RunningProcess
  readonly gateway: RunningProcess
  readonly sidecar: RunningProcess
  readonly operator: CoreClient
  readonly platformUrl: string
  readonly line: Line
  /** Null in direct mode. */
  readonly topic: string | null
  readonly pool: Pool
  stop(): Promise<void>
}

const secret = (): string => randomBytes(32).toString('hex')

/** Core, gateway and sidecar as processes of their own on the parts of this vitest project, with a database of their own. */
export async function startDeployment(): Promise<Deployment> {
  const stops: (() => Promise<unknown>)[] = []
  const stop = async (): Promise<void> => {
    for (const step of stops.splice(0).toReversed()) await step()
  }
  try {
    return { ...await start(stops), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function start(stops: (() => Promise<unknown>)[]): Promise<Omit<Deployment, 'stop'>> {
  const database = await createDatabase()
  stops.push(database.drop)
  const pool = createPool({ url: database.url, max: 4, name: 'tollgate-test', statementTimeoutMs: 60_000 })
  pool.on('error', () => {})
  stops.push(() => pool.end())

  const { redisUrl, kafkaBrokers: brokers } = inject('parts')
  const topic = brokers && await createTopic(4)
  const ports = await settingsOfPorts()
  const shared = {
    ...ports, CORE_TARGET: `127.0.0.1:${ports.CORE_PORT}`, CORE_TOKEN: secret(), WEBHOOK_SECRET: secret(),
    LOG_LEVEL: 'info', RATE_LIMITS: 'off', ...(redisUrl && { REDIS_URL: redisUrl }),
  }
  const core = await runProcess({
    name: 'core', env: {
      ...shared, DATABASE_URL: database.url, KEY_ENCRYPTION_KEY: secret(), SECRET_PEPPERS: `p1:${secret()}`, RATE_FIXED: '3000',
      ...(topic && { KAFKA_BROKERS: brokers.join(','), KAFKA_TOPIC: topic, KAFKA_GROUP: topic, KAFKA_SESSION_SECONDS: '6' }),
    },
  })
  stops.push(core.stop)
  const spool = await mkdtemp(join(tmpdir(), 'tollgate-spool-'))
  stops.push(() => rm(spool, { recursive: true, force: true }))
  const sidecar = await runProcess({ name: 'sidecar', env: { ...shared, SPOOL_DIR: spool } })
  stops.push(sidecar.stop)
  const gateway = await runProcess({ name: 'gateway', env: shared })
  stops.push(gateway.stop)

  const operator = connectCore({ target: shared.CORE_TARGET, token: shared.CORE_TOKEN })
  stops.push(async () => operator.close())
  const line = topic ? kafkaLine({ brokers, topic })
    : spooledLine(directLine({ url: `http://127.0.0.1:${ports.SIDECAR_PORT}`, secret: shared.WEBHOOK_SECRET }), {
      adminUrl: `http://127.0.0.1:${ports.SIDECAR_ADMIN_PORT}`, crashes: () => core.crashes() + sidecar.crashes(),
    })
  stops.push(line.close)
  return { core, gateway, sidecar, operator, line, topic, pool, platformUrl: `http://127.0.0.1:${ports.PLATFORM_PORT}` }
}

const portSettings = [
  'CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'CORE_ADMIN_PORT', 'GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT',
] as const

async function settingsOfPorts(): Promise<Record<(typeof portSettings)[number], string>> {
  const [core, platform, builder, sidecar, coreAdmin, gatewayAdmin, sidecarAdmin] = (await freePorts(portSettings.length)).map(String)
  return {
    CORE_PORT: core ?? '', PLATFORM_PORT: platform ?? '', BUILDER_PORT: builder ?? '', SIDECAR_PORT: sidecar ?? '',
    CORE_ADMIN_PORT: coreAdmin ?? '', GATEWAY_ADMIN_PORT: gatewayAdmin ?? '', SIDECAR_ADMIN_PORT: sidecarAdmin ?? '',
  }
}

export interface TestApp {
  readonly clientId: string
  readonly starterMicros: bigint
  /** One request as the app's backend, as often as it takes to get an answer that is not 503. */
  call<Answer>(method: string, path: string, options?: { readonly json?: unknown; readonly key?: string }): Promise<Answer>
}

const giveUpMs = 60_000

/** An app whose Starter plan includes `starterMicros`. */
export async function createApp({ operator, platformUrl }: Deployment, starterMicros: bigint): Promise<TestApp> {
  const made = await operator.createApp({
    name: `starter ${starterMicros}`, ownerEmail: undefined, ownerPassword: undefined, starterUsdMicros: String(starterMicros),
  })
  const authorization = basic(made.m2mClientId, made.m2mClientSecret)

  async function call<Answer>(method: string, path: string, { json, key }: { json?: unknown; key?: string } = {}): Promise<Answer> {
    const until = Date.now() + giveUpMs
    for (;;) {
      const response = await fetch(platformUrl + path, {
        method, signal: AbortSignal.timeout(10_000),
        headers: { authorization, ...(json !== undefined && { 'content-type': 'application/json' }), ...(key && { 'idempotency-key': key }) },
        body: json === undefined ? null : JSON.stringify(json),
      })
      const text = await response.text()
      if (response.ok) {
        const answer: Answer = JSON.parse(text)
        return answer
      }
      // Core is being killed, or still has a request with this key in its hands.
      const again = response.status === 503 || (key !== undefined && response.status === 409)
      if (!again || Date.now() > until) throw new Error(`${method} ${path}: ${response.status} ${text}`)
      await new Promise((resolve) => { setTimeout(resolve, 100) })
    }
  }

  return { clientId: made.clientId, starterMicros, call }
}
