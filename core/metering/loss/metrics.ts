import { Counter, Gauge } from 'prom-client'
import type { Metrics } from '../../lib/metrics.ts'
import type { Anomalies } from '../ingest/write-plan.ts'
import type { LossSums } from './store.ts'

/** Metrics of lost, forked and late tickets. No label identifies a tenant. */
export function createLossMetrics(registry: Metrics) {
  const registers = [registry]
  const newlyLost = new Counter({
    name: 'tollgate_metering_lost_found_total',
    help: 'Tickets that were recognised as lost',
    registers,
  })
  const forked = new Counter({
    name: 'tollgate_metering_forked_tickets_total',
    help: 'Tickets that repeat a sequence number of their session',
    registers,
  })
  const late = new Counter({
    name: 'tollgate_metering_late_tickets_total',
    help: 'Tickets that arrived more than 15 minutes after they were signed',
    registers,
  })
  const lost = new Gauge({
    name: 'tollgate_metering_lost_tickets',
    help: 'Tickets lost in sessions that began in the last 7 days',
    registers,
  })
  const estimate = new Gauge({
    name: 'tollgate_metering_lost_estimated_usd',
    help: 'Estimated cost of the lost tickets, by the mean of their sessions',
    registers,
  })
  /** Counts the anomalies of a committed batch. */
  function ingested(anomalies: Anomalies): void {
    forked.inc(anomalies.forked)
    late.inc(anomalies.late)
    newlyLost.inc(Number(anomalies.lost))
  }

  /** Sets the gauges from exact sums; metrics are floats. */
  function figures({ lost: tickets, estimate: micros }: LossSums): void {
    lost.set(Number(tickets))
    estimate.set(Number(micros) / 1e6)
  }

  return { ingested, newlyLost: (count: bigint) => newlyLost.inc(Number(count)), figures }
}
