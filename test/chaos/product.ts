import { join } from 'node:path'
import { type CoreClient, connectCore } from '../../deploy/cli/client.ts'
import { type Stops, coreSecrets, secret } from '../support/deployment/parts.ts'
import {
  type ProcessSpec,
  type RunningProcess,
  freePorts,
  runProcess,
} from '../support/deployment/processes.ts'
import { makeFolder } from './clusters/folder.ts'

/** Connections between two parts, which a scenario may lead through a proxy. */
export type Link =
  | 'core-database'
  | 'collector-database'
  | 'core-redis'
  | 'sidecar-redis'
  | 'gateway-redis'
  | 'sidecar-core'
  | 'gateway-core'

/** What the product's processes use. */
export interface Surroundings {
  readonly databaseUrl: string
  readonly redisUrl: string | null
  /** Null if signers push all events to the sidecars. */
  readonly kafka: { readonly collectorBrokers: readonly string[]; readonly topic: string } | null
  /** Returns the address to use for `address` on a link. */
  readonly through?: (link: Link, address: string) => Promise<string>
  readonly settings?: Readonly<Record<string, string>>
}

export interface Product {
  readonly operator: CoreClient
  readonly coreTarget: string
  readonly coreToken: string
  readonly webhookSecret: string
  readonly platformUrl: string
  readonly sidecars: readonly string[]
  /** Starts a process again that ended by itself. Returns what it logged last. */
  revive(): Promise<string[]>
  /** Error lines of all processes. */
  errors(): string[]
}

type Env = Readonly<Record<string, string>>
type Through = NonNullable<Surroundings['through']>

/** Every ETH costs 3,000 USD. */
export const ethUsd = 3_000n

/** Time within which tickets of an outage arrive, and after which held money is released. */
const holds = { EVENT_LAG_SECONDS: '20', LEASE_SECONDS: '8', HOLD_MAX_SECONDS: '60' }

/** Starts two cores, a gateway, two sidecars and, with Kafka, two collectors. */
export async function startProduct(
  stops: Stops,
  { folder, ...surroundings }: Surroundings & { readonly folder: string },
): Promise<Product> {
  const { kafka, settings = {}, through = async (_, address) => address } = surroundings
  const ports = (await freePorts(13)).map(String)
  const port = (): string => ports.pop() ?? ''
  const processes: { name: string; running: RunningProcess }[] = []
  const shared: Env = {
    CORE_TOKEN: secret(),
    WEBHOOK_SECRET: secret(),
    LOG_LEVEL: 'info',
    RATE_LIMITS: 'off',
    ...settings,
  }
  const start = async (name: ProcessSpec['name'], env: Env): Promise<void> => {
    const running = await runProcess({ name, env: { ...shared, ...env } })
    stops.push(running.stop)
    processes.push({ name: `${name} ${processes.length + 1}`, running })
  }
  const envs = await linkedSettings(surroundings, through)
  const core = {
    ...envs.core,
    ...coreSecrets(),
    ...holds,
    COLLECTOR: 'off',
    QUOTA_MANUAL_CREDIT_USD: '1000000000',
  }
  const targets = [port(), port()]
  for (const CORE_PORT of targets)
    await start('core', { ...core, CORE_PORT, CORE_ADMIN_PORT: port() })
  const target = (index: number): string => `127.0.0.1:${targets[index]}`
  const platformPort = port()
  await start('gateway', {
    ...envs.gateway,
    CORE_TARGET: await through('gateway-core', target(0)),
    PLATFORM_PORT: platformPort,
    BUILDER_PORT: port(),
    GATEWAY_ADMIN_PORT: port(),
    // The sidecars are processes of their own.
    WEBHOOK_SECRET: '',
  })
  const sidecars: string[] = []
  for (const index of [0, 1]) {
    const SIDECAR_PORT = port()
    const SPOOL_DIR = join(folder, `spool-${index}`)
    await makeFolder(SPOOL_DIR)
    const own = {
      SIDECAR_ID: `sidecar-${index}`,
      SIDECAR_PORT,
      SPOOL_DIR,
      SIDECAR_ADMIN_PORT: port(),
    }
    const CORE_TARGET = await through('sidecar-core', target(index))
    await start('sidecar', { ...envs.sidecar, ...own, CORE_TARGET })
    sidecars.push(`http://127.0.0.1:${SIDECAR_PORT}`)
  }
  for (const _ of kafka ? [0, 1] : [])
    await start('collector', { ...envs.collector, COLLECTOR_ADMIN_PORT: port() })
  const { CORE_TOKEN: coreToken = '', WEBHOOK_SECRET: webhookSecret = '' } = shared
  const operator = connectCore({ target: target(0), token: coreToken })
  stops.push(async () => operator.close())
  return {
    operator,
    coreToken,
    webhookSecret,
    sidecars,
    coreTarget: target(0),
    platformUrl: `http://127.0.0.1:${platformPort}`,
    revive: () => revive(processes),
    errors: () => processes.flatMap(({ running }) => running.errors),
  }
}

/** The settings of each kind of process that name the database, Redis and Kafka. */
async function linkedSettings({ databaseUrl, redisUrl, kafka }: Surroundings, through: Through) {
  const priced = { RATE_FIXED: String(ethUsd) }
  const redis = async (link: Link): Promise<Env> =>
    redisUrl === null ? {} : { REDIS_URL: await through(link, redisUrl) }
  return {
    core: {
      ...priced,
      DATABASE_URL: await through('core-database', databaseUrl),
      ...(await redis('core-redis')),
    },
    gateway: await redis('gateway-redis'),
    sidecar: await redis('sidecar-redis'),
    collector: kafka && {
      ...priced,
      DATABASE_URL: await through('collector-database', databaseUrl),
      ...(await redis('core-redis')),
      KAFKA_BROKERS: kafka.collectorBrokers.join(','),
      KAFKA_TOPIC: kafka.topic,
      KAFKA_GROUP: kafka.topic,
      KAFKA_SESSION_SECONDS: '6',
    },
  }
}

async function revive(
  processes: readonly { name: string; running: RunningProcess }[],
): Promise<string[]> {
  const ended = processes.filter(({ running }) => !isRunning(running.pid()))
  for (const { running } of ended) await running.start()
  return ended.map(
    ({ name, running }) =>
      `${name} ended by itself: ${running.errors.at(-1) ?? 'without an error line'}`,
  )
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
