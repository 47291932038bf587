import { Counter, Gauge } from 'prom-client'
import type { Metrics } from '../../lib/metrics.ts'
import type { Anomalies } from '../ingest/write-plan.ts'
import type { LossSums, Unattributed } from './store.ts'

/** The meters of what is lost or irregular. No label tells one tenant from another. */
export function createLossMetrics(registry: Metrics) {
  const registers = [registry]
  const found = new Counter({
    name: 'metering_lost_found_total',
    help: 'Tickets that were found to be lost',
    registers,
  })
  const forked = new Counter({
    name: 'metering_forked_tickets_total',
    help: 'Tickets whose session had their sequence number before',
    registers,
  })
  const late = new Counter({
    name: 'metering_late_tickets_total',
    help: 'Tickets that came more than 15 minutes after they were signed',
    registers,
  })
  const lost = new Gauge({
    name: 'metering_lost_tickets',
    help: 'Tickets lost in sessions that began in the last 7 days',
    registers,
  })
  const estimate = new Gauge({
    name: 'metering_lost_estimated_usd',
    help: 'What they would have cost, by the mean of their sessions',
    registers,
  })
  const unattributedEvents = new Gauge({
    name: 'metering_unattributed_events',
    help: 'Events in quarantine whose spend belongs to nobody we know',
    registers,
  })
  const unattributedWei = new Gauge({
    name: 'metering_unattributed_wei',
    help: 'Their fees in wei',
    registers,
  })

  /** What ingest committed. */
  function ingested(anomalies: Anomalies): void {
    forked.inc(anomalies.forked)
    late.inc(anomalies.late)
    found.inc(Number(anomalies.lost))
  }

  /** Metrics are floats; the exact figures are in the reports. */
  function figures({
    lost: sums,
    unattributed,
  }: {
    lost: LossSums
    unattributed: Unattributed
  }): void {
    lost.set(Number(sums.lost))
    estimate.set(Number(sums.estimate) / 1e6)
    unattributedEvents.set(Number(unattributed.events))
    unattributedWei.set(Number(unattributed.fee))
  }

  return { ingested, found: (count: bigint) => found.inc(Number(count)), figures }
}
