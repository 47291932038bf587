import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Stops } from '../../support/deployment/parts.ts'
import { freePorts } from '../../support/deployment/processes.ts'
import type { Random } from '../../support/random.ts'
import { startOwnPostgres } from '../../support/run/own-postgres.ts'
import { programOf } from '../clusters/folder.ts'
import { startKafkaCluster } from '../clusters/kafka.ts'
import { startProgram } from '../../support/run/programs.ts'
import type { Link } from '../product.ts'
import { type Interruption, type Proxy, startProxy } from '../proxy.ts'
import type { Outage, Scenario } from '../run.ts'

const interruptedMs = 10_000
const writesWithinMs = 15_000

type Pair = Link | 'collector-kafka'

const names: Readonly<Record<Pair, string>> = {
  'core-database': 'cores and database',
  'collector-database': 'collectors and database',
  'core-redis': 'cores, collectors and Redis',
  'sidecar-redis': 'sidecars and Redis',
  'gateway-redis': 'gateway and Redis',
  'sidecar-core': 'sidecars and cores',
  'gateway-core': 'gateway and core',
  'collector-kafka': 'collectors and Kafka',
}

const how: Readonly<Record<Interruption, string>> = {
  cut: 'cut (connections closed and refused)',
  hang: 'hang (bytes arrive after the interruption)',
  lose: 'lost (open connections stay open, and nothing arrives over them any more)',
  delay: 'slow (400 ms in each direction)',
}

export const partitions: Scenario = {
  name: 'partitions',
  title: 'Partitions between processes',
  setup:
    'One PostgreSQL, one Redis and one Kafka broker, with a TCP proxy between each pair of processes, which interrupts it ' +
    'for 10 seconds. Times count from the end of the interruption.',
  start: async (stops, { folder, random }) => {
    const proxies = new Map<Pair, Proxy[]>()
    const through = async (pair: Pair, port: number): Promise<number> => {
      const proxy = await startProxy(stops, port)
      proxies.set(pair, [...(proxies.get(pair) ?? []), proxy])
      return proxy.port
    }
    const [database, redisUrl, kafka] = await Promise.all([
      startOwnPostgres(),
      startRedis(stops, folder),
      startKafkaCluster(stops, {
        folder: join(folder, 'kafka'),
        count: 1,
        through: (port) => through('collector-kafka', port),
      }),
    ])
    stops.push(database.stop)
    return {
      databaseUrl: database.url,
      redisUrl,
      kafka,
      kafkaBrokers: kafka.brokers,
      through: async (link, address) => {
        const [, before = '', port = '', after = ''] = /^(.*:)(\d+)(.*)$/.exec(address) ?? []
        return `${before}${await through(link, Number(port))}${after}`
      },
      outages: () =>
        planOf(random).map(([pair, kind]) => interrupt(proxies.get(pair) ?? [], { pair, kind })),
    }
  },
}

async function startRedis(stops: Stops, folder: string): Promise<string> {
  const [port = 0] = await freePorts(1)
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']
  const program = await startProgram(programOf('redis-server'), args, { port, cwd: folder })
  stops.push(() => program.stop('SIGKILL'))
  return `redis://127.0.0.1:${port}`
}

/**
 * Every pair is lost without a sign, and all but two are also interrupted in another way, in
 * an order set by the seed.
 */
function planOf(random: Random): [Pair, Interruption][] {
  const pairs = Object.keys(names) as Pair[]
  const others = pairs.filter((pair) => pair !== 'sidecar-redis' && pair !== 'gateway-redis')
  const plan = [
    ...pairs.map((pair): [Pair, Interruption] => [pair, 'lose']),
    ...others.map((pair): [Pair, Interruption] => [
      pair,
      random.pick(['cut', 'hang', 'delay'] as const),
    ]),
  ]
  return plan
    .map((one) => ({ one, place: random.below(2 ** 31) }))
    .sort((a, b) => a.place - b.place)
    .map(({ one }) => one)
}

const interrupt = (
  proxies: readonly Proxy[],
  { pair, kind }: { pair: Pair; kind: Interruption },
): Outage => ({
  what: `${names[pair]}: ${how[kind]}`,
  writesWithinMs,
  act: async () => {
    for (const proxy of proxies) proxy.interrupt(kind)
    await sleep(interruptedMs)
    for (const proxy of proxies) proxy.heal()
    return performance.now()
  },
})
