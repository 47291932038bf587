import { Counter, Gauge } from 'prom-client'
import type { Metrics } from '../lib/metrics.ts'

export interface OutboxFigures { readonly waiting: number; readonly setAside: number; readonly ageSeconds: number }

/** The meters of the outbox; alert on its age and on what was set aside. */
export function createOutboxMetrics(registry: Metrics, read: () => Promise<OutboxFigures>) {
  const registers = [registry]
  const deliveries = new Counter({
    name: 'outbox_deliveries_total', help: 'Things that reached the other system, by kind', labelNames: ['kind'], registers,
  })
  const failures = new Counter({
    name: 'outbox_failures_total', help: 'Deliveries of a row that failed, by kind and how', labelNames: ['kind', 'how'], registers,
  })
  const age = new Gauge({ name: 'outbox_age_seconds', help: 'Age of the oldest row that waits', registers })
  registry.registerMetric(new Gauge({
    name: 'outbox_rows', help: 'Rows that wait to be delivered, and rows set aside for an operator', labelNames: ['state'], registers: [],
    collect() {
      // When the database is away the figures stay as they were.
      return read().then(({ waiting, setAside, ageSeconds }) => {
        this.set({ state: 'waiting' }, waiting)
        this.set({ state: 'set_aside' }, setAside)
        age.set(ageSeconds)
      }, () => {})
    },
  }))
  return {
    delivered: (kind: string, items: number) => deliveries.inc({ kind }, items),
    failed: (kind: string, how: string) => failures.inc({ kind, how }),
  }
}
