import { Counter, Gauge, Histogram } from 'prom-client'
import { type Metrics, startAtZero } from '../lib/metrics.ts'
import { quarantineReasons } from './events/parse.ts'
import type { SettlementSums } from './ingest/charges.ts'
import type { IngestedBatch } from './ingest/ingest.ts'
import { eventOutcomes } from './ingest/position-store.ts'

/** Figures read at each scrape. If a read fails, its gauge keeps the last value. */
export interface MeteringFigures {
  readonly lagSeconds: () => number
  readonly unpriced: () => Promise<bigint>
  readonly rateAgeSeconds: () => Promise<number>
}

/**
 * Metrics of ingest and pricing. Alerts watch the lag, the quarantine, unpriced tickets and the
 * rate's age.
 */
export function createMeteringMetrics(registry: Metrics, figures: MeteringFigures) {
  createGauges(registry, figures)
  return createCounters(registry)
}

function createCounters(registry: Metrics) {
  const registers = [registry]
  const events = new Counter({
    name: 'tollgate_metering_events_total',
    help: 'Events received, by outcome',
    labelNames: ['outcome'],
    registers,
  })
  startAtZero(events, { outcome: eventOutcomes })
  const quarantined = new Counter({
    name: 'tollgate_metering_quarantined_total',
    help: 'Events put in quarantine, by reason',
    labelNames: ['reason'],
    registers,
  })
  startAtZero(quarantined, { reason: quarantineReasons })
  const batchDuration = new Histogram({
    name: 'tollgate_metering_batch_duration_seconds',
    help: 'Time to write one batch of events',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers,
  })

  /** Counts a committed batch. */
  function batch({ counts, quarantined: reasons }: IngestedBatch, seconds: number): void {
    batchDuration.observe(seconds)
    for (const outcome of eventOutcomes) events.inc({ outcome }, counts[outcome])
    for (const [reason, count] of reasons) quarantined.inc({ reason }, count)
  }

  return {
    batch,
    settled: createSettlementMeter(registry),
    ...createPricingCounters(registers),
  }
}

function createPricingCounters(registers: Metrics[]) {
  const latePriced = new Counter({
    name: 'tollgate_metering_late_priced_total',
    help: 'Tickets priced after they were stored',
    registers,
  })
  const rejectedRates = new Counter({
    name: 'tollgate_metering_rates_rejected_total',
    help: 'Rate observations not recorded',
    labelNames: ['why'],
    registers,
  })
  startAtZero(rejectedRates, { why: ['unusable', 'jump'] })
  return {
    latePriced: (count: number) => latePriced.inc(count),
    rateRejected: (why: string) => rejectedRates.inc({ why }),
  }
}

/** Counts, after the commit, the call holds that tickets settled. */
function createSettlementMeter(registry: Metrics): (sums: SettlementSums) => void {
  const counter = (name: string, help: string): Counter =>
    new Counter({ name, help, registers: [registry] })
  const settledUsd = counter(
    'tollgate_escrow_settled_usd_total',
    'Holds settled by tickets, in USD',
  )
  const settled = counter('tollgate_escrow_settled_total', 'Calls whose tickets ended their holds')
  const lateUsd = counter(
    'tollgate_escrow_late_usd_total',
    'Bounds of calls whose tickets arrived after they were lost or released, in USD',
  )
  const late = counter(
    'tollgate_escrow_late_total',
    'Calls whose tickets arrived after they were lost or released',
  )
  const afterReleaseUsd = counter(
    'tollgate_escrow_late_after_release_usd_total',
    'Cost of tickets that arrived after their holds were released, in USD',
  )
  const afterRelease = counter(
    'tollgate_escrow_late_after_release_total',
    'Tickets that arrived after their holds were released',
  )
  return (sums) => {
    settledUsd.inc(usdOf(sums.settled.amount))
    settled.inc(sums.settled.count)
    lateUsd.inc(usdOf(sums.late.amount))
    late.inc(sums.late.count)
    afterReleaseUsd.inc(usdOf(sums.lateAfterRelease.amount))
    afterRelease.inc(sums.lateAfterRelease.count)
  }
}

const usdOf = (amount: bigint): number => Number(amount) / 1e18

function createGauges(registry: Metrics, figures: MeteringFigures): void {
  function gauge(name: string, help: string, read: () => Promise<number>): Gauge {
    return new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        return read().then(
          (value) => this.set(value),
          () => {},
        )
      },
    })
  }

  gauge(
    'tollgate_metering_lag_seconds',
    'Age of the oldest event that was received and not yet written',
    async () => figures.lagSeconds(),
  )
  gauge('tollgate_metering_unpriced_tickets', 'Tickets that wait for a rate', async () =>
    Number(await figures.unpriced()),
  )
  gauge(
    'tollgate_metering_rate_age_seconds',
    'Age of the newest usable rate; NaN when there is none',
    figures.rateAgeSeconds,
  )
}
