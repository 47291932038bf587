import { DomainError } from '../../proto/errors.ts'
import type { UserId } from '../platform/ids.ts'
import type { EthRate } from '../lib/money.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { Emitter } from './backend/emit.ts'
import { createCollector } from './collector/collector.ts'
import type { MeteringConfig } from './config.ts'
import { type Ingested, createIngest } from './ingest/ingest.ts'
import { createIntake } from './ingest/retry.ts'
import { type Loop, startLoop } from '../lib/loop.ts'
import { createLossWatch } from './loss/watch.ts'
import { createLossMetrics } from './loss/metrics.ts'
import { createLossReports } from './loss/report.ts'
import { createMeteringMetrics } from './metrics.ts'
import * as offsets from './ingest/offset-store.ts'
import { createPartitions } from './ingest/partitions.ts'
import { sumCounts } from './ingest/offsets.ts'
import { createPricing } from './rates/pricing.ts'
import { countQuarantined } from './quarantine/store.ts'
import { countUnpriced } from './rates/store.ts'
import { type RateSource, fixedRateSource, httpRateSource } from './rates/sources.ts'
import { type ManualRate, createRates } from './rates/rates.ts'
import { createRelay } from './ingest/pipeline.ts'
import { createSorting } from './batch/parse-pool.ts'
import { rememberSubjects } from './ingest/subjects.ts'
import type { Charge, Counts, EventSource, Rate, ResolveSubjects } from './types.ts'

export interface MeteringDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly metrics: Metrics
  readonly config: MeteringConfig
  readonly ledger: { readonly charge: Charge }
  readonly users: { readonly resolveSubjects: ResolveSubjects }
  /** Puts tickets on their way to the metering backend, where there is one that wants them. */
  readonly emitter?: Emitter | undefined
  /** Told, after the commit and best effort, of users that have nothing left. */
  readonly invalidations: {
    publish(event: { readonly kind: 'access'; readonly id: string }): Promise<void>
  }
  /** Little memory before speed: for a process that does nothing but collect. */
  readonly lean?: boolean
  /** In place of what the configuration says; for tests. */
  readonly eventSource?: EventSource
}

const directSource = 'direct'
const directAttempts = 4
const publishAtOnce = 100
const pricingPauseMs = 30_000
const monthsPauseMs = 6 * 3_600_000
const lossPauseMs = 60_000

