import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type CoreClient, connectCore } from '../../deploy/cli/client.ts'
import { type Stops, coreSecrets, secret } from '../support/deployment/parts.ts'
import {
  type ProcessSpec,
  type RunningProcess,
  freePorts,
  runProcess,
} from '../support/deployment/processes.ts'
import { type Balanced, startBalancer } from '../support/run/haproxy.ts'
import type { Stream } from './load/delivery.ts'

/** A process behind HAProxy, or a collector. */
export interface Member {
  readonly name: string
  readonly adminPort: number
  pid(): number
  /** Stops it and starts it again, with the code in `root`. Returns when it is ready. */
  replace(root: string): Promise<void>
}

export interface Fleet {
  /** Cores, gateways, sidecars and collectors, in the order of an upgrade. */
  readonly members: readonly Member[]
  readonly operator: CoreClient
  readonly platformUrl: string
  readonly sidecarPort: number
  readonly webhookSecret: string
}

export interface FleetParts {
  /** The folder of the code with which it starts. */
  readonly root: string
  readonly databaseUrl: string
  readonly redisUrl: string | undefined
  readonly stream: Stream | null
}

type Settings = Readonly<Record<string, string>>
type Kind = ProcessSpec['name']
interface Plan {
  readonly kind: Kind
  readonly name: string
  readonly adminPort: number
  readonly env: Settings
}

/** Starts two processes of each kind, with HAProxy before cores, gateways and sidecars. */
export async function startFleet(stops: Stops, parts: FleetParts): Promise<Fleet> {
  const balanced = await choosePorts()
  const { ports } = balanced
  const shared = {
    CORE_TOKEN: secret(),
    WEBHOOK_SECRET: secret(),
    CORE_TARGET: `127.0.0.1:${ports.core}`,
    PUBLIC_URL: `http://127.0.0.1:${ports.platform}`,
    RATE_FIXED: '3000',
    RATE_LIMITS: 'off',
    ...(parts.redisUrl !== undefined && { REDIS_URL: parts.redisUrl }),
  }
  const balancer = await startBalancer(balanced)
  stops.push(balancer.stop)
  const members: Member[] = []
  for (const plan of await planMembers(stops, { parts, balanced, shared }))
    members.push(await startMember(stops, plan, parts.root))
  const operator = connectCore({ target: shared.CORE_TARGET, token: shared.CORE_TOKEN })
  stops.push(async () => operator.close())
  // Until HAProxy has seen all of them.
  await sleep(seenMs)
  return {
    members,
    operator,
    platformUrl: shared.PUBLIC_URL,
    sidecarPort: ports.sidecar,
    webhookSecret: shared.WEBHOOK_SECRET,
  }
}

async function choosePorts(): Promise<Balanced> {
  const chosen = await freePorts(18)
  const next = (): number => chosen.pop() ?? 0
  const gateway = () => ({ platform: next(), builder: next(), admin: next() })
  const core = () => ({ grpc: next(), admin: next() })
  const sidecar = () => ({ http: next(), admin: next() })
  return {
    ports: { platform: next(), builder: next(), sidecar: next(), core: next() },
    gateways: [gateway(), gateway()],
    cores: [core(), core()],
    sidecars: [sidecar(), sidecar()],
  }
}

interface Common {
  readonly parts: FleetParts
  readonly balanced: Balanced
  readonly shared: Settings
}

async function planMembers(stops: Stops, common: Common): Promise<Plan[]> {
  const { parts, balanced, shared } = common
  const data = { ...shared, ...coreSecrets(), DATABASE_URL: parts.databaseUrl }
  const cores = balanced.cores.map(({ grpc, admin }, i) =>
    planOf('core', [i, admin], { ...data, COLLECTOR: 'off', CORE_PORT: String(grpc) }),
  )
  const gateways = balanced.gateways.map(({ platform, builder, admin }, i) =>
    planOf('gateway', [i, admin], {
      ...without(shared, 'WEBHOOK_SECRET'),
      TRUSTED_PROXY_HOPS: '1',
      PLATFORM_PORT: String(platform),
      BUILDER_PORT: String(builder),
    }),
  )
  const sidecars: Plan[] = []
  for (const [i, { http, admin }] of balanced.sidecars.entries()) {
    const spool = await mkdtemp(join(tmpdir(), 'tollgate-spool-'))
    stops.push(() => rm(spool, { recursive: true, force: true }))
    const own = { SIDECAR_ID: `sidecar-${i + 1}`, SIDECAR_PORT: String(http), SPOOL_DIR: spool }
    sidecars.push(planOf('sidecar', [i, admin], { ...shared, ...own }))
  }
  return [...cores, ...gateways, ...sidecars, ...(await planCollectors(parts, data))]
}

async function planCollectors({ stream }: FleetParts, data: Settings): Promise<Plan[]> {
  if (!stream) return []
  const env = {
    ...data,
    KAFKA_BROKERS: stream.brokers.join(','),
    KAFKA_TOPIC: stream.topic,
    KAFKA_GROUP: stream.topic,
  }
  const ports = await freePorts(2)
  return ports.map((admin, i) => planOf('collector', [i, admin], env))
}

const planOf = (
  kind: Kind,
  [index, adminPort]: readonly [number, number],
  env: Settings,
): Plan => ({
  kind,
  name: `${kind} ${index + 1}`,
  adminPort,
  env: { ...env, [`${kind.toUpperCase()}_ADMIN_PORT`]: String(adminPort) },
})

const without = ({ ...settings }: Settings, name: string): Settings =>
  Object.fromEntries(Object.entries(settings).filter(([other]) => other !== name))

/** HAProxy checks once a second. */
const seenMs = 2_500
const readyMs = 30_000

async function startMember(stops: Stops, plan: Plan, root: string): Promise<Member> {
  const { kind, name, adminPort, env } = plan
  const start = (code: string): Promise<RunningProcess> =>
    runProcess({ name: kind, env, root: code })
  let running = await start(root)
  stops.push(() => running.stop())
  return {
    name,
    adminPort,
    pid: () => running.pid(),
    replace: async (code) => {
      await running.stop()
      running = await start(code)
      await untilReady(name, adminPort)
      await sleep(seenMs)
    },
  }
}

async function untilReady(name: string, adminPort: number): Promise<void> {
  const url = `http://127.0.0.1:${adminPort}/readyz`
  for (const until = Date.now() + readyMs; ; await sleep(100)) {
    const answer = await fetch(url, { signal: AbortSignal.timeout(5_000) }).catch(() => null)
    if (answer?.ok) return
    if (Date.now() > until) throw new Error(`${name} is not ready: ${await answer?.text()}`)
  }
}
