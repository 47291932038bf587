import { type Log, createThrottle } from '../lib/log.ts'
import { type Loop, startLoop } from '../lib/loop.ts'
import type { Metrics } from '../lib/metrics.ts'
import type { EthRate } from '../lib/money.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { UserId } from '../shared/ids.ts'
import type { Emitter } from './backend/emit.ts'
import type { ResolveSubjects } from './batch/subjects.ts'
import type { EventSource } from './collector/collector.ts'
import type { MeteringConfig } from './config.ts'
import type { Charge, SettlementSums } from './ingest/charges.ts'
import type { IngestedBatch } from './ingest/ingest.ts'
import { findNewestTicket } from './ingest/newest-store.ts'
import { createPartitions } from './ingest/partition-store.ts'
import { createIngestion } from './ingestion.ts'
import { createLossMetrics } from './loss/metrics.ts'
import { createLossReports } from './loss/report.ts'
import { createLossWatch } from './loss/watch.ts'
import { createMeteringMetrics } from './metrics.ts'
import { createQuarantineMetrics } from './quarantine/metrics.ts'
import { countQuarantined, waiting } from './quarantine/store.ts'
import { createRateLookup, ensureFixedRate, waitingAges } from './rates/lookup.ts'
import { createPricing } from './ingest/late-pricing.ts'
import { type ManualRate, createRates } from './rates/rates.ts'
import { type RateSource, fixedRateSource, httpRateSource } from './rates/sources.ts'
import { type Rate, countUnpriced, oldestUnpriced } from './rates/store.ts'
import type { Periods, RatingPorts } from './rating/port.ts'
import { type Rating, createRating } from './rating/rating.ts'

export interface MeteringDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly metrics: Metrics
  readonly config: MeteringConfig
  readonly ledger: Periods & { readonly charge: Charge }
  readonly plans: RatingPorts['plans']
  readonly cuts: RatingPorts['cuts']
  readonly users: { readonly resolveSubjects: ResolveSubjects }
  /** Queues priced tickets for the metering backend, if there is one. */
  readonly emitter?: Emitter | undefined
  /** Receives, after the commit and best effort, the users with no balance left. */
  readonly invalidations: {
    publish(event: { readonly kind: 'access'; readonly id: string }): Promise<void>
  }
  /** Saves memory at the cost of speed, for a process that only collects. */
  readonly savesMemory?: boolean
  /** Replaces the configured stream, for tests. */
  readonly eventSource?: EventSource
}

const publishAtOnce = 100
const pricingPauseMs = 30_000
const monthsPauseMs = 6 * 3_600_000
const lossPauseMs = 60_000
const endsPauseMs = 10_000

/**
 * Turns the signer's events into unique, priced, charged tickets. Its invariants:
 * 1. Every record of a stream has one of four outcomes; their counters add up to the offsets.
 * 2. An event id becomes at most one ticket, however often and by whichever route it arrives.
 * 3. A ticket's fee is exactly the signer's wei; its cost is fixed once, by the newest rate at or
 *    before its time.
 * 4. `usage_hourly` and the ledger change in the transaction that writes or prices the tickets that
 *    they sum.
 */
export function createMetering(deps: MeteringDeps) {
  const { pool, now, log } = deps
  const partitions = createPartitions(pool, now)
  const isDue = createThrottle(now, 3_600_000)
  const onExhausted = publishExhausted(deps.invalidations)
  const meters = createMeteringMetrics(deps.metrics, {
    lagSeconds: () => ingestion.lagSeconds(),
    unpriced: () => countUnpriced(pool),
    rateAgeSeconds: async () => ageSeconds(await rates.usable(), now()),
  })
  createQuarantineMetrics(deps.metrics, () => waiting(pool))
  const loss = createLossKeeping(deps)
  const rating = createRating(deps)
  const ingestion = createIngestion({
    ...deps,
    charge: deps.ledger.charge,
    rating,
    emit: deps.emitter?.emitPriced,
    resolveSubjects: deps.users.resolveSubjects,
    partitions,
    savesMemory: deps.savesMemory ?? false,
    eventSource: deps.eventSource,
    onIngested,
    onExhausted,
  })
  const { rates, pricing } = createRateKeeping(deps, { ...meters, rating, onExhausted })
  const loops = createUpkeepLoops(deps, { partitions, rates, pricing, loss, ...ingestion })

  function onIngested(part: IngestedBatch, seconds: number): void {
    meters.batch(part, seconds)
    loss.meters.ingested(part.anomalies)
    if (part.settlement) meters.settled(part.settlement)
    if (part.quarantined.size > 0)
      log.warn({ reasons: Object.fromEntries(part.quarantined) }, 'events put in quarantine')
    if (part.unpriced > 0)
      log[isDue('unpriced') ? 'warn' : 'debug'](
        { tickets: part.unpriced },
        'tickets stored without a rate; they are priced when it is known; repeated hourly',
      )
  }

  /** Records a manual rate and then prices the tickets that waited for it. */
  async function recordRate(request: ManualRate): Promise<Rate> {
    const rate = await rates.record(request)
    loops.wake()
    return rate
  }

  /**
   * Creates the partitions for tickets and observes a rate, if a source answers; then starts the
   * loops.
   */
  async function start(): Promise<void> {
    await partitions.prepare()
    const { fixed } = deps.config.rates
    if (fixed !== null) await ensureFixedRate(pool, fixed, now())
    // The pricing loop handles unpriced tickets: a million would delay the start.
    await rates
      .observe()
      .catch((error: unknown) => log.warn({ err: error }, 'no rate at the start'))
    loops.start()
    ingestion.start()
  }

  /** Stops after the current writes finish. */
  async function stop(): Promise<void> {
    await Promise.all([ingestion.stop(), loops.stop()])
  }

  /** The rate that prices a ticket signed now; null without a usable one. */
  const usableRate = async (): Promise<EthRate | null> =>
    (await rates.usable())?.usdAttosPerEth ?? null

  /**
   * Whether a rate is available to price tickets, and whether the event stream, if there is one, is
   * connected.
   */
  async function ready(): Promise<Record<string, boolean>> {
    const events = ingestion.isConnected()
    const rate = await hasRate().catch(() => false)
    return events === undefined ? { rate } : { rate, events }
  }

  const hasRate = async (): Promise<boolean> =>
    deps.config.rates.fixed !== null || (await rates.usable()) !== null

  const status = async () => ({
    streams: await ingestion.streams(),
    unpriced: await countUnpriced(pool),
    oldestUnpriced: await oldestUnpriced(pool),
    quarantined: await countQuarantined(pool),
    usableRate: await rates.usable(),
    newestTicket: await findNewestTicket(pool, now()),
  })

  return {
    ingestEvents: ingestion.ingestEvents,
    recordRate,
    usableRate,
    status,
    ready,
    start,
    stop,
    rating,
    losses: loss.reports,
    watchLoss: loss.watch,
  }
}