/** Turns the signer's events into unique, priced, charged tickets. */
export function createMetering(deps: MeteringDeps) {
  const { pool, now, log, config } = deps
  const { charge } = deps.ledger
  const resolveSubjects = rememberSubjects(deps.users.resolveSubjects)
  const rateMaxAgeSeconds = config.rates.maxAgeSeconds
  const stopping = new AbortController()
  const meters = createMeteringMetrics(deps.metrics, {
    lagSeconds: () => collector?.lagSeconds() ?? 0,
    unpriced: () => countUnpriced(pool),
    quarantined: () => countQuarantined(pool),
    rateAgeSeconds: async () => ageOf(await rates.usable()),
  })
  const lossMeters = createLossMetrics(deps.metrics)
  const losses = createLossReports({ pool, now })
  const lossWatch = createLossWatch({
    pool,
    now,
    graceSeconds: config.lossGraceSeconds,
    onLost: lossMeters.found,
  })
  const partitions = createPartitions(pool, now)
  const sorting = createSorting({ log, threads: !deps.lean })
  const ingest = createIngest({
    pool,
    now,
    charge,
    emit: deps.emitter?.emitPriced,
    sorting,
    resolveSubjects,
    partitions,
    rateMaxAgeSeconds,
  })
  const intake = createIntake({ pool, now, log, ingest, onIngested, onExhausted })
  const rates = createRates({
    pool,
    now,
    log,
    sources: rateSources(config),
    maxAgeSeconds: rateMaxAgeSeconds,
    onRejected: meters.rateRejected,
  })
  const pricing = createPricing({
    pool,
    now,
    charge,
    rateMaxAgeSeconds,
    emit: deps.emitter?.emitPriced,
    onPriced: meters.latePriced,
    onExhausted,
  })
  const source = deps.eventSource ?? kafkaSource()
  const collector =
    source &&
    createCollector({
      source,
      intake,
      prepare: ingest.prepare,
      relay: createRelay(ingest, log),
      log,
      ahead: deps.lean ? 1 : 2,
    })
  let loops: Loop[] = []

  function kafkaSource(): EventSource | null {
    const positions = {
      read: (of: string) => offsets.readPositions(pool, of),
      rewind: (to: offsets.StreamPosition) => offsets.rewind(pool, to),
    }
    const { kafka } = config
    if (kafka === null) return null
    // Its library takes 50 MB, which a service without Kafka need not have.
    const source = import('./collector/kafka.ts').then(({ createKafkaSource, lean, roomy }) =>
      createKafkaSource(kafka, { positions, log, bounds: deps.lean ? lean : roomy }),
    )
    return { name: `kafka:${kafka.topic}`, open: async () => (await source).open() }
  }

  async function onExhausted(exhausted: readonly UserId[]): Promise<void> {
    for (let i = 0; i < exhausted.length; i += publishAtOnce) {
      await Promise.all(
        exhausted
          .slice(i, i + publishAtOnce)
          .map((id) => deps.invalidations.publish({ kind: 'access', id })),
      )
    }
  }

  const ageOf = (rate: Rate | null): number =>
    rate ? (now().getTime() - rate.observedAt.getTime()) / 1000 : NaN

  function onIngested(part: Ingested, seconds: number): void {
    meters.batch(seconds)
    for (const [outcome, count] of Object.entries(part.counts)) meters.event(outcome, count)
    lossMeters.booked(part.irregular)
    for (const [reason, count] of part.quarantined) meters.quarantined(reason, count)
    if (part.quarantined.size > 0)
      log.warn({ reasons: Object.fromEntries(part.quarantined) }, 'events put in quarantine')
    if (part.unpriced > 0)
      log.warn(
        { tickets: part.unpriced },
        'tickets stored without a rate; they are priced when it is known',
      )
  }

  /** Direct mode: each envelope, when this returns, is one of the four outcomes. Throws when the database is away. */
  async function ingestEvents(envelopes: readonly Buffer[]): Promise<Counts> {
    if (envelopes.length === 0) return sumCounts([])
    const producedAtMs = now().getTime()
    const records = envelopes.map((bytes) => ({
      source: directSource,
      partition: 0,
      offset: null,
      bytes,
      producedAtMs,
    }))
    try {
      return sumCounts(
        await intake.take({ records }, { signal: stopping.signal, attempts: directAttempts }),
      )
    } catch (error) {
      if (!stopping.signal.aborted) throw error
      throw new DomainError('UNAVAILABLE', 'core is stopping; try again', { cause: error })
    }
  }

  /** Records a rate by hand; what waited for it is priced right after. */
  async function recordRate(given: ManualRate): Promise<Rate> {
    const rate = await rates.record(given)
    for (const loop of loops) loop.wake()
    return rate
  }

  async function observeRate(): Promise<void> {
    if (await rates.observe()) await pricing.pass(stopping.signal)
  }

  /** Finds what is lost, and tells the metrics. */
  async function watchLoss(signal?: AbortSignal): Promise<void> {
    await lossWatch.round(signal)
    lossMeters.figures(await losses.figures())
  }

  /** Makes sure that tickets can be written and, when a source answers, that there is a rate; then runs by itself. */
  async function start(): Promise<void> {
    await partitions.prepare()
    // What waits for its price is priced in the loop: with a million tickets waiting, nobody else should have to.
    await rates
      .observe()
      .catch((error: unknown) => log.warn({ err: error }, 'no rate at the start'))
    loops = [
      startLoop({ name: 'pricing', log, pauseMs: pricingPauseMs, round: pricing.pass }),
      startLoop({ name: 'months', log, pauseMs: monthsPauseMs, round: partitions.prepare }),
      // Often enough that what is lost is known soon after its grace time.
      startLoop({
        name: 'loss',
        log,
        pauseMs: Math.min(lossPauseMs, config.lossGraceSeconds * 250),
        round: watchLoss,
      }),
      startLoop({
        name: 'rates',
        log,
        pauseMs: config.rates.pollSeconds * 1000,
        delayed: true,
        round: observeRate,
      }),
    ]
    collector?.start()
  }

  /** Lets what is being written finish. */
  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.all([collector?.stop(), ...loops.map((loop) => loop.stop())])
    await sorting.stop()
  }

  /** The rate that prices a ticket signed now; null when there is none. */
  const usableRate = async (): Promise<EthRate | null> =>
    (await rates.usable())?.usdAttosPerEth ?? null

  /** Does the event stream flow? Nothing to say where there is none. */
  const ready = async (): Promise<Record<string, boolean>> =>
    collector ? { events: collector.connected() } : {}

  const status = async () => ({
    streams: await offsets.streams(pool),
    unpriced: await countUnpriced(pool),
    quarantined: await countQuarantined(pool),
    usableRate: await rates.usable(),
  })

  return { ingestEvents, recordRate, usableRate, status, ready, start, stop, losses, watchLoss }
}

export type Metering = ReturnType<typeof createMetering>

const rateSources = ({ rates }: MeteringConfig): RateSource[] =>
  rates.fixed === null ? rates.urls.map(httpRateSource) : [fixedRateSource(rates.fixed)]
