import { Counter, Gauge } from 'prom-client'
import { type Metrics, startAtZero } from '../../lib/metrics.ts'

/** Read at every scrape. If a function rejects, its metric keeps the last value. */
export interface OutboxFigures {
  readonly rows: () => Promise<{ readonly waiting: number; readonly setAside: number }>
  readonly ageSeconds: () => Promise<number>
}

/** Metrics of the outbox. Alert on its age and on rows that were set aside. */
export function createOutboxMetrics(
  registry: Metrics,
  { kinds, ...figures }: OutboxFigures & { readonly kinds: readonly string[] },
) {
  const registers = [registry]
  const deliveries = new Counter({
    name: 'tollgate_outbox_deliveries_total',
    help: 'Rows delivered to the other system, by kind',
    labelNames: ['kind'],
    registers,
  })
  const failures = new Counter({
    name: 'tollgate_outbox_failures_total',
    help: 'Failed deliveries of rows, by kind and failure',
    labelNames: ['kind', 'how'],
    registers,
  })
  startAtZero(deliveries, { kind: kinds })
  startAtZero(failures, { kind: kinds, how: ['later', 'refused', 'failed'] })
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_outbox_age_seconds',
      help: 'Age of the oldest row that waits',
      registers: [],
      collect() {
        return figures.ageSeconds().then(
          (seconds) => this.set(seconds),
          () => {},
        )
      },
    }),
  )
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_outbox_rows',
      help: 'Rows that wait to be delivered, and rows set aside for an operator',
      labelNames: ['state'],
      registers: [],
      collect() {
        return figures.rows().then(
          ({ waiting, setAside }) => {
            this.set({ state: 'waiting' }, waiting)
            this.set({ state: 'set_aside' }, setAside)
          },
          () => {},
        )
      },
    }),
  )
  return {
    delivered: (kind: string, items: number) => deliveries.inc({ kind }, items),
    failed: (kind: string, how: string) => failures.inc({ kind, how }),
  }
}
