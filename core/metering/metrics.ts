import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../lib/metrics.ts'
import { type QuarantineReason, outcomes } from './types.ts'

/** What is read when somebody looks. Each may fail; the figure then stays as it was. */
export interface MeteringFigures {
  readonly lagSeconds: () => number
  readonly unpriced: () => Promise<bigint>
  readonly quarantined: () => Promise<bigint>
  readonly rateAgeSeconds: () => Promise<number>
}

/** The meters of metering. `metering_lag_seconds`, `metering_quarantined` and the rate's age are what to alert on. */
export function createMeteringMetrics(registry: Metrics, figures: MeteringFigures) {
  const registers = [registry]
  const events = new Counter({
    name: 'metering_events_total',
    help: 'Events taken, by what became of them',
    labelNames: ['outcome'],
    registers,
  })
  for (const outcome of outcomes) events.inc({ outcome }, 0)
  const refused = new Counter({
    name: 'metering_quarantined_total',
    help: 'Events put in quarantine, by reason',
    labelNames: ['reason'],
    registers,
  })
  const priced = new Counter({
    name: 'metering_late_priced_total',
    help: 'Tickets priced after they were stored',
    registers,
  })
  const rejectedRates = new Counter({
    name: 'metering_rates_rejected_total',
    help: 'Rate observations not recorded',
    labelNames: ['why'],
    registers,
  })
  const batchSeconds = new Histogram({
    name: 'metering_batch_seconds',
    help: 'Time to write one batch of events',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers,
  })
  gauge(
    'metering_lag_seconds',
    'Age of the oldest event that was received and not yet written',
    async () => figures.lagSeconds(),
  )
  gauge('metering_unpriced_tickets', 'Tickets that wait for a rate', async () =>
    Number(await figures.unpriced()),
  )
  gauge(
    'metering_quarantined',
    'Different events in quarantine that nobody has decided about',
    async () => Number(await figures.quarantined()),
  )
  gauge(
    'metering_rate_age_seconds',
    'Age of the newest usable rate; NaN when there is none',
    figures.rateAgeSeconds,
  )

  function gauge(name: string, help: string, read: () => Promise<number>): Gauge {
    return new Gauge({
      name,
      help,
      registers,
      collect() {
        return read().then(
          (value) => this.set(value),
          () => {},
        )
      },
    })
  }

  return {
    event: (outcome: string, count: number) => events.inc({ outcome }, count),
    quarantined: (reason: QuarantineReason, count: number) => refused.inc({ reason }, count),
    latePriced: (count: number) => priced.inc(count),
    rateRejected: (why: string) => rejectedRates.inc({ why }),
    batch: (seconds: number) => batchSeconds.observe(seconds),
  }
}
