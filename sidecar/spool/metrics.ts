import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../../core/lib/metrics.ts'
import type { Loss } from './losses.ts'

export interface SpoolFigures {
  readonly bytes: number
  readonly events: number
  readonly oldestSeconds: number
  readonly full: boolean
  /** SPOOL_MAX_BYTES. */
  readonly maxBytes: number
}

/** The spool's metrics. Calls the function passed to `observe` whenever the page is read. */
export function createSpoolMetrics(metrics: Metrics) {
  const registers = [metrics]
  let figures = (): SpoolFigures => ({
    bytes: 0,
    events: 0,
    oldestSeconds: 0,
    full: false,
    maxBytes: 0,
  })

  function addGauge(name: string, help: string, read: (figures: SpoolFigures) => number): void {
    const collect = (): void => gauge.set(read(figures()))
    const gauge: Gauge = new Gauge({ name, help, registers, collect })
  }

  addGauge('tollgate_sidecar_spool_bytes', 'Disk that the spool uses.', ({ bytes }) => bytes)
  addGauge(
    'tollgate_sidecar_spool_max_bytes',
    'Most disk that the spool may use; 0 without a spool.',
    ({ maxBytes }) => maxBytes,
  )
  addGauge(
    'tollgate_sidecar_spool_events',
    'Spooled events that core has not acknowledged.',
    ({ events }) => events,
  )
  addGauge(
    'tollgate_sidecar_spool_oldest_event_age_seconds',
    'Age of the first event that core has not acknowledged.',
    ({ oldestSeconds }) => oldestSeconds,
  )
  addGauge(
    'tollgate_sidecar_spool_full',
    '1 while pushes are refused because the spool or its disk is full.',
    ({ full }) => Number(full),
  )
  const { damages, lostRecords, lostBytes } = addCounters(metrics)
  const seconds = new Histogram({
    name: 'tollgate_sidecar_spool_write_duration_seconds',
    help: 'Time to write a group of events and to force it to disk.',
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
    registers,
  })
  return {
    observe: (read: () => SpoolFigures): void => void (figures = read),
    countLoss: ({ records, bytes }: Loss): void => {
      lostRecords.inc(records)
      lostBytes.inc(bytes)
    },
    countDamage: (): void => damages.inc(),
    observeWrite: (ms: number): void => seconds.observe(ms / 1000),
  }
}

function addCounters(metrics: Metrics) {
  const addCounter = (name: string, help: string): Counter =>
    new Counter({ name, help, registers: [metrics] })

  const damages = addCounter(
    'tollgate_sidecar_spool_damaged_total',
    'Parts of the spool that were set aside because they were damaged.',
  )
  const lostRecords = addCounter(
    'tollgate_sidecar_spool_lost_records_total',
    'Events that were acknowledged to their sender and then lost through damage to the spool.',
  )
  const lostBytes = addCounter(
    'tollgate_sidecar_spool_lost_bytes_total',
    'Damaged bytes in place of lost events, without the bytes that were cut off a file.',
  )
  return { damages, lostRecords, lostBytes }
}
