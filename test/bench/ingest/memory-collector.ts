import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { openTopic, startCollectorProcess } from './collectors.ts'
import { wireCore } from '../core.ts'
import type { Bench, Finding } from '../row.ts'
import { count } from '../table.ts'
import { createTopic } from './tickets.ts'

const userCount = 1_000
const partitions = 12
const giveUpMs = 300_000

/**
 * Measures the maximum memory of `tollgate collector` while it works off a backlog at full speed.
 */
export async function collectorMemory(bench: Bench): Promise<Finding[]> {
  if (bench.kafka === null) {
    bench.say(
      'memory-collector: no row, because BENCH_KAFKA_BROKERS (or TEST_KAFKA_BROKERS) names no Kafka',
    )
    return []
  }
  const backlog = bench.quick ? 200_000 : 1_000_000
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const { clientId } = await core.createApp()
  const topic = await openTopic(bench, bench.kafka, partitions)
  bench.say(`writing a backlog of ${count(backlog)} events`)
  await topic.fill(
    createTopic({ clientId, pick: () => Math.floor(Math.random() * userCount) }),
    backlog,
  )

  const collector = await startCollectorProcess(bench, {
    DATABASE_URL: url,
    KAFKA_BROKERS: bench.kafka.join(','),
    KAFKA_TOPIC: topic.name,
    KAFKA_GROUP: topic.name,
  })
  const started = performance.now()
  let early = 0
  for (let consumed = 0; consumed < backlog; await sleep(250)) {
    if (performance.now() - started > giveUpMs)
      throw new Error(`only ${consumed} of ${backlog} events were consumed`)
    consumed = await consumedOf(core.pool)
    if (consumed < backlog / 5) early = await highWaterMiB(collector.pid)
  }
  const seconds = (performance.now() - started) / 1000
  const most = await highWaterMiB(collector.pid)
  await collector.stop()
  return [
    {
      name: 'memory, collector at full rate',
      unit: 'MB',
      target: { atMost: 150 },
      value: most,
      spread: null,
      detail: `most that was resident; ${early.toFixed(0)} MB after the first fifth; ${count(backlog)} events at ${count(backlog / seconds)}/s`,
    },
  ]
}

async function consumedOf(pool: ReturnType<typeof wireCore>['pool']): Promise<number> {
  const { rows } = await pool.query<{ consumed: number }>(
    'select coalesce(sum(tickets), 0)::integer as consumed from stream_offsets',
  )
  return rows[0]?.consumed ?? 0
}

/** Returns the maximum resident size of a process, as counted by the kernel. */
async function highWaterMiB(pid: number): Promise<number> {
  const [, kib = 'NaN'] = /VmHWM:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}
