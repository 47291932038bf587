import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { freePorts } from './processes.ts'

/** A Kafka broker for one test, which may restart it. Also listens with TLS. */
export interface Broker {
  /** The listener without TLS. */
  readonly brokers: readonly string[]
  /** The listener with TLS and SASL/PLAIN. */
  readonly secured: {
    readonly brokers: readonly string[]
    readonly caFile: string
    readonly user: string
    readonly password: string
  }
  /** Sends SIGKILL and returns after the process has exited. */
  kill(): Promise<void>
  /** Starts it again on the same files and ports; returns when it accepts connections. */
  start(): Promise<void>
  /** Kills it and removes its files. */
  stop(): Promise<void>
}

const run = promisify(execFile)
const jarsScript = join(import.meta.dirname, '../../../.ci/kafka/jars.sh')
const upMs = 60_000
const running = new Set<ChildProcess>()
process.once('exit', () => running.forEach((child) => child.kill('SIGKILL')))

/** Starts a broker as .ci/services.sh does. Needs Java 17, and Maven if the jars are missing. */
export async function startBroker(): Promise<Broker> {
  const home = await mkdtemp(join(tmpdir(), 'tollgate-broker-'))
  const user = 'tollgate'
  const password = randomBytes(12).toString('hex')
  const [plain = 0, secured = 0, controller = 0] = await freePorts(3)
  const { stdout } = await run('bash', [jarsScript])
  const classPath = `${stdout.trim()}/*`
  const config = join(home, 'server.properties')
  const caFile = await makeCertificate(home, password)
  await writeFile(config, propertiesOf({ home, user, password, plain, secured, controller }))
  await run('java', [
    '-Xmx128m',
    '-cp',
    classPath,
    'kafka.tools.StorageTool',
    'format',
    '-t',
    'tollgate-test-cluster1',
    '-c',
    config,
  ])
  let child: ChildProcess | null = null

  async function start(): Promise<void> {
    const log = await open(join(home, 'broker.log'), 'a')
    child = spawn(
      'java',
      [
        '-Xms128m',
        '-Xmx384m',
        '-XX:+UseSerialGC',
        '-XX:TieredStopAtLevel=1',
        '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
        '-cp',
        classPath,
        'kafka.Kafka',
        config,
      ],
      { stdio: ['ignore', log.fd, log.fd] },
    )
    await log.close()
    running.add(child)
    for (const until = Date.now() + upMs; !(await answers(plain)); await sleep(100)) {
      if (child.exitCode === null && Date.now() < until) continue
      throw new Error(
        `the broker did not start:\n${(await readFile(join(home, 'broker.log'), 'utf8')).slice(-2_000)}`,
      )
    }
  }

  async function kill(): Promise<void> {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    running.delete(child)
  }

  async function stop(): Promise<void> {
    await kill()
    await rm(home, { recursive: true, force: true })
  }

  await start().catch(async (error: unknown) => {
    await stop()
    throw error
  })
  return {
    brokers: [`127.0.0.1:${plain}`],
    secured: { brokers: [`127.0.0.1:${secured}`], caFile, user, password },
    kill,
    start,
    stop,
  }
}

/** Creates a self-signed certificate. Returns the file that clients use as CA. */
async function makeCertificate(home: string, password: string): Promise<string> {
  const store = [
    '-keystore',
    join(home, 'broker.p12'),
    '-storetype',
    'PKCS12',
    '-storepass',
    password,
    '-alias',
    'broker',
  ]
  await run('keytool', [
    '-genkeypair',
    ...store,
    '-keyalg',
    'EC',
    '-groupname',
    'secp256r1',
    '-validity',
    '2',
    '-dname',
    'CN=tollgate-test',
    '-ext',
    'san=ip:127.0.0.1,dns:localhost',
  ])
  const caFile = join(home, 'ca.pem')
  await run('keytool', ['-exportcert', '-rfc', ...store, '-file', caFile])
  return caFile
}

interface Place {
  readonly home: string
  readonly user: string
  readonly password: string
  readonly plain: number
  readonly secured: number
  readonly controller: number
}

const propertiesOf = ({ home, user, password, plain, secured, controller }: Place): string => `
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${controller}
listeners=PLAINTEXT://127.0.0.1:${plain},SASL_SSL://127.0.0.1:${secured},CONTROLLER://127.0.0.1:${controller}
advertised.listeners=PLAINTEXT://127.0.0.1:${plain},SASL_SSL://127.0.0.1:${secured}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.location=${home}/broker.p12
ssl.keystore.type=PKCS12
ssl.keystore.password=${password}
ssl.key.password=${password}
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_${user}="${password}";
log.dirs=${home}/data
num.partitions=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`

function answers(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const socket = connect({ host: '127.0.0.1', port, timeout: 1_000 })
  socket
    .once('connect', () => resolve(true))
    .once('error', () => resolve(false))
    .once('timeout', () => resolve(false))
  return promise.finally(() => socket.destroy())
}
