import { maxBatch } from '../../../core/metering/ingest/ingest.ts'
import type { StreamRecord } from '../../../core/metering/events/record.ts'
import { openCopy } from './copy.ts'
import { wireCore } from '../core.ts'
import { createFeed } from './feed.ts'
import { createHolds } from './holds.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'
import { createTopic } from './tickets.ts'

const userCount = 1_000

/**
 * Compares durable ingest with plain COPY: the real collector, from the bytes of events to
 * committed tickets, hourly sums, ledger entries, balances and offsets, with the same rows copied
 * into a bare table.
 */
export async function ingest(bench: Bench): Promise<Finding[]> {
  const [rounds, tickets] = bench.quick ? [3, 20_000] : [5, 180_000]
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const collector = await collect({ core, bench })
  const holds = createHolds(core.pool)
  const copy = await openCopy(url)
  bench.defer(copy.stop)

  // The first round creates the users, warms up the code and leaves the rows for the baseline.
  await collector.time(tickets, anybody)
  await copy.prepare(tickets)
  await copy.time()
  const times = {
    copy: [] as number[],
    spread: [] as number[],
    settled: [] as number[],
    hot: [] as number[],
  }
  for (let round = 0; round < rounds; round++) {
    times.copy.push(await copy.time())
    times.spread.push(await collector.time(tickets, anybody))
    times.settled.push(await collector.time(tickets, anybody, holds.authorise))
    times.hot.push(await collector.time(tickets, mostlyOne))
  }
  await collector.check(tickets * (3 * rounds + 1))
  await holds.check()
  return findings(times, tickets)
}

/** Returns the user of the nth event. */
type Pick = (n: number) => number

const anybody: Pick = () => Math.floor(Math.random() * userCount)
const mostlyOne: Pick = (n) => (n % 10 === 0 ? anybody(n) : 0)

async function collect({ core, bench }: { core: ReturnType<typeof wireCore>; bench: Bench }) {
  const { clientId } = await core.createApp()
  const feed = createFeed()
  const metering = core.createCollecting(feed.source)
  await metering.start()
  bench.defer(metering.stop)
  let pick: Pick = anybody
  const topic = createTopic({ clientId, pick: (n) => pick(n) })

  /**
   * Returns the seconds from the first batch to the commit of the last. Creates the events before.
   */
  async function time(
    tickets: number,
    whose: Pick,
    prepare?: (batches: readonly StreamRecord[][]) => Promise<void>,
  ): Promise<number> {
    pick = whose
    const batches = [...topic.batches(tickets, maxBatch)]
    await prepare?.(batches)
    globalThis.gc?.()
    const started = performance.now()
    await feed.take(batches, tickets)
    return (performance.now() - started) / 1000
  }

  /** Throws unless every event became a priced ticket. */
  async function check(expected: number): Promise<void> {
    const { streams, unpriced } = await metering.status()
    const tickets = streams.reduce((sum, stream) => sum + stream.tickets, 0n)
    if (tickets === BigInt(expected) && unpriced === 0n) return
    throw new Error(`${tickets} of ${expected} tickets, ${unpriced} unpriced`)
  }

  return { time, check }
}

type Times = Readonly<Record<'copy' | 'spread' | 'settled' | 'hot', readonly number[]>>

function findings({ copy, spread, settled, hot }: Times, tickets: number): Finding[] {
  const rate = (seconds: readonly number[]): string => `${count(tickets / median(seconds))}/s`
  return [
    {
      name: 'ingest by COPY',
      unit: '',
      target: { atLeast: 0.2 },
      ...pairedRatio(copy, spread),
      detail: `${rate(spread)}, COPY ${rate(copy)}; ${count(tickets)} tickets of ${count(userCount)} users`,
    },
    {
      name: 'ingest with 90 % on one user, by the row above',
      unit: '',
      target: { atLeast: 0.85 },
      ...pairedRatio(spread, hot),
      detail: `${rate(hot)}, ${pairedRatio(copy, hot).value.toFixed(2)} of COPY`,
    },
    {
      name: 'ingest with settlement by COPY',
      unit: '',
      target: { atLeast: 0.12 },
      ...pairedRatio(copy, settled),
      detail: `${rate(settled)}; each ticket settles a pending authorisation; ${pairedRatio(spread, settled).value.toFixed(2)} of plain ingest`,
    },
  ]
}