export type Metering = ReturnType<typeof createMetering>

const ageSeconds = (rate: Rate | null, at: Date): number =>
  rate ? (at.getTime() - rate.observedAt.getTime()) / 1000 : NaN

const publishExhausted =
  (invalidations: MeteringDeps['invalidations']) =>
  async (users: readonly UserId[]): Promise<void> => {
    for (let i = 0; i < users.length; i += publishAtOnce) {
      await Promise.all(
        users
          .slice(i, i + publishAtOnce)
          .map((id) => invalidations.publish({ kind: 'access', id })),
      )
    }
  }

/** Finds, reports and measures lost tickets. */
function createLossKeeping({ pool, now, metrics, config }: MeteringDeps) {
  const meters = createLossMetrics(metrics)
  const reports = createLossReports({ pool, now })
  const watcher = createLossWatch({
    pool,
    now,
    graceSeconds: config.lossGraceSeconds,
    onLost: meters.newlyLost,
  })

  /** Runs one search for losses and updates the metrics. */
  async function watch(signal?: AbortSignal): Promise<void> {
    await watcher.round(signal)
    meters.figures(await reports.figures())
  }

  return { meters, reports, watch }
}

interface RateHooks {
  readonly rating: Rating
  readonly rateRejected: (why: string) => void
  readonly latePriced: (count: number) => void
  readonly settled: (sums: SettlementSums) => void
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

/** Observes rates, and prices tickets that arrived before their rate. */
function createRateKeeping(
  { pool, now, log, config, ledger, emitter }: MeteringDeps,
  { rating, rateRejected, latePriced, settled, onExhausted }: RateHooks,
) {
  const rates = createRates({
    pool,
    now,
    log,
    sources: rateSources(config),
    ages: config.rates,
    maxTicketDays: config.tickets.maxAgeDays,
    onRejected: rateRejected,
  })
  const pricing = createPricing({
    pool,
    now,
    log,
    charge: ledger.charge,
    findRates: createRateLookup({ ...config.rates, now }),
    rating,
    waitingAges: waitingAges(config.rates),
    emit: emitter?.emitPriced,
    onPriced: (count, settlement) => {
      latePriced(count)
      if (settlement) settled(settlement)
    },
    onExhausted,
  })
  return { rates, pricing }
}

const rateSources = ({ rates }: MeteringConfig): RateSource[] =>
  rates.fixed === null ? rates.urls.map(httpRateSource) : [fixedRateSource(rates.fixed)]

interface Upkeep extends ReturnType<typeof createRateKeeping> {
  readonly partitions: ReturnType<typeof createPartitions>
  readonly loss: ReturnType<typeof createLossKeeping>
  /** Stores how far the stream reaches; undefined without a stream. */
  readonly recordEnds: (() => Promise<void>) | undefined
}

/** Runs metering's periodic tasks. */
function createUpkeepLoops(
  { log, metrics, config }: MeteringDeps,
  { partitions, rates, pricing, loss, recordEnds }: Upkeep,
) {
  let loops: Loop[] = []
  const observeAndPrice = async (signal: AbortSignal): Promise<void> => {
    if (await rates.observe()) await pricing.pass(signal)
  }

  function start(): void {
    const { lossGraceSeconds } = config
    loops = [
      startLoop({ name: 'pricing', log, metrics, pauseMs: pricingPauseMs, round: pricing.pass }),
      startLoop({
        name: 'months',
        log,
        metrics,
        pauseMs: monthsPauseMs,
        round: partitions.prepare,
      }),
      // Short enough that a loss is found soon after its grace time.
      startLoop({
        name: 'loss',
        log,
        metrics,
        pauseMs: Math.min(lossPauseMs, lossGraceSeconds * 250),
        round: loss.watch,
      }),
      startLoop({
        name: 'rates',
        log,
        metrics,
        pauseMs: config.rates.pollSeconds * 1000,
        delayed: true,
        round: observeAndPrice,
      }),
      ...(recordEnds
        ? [startLoop({ name: 'ends', log, metrics, pauseMs: endsPauseMs, round: recordEnds })]
        : []),
    ]
  }

  return {
    start,
    /** Starts the next round of each loop now. */
    wake: (): void => loops.forEach((loop) => loop.wake()),
    stop: async (): Promise<void> => {
      await Promise.all(loops.map((loop) => loop.stop()))
    },
  }
}
