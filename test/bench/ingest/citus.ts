import { noteDistribution } from '../../../core/shared/database/app-groups.ts'
import { maxBatch } from '../../../core/metering/ingest/ingest.ts'
import { createMigratedDatabase } from '../../support/run/citus-cluster.ts'
import { wireCore } from '../core.ts'
import { atEvenRate, openEscrow } from '../gate/reserve.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'
import { createFeed } from './feed.ts'
import { createTopic, userName } from './tickets.ts'

const appCount = 4
const userCount = 1_000
const payerCount = 100
const reservationsPerSecond = 50

/**
 * Compares ingest and reservations on one node, the coordinator without distributed tables, with the
 * cluster at CITUS_URL with one and with two workers. With all nodes on one machine it measures the
 * cost of distribution, not its gain.
 */
export async function citus(bench: Bench): Promise<Finding[]> {
  if (bench.citus === null) {
    bench.say('citus: no row, because CITUS_URL names no Citus cluster')
    return []
  }
  const [rounds, tickets, seconds] = bench.quick ? [3, 4_000, 4] : [5, 40_000, 20]
  const urls: string[] = []
  for (const workers of [0, 1, 2]) {
    const database = await createMigratedDatabase(bench.citus, workers)
    bench.defer(database.drop)
    urls.push(database.url)
  }
  const [single = [], one = [], two = []] = await timeIngest(bench, urls, { rounds, tickets })
  const [alone = [], ...onCluster] = await timeReservations(bench, urls, seconds)
  const rate = (times: readonly number[]): string => `${count(tickets / median(times))}/s`
  const milliseconds = (delays: readonly number[]): string =>
    `${(median(delays) * 1000).toFixed(1)} ms`
  return [one, two].flatMap((times, index) => {
    const workers = index === 0 ? 'one worker' : 'two workers'
    const delays = onCluster[index] ?? []
    return [
      {
        name: `ingest on Citus with ${workers}, by one node`,
        unit: '' as const,
        target: null,
        ...pairedRatio(single, times),
        detail: `${rate(times)}, one node ${rate(single)}; ${appCount} apps; on one machine: the cost`,
      },
      {
        name: `a reservation on Citus with ${workers}, by one node`,
        unit: '' as const,
        target: null,
        value: median(delays) / median(alone),
        spread: null,
        detail: `median ${milliseconds(delays)}, one node ${milliseconds(alone)}, at ${reservationsPerSecond}/s`,
      },
    ]
  })
}

interface IngestSize {
  readonly rounds: number
  readonly tickets: number
}

/** Returns the seconds of each round by database, in alternating rounds. The first is not counted. */
async function timeIngest(
  bench: Bench,
  urls: readonly string[],
  { rounds, tickets }: IngestSize,
): Promise<number[][]> {
  bench.say('citus: ingest')
  const collectors = []
  for (const url of urls) collectors.push(await startCollector(bench, url))
  const times = urls.map((): number[] => [])
  for (let round = 0; round <= rounds; round++)
    for (const [index, collect] of collectors.entries()) {
      const seconds = await collect(tickets)
      if (round > 0) times[index]?.push(seconds)
    }
  return times
}

/** Returns a function that ingests tickets of users of several apps, and returns the seconds. */
async function startCollector(bench: Bench, url: string) {
  const core = wireCore(url)
  bench.defer(core.stop)
  await noteDistribution(core.pool)
  const clientIds: string[] = []
  for (let app = 0; app < appCount; app++) clientIds.push((await core.createApp()).clientId)
  const feed = createFeed()
  const metering = core.createCollecting(feed.source)
  await metering.start()
  bench.defer(metering.stop)
  const pick = (n: number): number => n % userCount
  const topic = createTopic({
    clientId: '',
    pick,
    more: (n) => ({ auth_id: `${clientIds[n % appCount]}:${userName(pick(n))}` }),
  })
  return async (tickets: number): Promise<number> => {
    const batches = [...topic.batches(tickets, maxBatch)]
    globalThis.gc?.()
    const started = performance.now()
    await feed.take(batches, tickets)
    return (performance.now() - started) / 1000
  }
}

/** Returns the delays of reservations by database, one database after the other. */
async function timeReservations(
  bench: Bench,
  urls: readonly string[],
  seconds: number,
): Promise<number[][]> {
  const delays: number[][] = []
  for (const url of urls) {
    bench.say(`citus: reservations, ${delays.length} workers`)
    const call = await openEscrow(bench, { env: { DATABASE_URL: url }, users: payerCount })
    await atEvenRate(reservationsPerSecond, { count: reservationsPerSecond, call })
    delays.push(
      await atEvenRate(reservationsPerSecond, { count: reservationsPerSecond * seconds, call }),
    )
  }
  return delays
}
