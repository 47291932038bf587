import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../../core/lib/metrics.ts'

export interface SpoolFigures {
  readonly bytes: number
  readonly events: number
  readonly oldestSeconds: number
  readonly full: boolean
}

/** The spool's figures, read whenever the page is. */
export function createSpoolMeters(metrics: Metrics, figures: () => SpoolFigures) {
  const registers = [metrics]

  function gauge(name: string, help: string, read: (figures: SpoolFigures) => number): void {
    const collect = (): void => made.set(read(figures()))
    const made: Gauge = new Gauge({ name, help, registers, collect })
  }

  gauge('sidecar_spool_bytes', 'Disk that the spool takes.', ({ bytes }) => bytes)
  gauge('sidecar_spool_events', 'Spooled events that core has not taken.', ({ events }) => events)
  gauge(
    'sidecar_spool_oldest_seconds',
    'Age of the first event that core has not taken.',
    ({ oldestSeconds }) => oldestSeconds,
  )
  gauge(
    'sidecar_spool_full',
    '1 while pushes are refused because the spool or its disk is full.',
    ({ full }) => Number(full),
  )
  const damaged = new Counter({
    name: 'sidecar_spool_damaged_total',
    help: 'Stretches of the spool that were set aside because they were not what was written.',
    registers,
  })
  const seconds = new Histogram({
    name: 'sidecar_spool_write_seconds',
    help: 'Time to write a group of events and to force it to disk.',
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
    registers,
  })
  return {
    damaged: (): void => damaged.inc(),
    wrote: (ms: number): void => seconds.observe(ms / 1000),
  }
}
