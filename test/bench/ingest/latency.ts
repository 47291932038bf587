import { setTimeout as sleep } from 'node:timers/promises'
import { openTopic, startCollectorProcess } from './collectors.ts'
import { type Wired, wireCore } from '../core.ts'
import type { Bench, Finding } from '../row.ts'
import { middleHalf, quantile } from '../stats.ts'
import { count } from '../table.ts'
import { createTopic } from './tickets.ts'

const userCount = 1_000
const partitions = 12
const tickMs = 25
const giveUpMs = 120_000

/**
 * Measures the time from the broker's acknowledgement of an event to its balance, at half of the
 * rate at which the same process has just worked off a backlog on the same machine.
 */
export async function latency(bench: Bench): Promise<Finding[]> {
  if (bench.kafka === null) {
    bench.say('latency: no row, because BENCH_KAFKA_BROKERS (or TEST_KAFKA_BROKERS) names no Kafka')
    return []
  }
  const [backlog, seconds] = bench.quick ? [60_000, 8] : [150_000, 15]
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const { clientId } = await core.createApp()
  const topic = await openTopic(bench, bench.kafka, partitions)
  const events = createTopic({ clientId, pick: () => Math.floor(Math.random() * userCount) })
  const ends = await topic.fill(events, backlog)
  const collector = await startCollectorProcess(bench, {
    DATABASE_URL: url,
    KAFKA_BROKERS: bench.kafka.join(','),
    KAFKA_TOPIC: topic.name,
    KAFKA_GROUP: topic.name,
  })
  const rate = await rateOf(core, ends)

  const perTick = Math.round((rate / 2) * (tickMs / 1000))
  const delays = await watch(core, { seconds, send: () => topic.fill(events, perTick) })
  await collector.stop()
  return [
    {
      name: 'broker to balance, p99',
      unit: 's',
      target: { atMost: 1 },
      value: quantile(delays, 0.99),
      spread: middleHalf(delays),
      detail:
        `median ${quantile(delays, 0.5).toFixed(2)} s, most ${Math.max(...delays).toFixed(2)} s over ${seconds} s ` +
        `at ${count((perTick * 1000) / tickMs)}/s, half of ${count(rate)}/s`,
    },
  ]
}

/** Offset of each partition after everything written to it is consumed. */
type Ends = readonly number[]

/** Returns events per second, from the first consumed ones to the last. */
async function rateOf(core: Wired, ends: Ends): Promise<number> {
  const total = sum(ends)
  let first: { readonly at: number; readonly consumed: number } | null = null
  for (const until = Date.now() + giveUpMs; Date.now() < until; await sleep(20)) {
    const consumed = sum(await consumedOf(core))
    if (consumed > 0) first ??= { at: performance.now(), consumed }
    if (first && consumed >= total)
      return ((consumed - first.consumed) / (performance.now() - first.at)) * 1000
  }
  throw new Error('the backlog was not consumed in time')
}

const sum = (ends: Ends): number => ends.reduce((all, end) => all + end, 0)

/** Returns the committed offset of each partition: balances include everything before it. */
async function consumedOf({ pool }: Wired): Promise<Ends> {
  const { rows } = await pool.query<{ partition: number; consumed: number }>(
    'select partition, next_offset::integer as consumed from stream_offsets order by partition',
  )
  const consumed = new Map(rows.map((row) => [row.partition, row.consumed]))
  return Array.from({ length: partitions }, (_, partition) => consumed.get(partition) ?? 0)
}

interface Watching {
  readonly seconds: number
  /** Sends one tick's events. Returns the ends of the partitions after their acknowledgement. */
  readonly send: () => Promise<Ends>
}

/**
 * Sends at an even pace. Returns, per tick, the seconds from the acknowledgement to the balance of
 * its last event.
 */
async function watch(core: Wired, { seconds, send }: Watching): Promise<number[]> {
  const waiting: { readonly ends: Ends; readonly at: number }[] = []
  const delays: number[] = []
  const sending = new AbortController()
  const looking = (async () => {
    for (
      const until = Date.now() + giveUpMs;
      !sending.signal.aborted || waiting.length > 0;
      await sleep(5)
    ) {
      const consumed = await consumedOf(core)
      const now = performance.now()
      for (
        let next = waiting[0];
        next?.ends.every((end, i) => end <= (consumed[i] ?? 0));
        next = waiting[0]
      ) {
        delays.push((now - next.at) / 1000)
        waiting.shift()
      }
      if (Date.now() > until) throw new Error('events were not consumed in time')
    }
  })()
  const began = performance.now()
  for (let tick = 1; tick * tickMs <= seconds * 1000; tick++) {
    await sleep(Math.max(0, began + tick * tickMs - performance.now()))
    waiting.push({ ends: await send(), at: performance.now() })
  }
  sending.abort()
  await looking
  return delays
}
