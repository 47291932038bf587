import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Admin } from '@platformatic/kafka'
import type { Stops } from '../../support/deployment/parts.ts'
import { freePorts } from '../../support/deployment/processes.ts'
import { type Program, startProgram } from '../../support/run/programs.ts'
import { makeFolder, programOf, untilTrue, writeOwned } from './folder.ts'

export interface KafkaOptions {
  readonly folder: string
  /** Three brokers store three copies and require two in sync; one broker stores one. */
  readonly count: 1 | 3
  /** Returns the port that collectors use for a broker's port; without it, the same. */
  readonly through?: (port: number) => Promise<number>
}

/** Kafka brokers in KRaft mode. */
export interface KafkaCluster {
  /** Addresses for signers. */
  readonly brokers: readonly string[]
  /** Addresses for collectors: the listener behind `through`. */
  readonly collectorBrokers: readonly string[]
  /** A topic with twelve partitions. */
  readonly topic: string
  /** Kills a broker with SIGKILL. */
  kill(index: number): Promise<void>
  /** Starts a broker again; returns when every partition has all of its copies in sync. */
  restart(index: number): Promise<void>
}

const run = promisify(execFile)
const jarsScript = join(import.meta.dirname, '../../../.ci/kafka/jars.sh')
const partitions = 12
const topic = 'tollgate-chaos'
const syncMs = 90_000

interface Broker {
  readonly id: number
  readonly plain: number
  readonly collectors: number
  readonly advertised: number
  readonly controller: number
  readonly folder: string
}

export async function startKafkaCluster(
  stops: Stops,
  options: KafkaOptions,
): Promise<KafkaCluster> {
  const { folder, count } = options
  const classPath = `${(await run('bash', [jarsScript])).stdout.trim()}/*`
  const brokers = await chooseBrokers(options)
  const running = new Map<number, Program>()
  stops.push(async () => {
    await Promise.all([...running.values()].map((program) => program.stop('SIGKILL')))
  })
  await makeFolder(folder)

  async function start(broker: Broker): Promise<void> {
    const file = join(broker.folder, 'server.properties')
    const args = [...javaOptions, '-cp', classPath, 'kafka.Kafka', file]
    const program = await startProgram(programOf('java'), args, {
      port: broker.plain,
      cwd: broker.folder,
      // The jars are in this user's cache.
      asSelf: true,
    })
    running.set(broker.id, program)
  }

  await Promise.all(
    brokers.map(async (broker) => {
      await writeProperties(broker, { brokers, classPath })
      await start(broker)
    }),
  )
  const addresses = brokers.map(({ plain }) => `127.0.0.1:${plain}`)
  await untilSynced(addresses, { count, creates: true })
  const brokerAt = (index: number): Broker => {
    const broker = brokers[index]
    if (broker === undefined) throw new Error(`there is no broker ${index}`)
    return broker
  }

  return {
    brokers: addresses,
    collectorBrokers: brokers.map(({ advertised }) => `127.0.0.1:${advertised}`),
    topic,
    kill: async (index) => running.get(brokerAt(index).id)?.stop('SIGKILL'),
    restart: async (index) => {
      await start(brokerAt(index))
      await untilSynced(addresses, { count, creates: false })
    },
  }
}

const javaOptions = [
  '-Xms128m',
  '-Xmx320m',
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=error',
]

async function chooseBrokers({ folder, count, through }: KafkaOptions): Promise<Broker[]> {
  const ports = await freePorts(3 * count)
  const brokers: Broker[] = []
  for (let i = 0; i < count; i++) {
    const [plain = 0, collectors = 0, controller = 0] = ports.slice(3 * i)
    const advertised = through ? await through(collectors) : collectors
    const id = i + 1
    brokers.push({ id, plain, collectors, advertised, controller, folder: join(folder, `${id}`) })
  }
  return brokers
}

async function writeProperties(
  broker: Broker,
  { brokers, classPath }: { brokers: readonly Broker[]; classPath: string },
): Promise<void> {
  await makeFolder(broker.folder)
  const file = join(broker.folder, 'server.properties')
  await writeOwned(file, propertiesOf(broker, brokers))
  const format = ['kafka.tools.StorageTool', 'format', '-t', 'tollgate-chaos-cluster', '-c', file]
  await run(programOf('java'), ['-Xmx128m', '-cp', classPath, ...format])
}

function propertiesOf(broker: Broker, brokers: readonly Broker[]): string {
  const { id, plain, collectors, advertised, controller, folder } = broker
  const copies = brokers.length
  const inSync = copies === 3 ? 2 : 1
  const voters = brokers.map((each) => `${each.id}@127.0.0.1:${each.controller}`).join(',')
  const listeners = `PLAINTEXT://127.0.0.1:${plain},COLLECTORS://127.0.0.1:${collectors}`
  return `
process.roles=broker,controller
node.id=${id}
controller.quorum.voters=${voters}
listeners=${listeners},CONTROLLER://127.0.0.1:${controller}
advertised.listeners=PLAINTEXT://127.0.0.1:${plain},COLLECTORS://127.0.0.1:${advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,COLLECTORS:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=${folder}/data
num.partitions=${partitions}
auto.create.topics.enable=false
default.replication.factor=${copies}
min.insync.replicas=${inSync}
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=${copies}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=${copies}
transaction.state.log.min.isr=${inSync}
share.coordinator.state.topic.replication.factor=${copies}
share.coordinator.state.topic.min.isr=${inSync}
`
}

/** Waits until every partition of the topic has `count` copies in sync. */
const untilSynced = (
  brokers: readonly string[],
  topicOptions: { count: number; creates: boolean },
): Promise<void> =>
  untilTrue('the copies are in sync', {
    withinMs: syncMs,
    isSo: () => isSynced(brokers, topicOptions),
  })

async function isSynced(
  brokers: readonly string[],
  { count, creates }: { count: number; creates: boolean },
): Promise<boolean> {
  const admin = new Admin({
    clientId: 'tollgate-chaos',
    bootstrapBrokers: [...brokers],
    timeout: 5_000,
    retries: 0,
  })
  admin.on('error', () => {})
  try {
    if (creates)
      await admin.createTopics({ topics: [topic], partitions, replicas: count }).catch(() => {})
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    const all = topics.get(topic)?.partitions ?? []
    return (
      all.length === partitions &&
      all.every(({ leader, isr }) => leader >= 0 && isr.length === count)
    )
  } finally {
    await admin.close().catch(() => {})
  }
}
