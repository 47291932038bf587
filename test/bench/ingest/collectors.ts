import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Admin, Producer } from '@platformatic/kafka'
import { freePorts } from '../../support/deployment/processes.ts'
import type { Bench } from '../row.ts'
import type { Topic } from './tickets.ts'

const root = join(import.meta.dirname, '../../..')
const startMs = 60_000
const produced = 1_000

/** Creates a topic for this run on a real broker. Returns its name and a function that fills it. */
export async function openTopic(bench: Bench, brokers: readonly string[], partitions: number) {
  const topic = `tollgate-bench-${process.pid}-${Date.now()}`
  const connection = { clientId: 'tollgate-bench', bootstrapBrokers: [...brokers], timeout: 30_000 }
  const admin = new Admin(connection)
  await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  const producer = new Producer({ ...connection, retries: 5 })
  bench.defer(async () => {
    await producer.close(true)
    await admin.deleteTopics({ topics: [topic] }).catch(() => undefined)
    await admin.close()
  })

  const ends = Array.from({ length: partitions }, () => 0)
  let turn = 0
  const place = (): number => {
    const partition = turn++ % partitions
    ends[partition] = (ends[partition] ?? 0) + 1
    return partition
  }

  /**
   * Writes `count` events to the partitions in turn. Returns the end of each partition after all
   * are acknowledged.
   */
  async function fill(events: Topic, count: number): Promise<readonly number[]> {
    for (const batch of events.batches(count, produced)) {
      await producer.send({
        messages: batch.map(({ bytes: value }) => ({ topic, value, partition: place() })),
        acks: 1,
      })
    }
    return [...ends]
  }

  return { name: topic, fill }
}

export interface CollectorProcess {
  readonly pid: number
  stop(): Promise<void>
}

/** Runs `tollgate collector` as an operator does, and waits until it collects. */
export async function startCollectorProcess(
  bench: Bench,
  settings: Readonly<Record<string, string>>,
): Promise<CollectorProcess> {
  const { PATH = '', HOME = '' } = process.env
  const [port = 0] = await freePorts(1)
  const child = spawn(process.execPath, ['deploy/tollgate.mjs', 'collector'], {
    cwd: root,
    env: {
      PATH,
      HOME,
      RATE_FIXED: '3000',
      LOG_LEVEL: 'warn',
      COLLECTOR_ADMIN_PORT: String(port),
      ...settings,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const ended = once(child, 'exit')
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM')
    await ended
  }
  bench.defer(stop)
  for (const until = Date.now() + startMs; ; await sleep(20)) {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    )
    if (ready) return { pid: child.pid ?? 0, stop }
    if (Date.now() > until || child.exitCode !== null)
      throw new Error('tollgate collector is not ready')
  }
}
