import { Counter, Gauge } from 'prom-client'
import { type DisabledReason, disabledReasons } from './endpoint-store.ts'
import { type Metrics, startAtZero } from '../lib/metrics.ts'

/** Read at every scrape. If a function rejects, its metric keeps the last value. */
export interface WebhookFigures {
  readonly waiting: () => Promise<number>
  readonly lagSeconds: () => Promise<number>
  readonly endpoints: () => Promise<{ readonly active: number; readonly disabled: number }>
}

/** Metrics of outgoing webhooks. Alert on the lag, which only this deployment causes. */
export function createWebhookMetrics(registry: Metrics, figures: WebhookFigures) {
  const registers = [registry]
  const attempts = new Counter({
    name: 'tollgate_webhook_attempts_total',
    help: 'Attempts to deliver an event to an endpoint, by outcome: delivered, refused, failed',
    labelNames: ['outcome'],
    registers,
  })
  const disabled = new Counter({
    name: 'tollgate_webhook_endpoints_disabled_total',
    help: 'Webhook endpoints that core disabled, by reason',
    labelNames: ['reason'],
    registers,
  })
  startAtZero(attempts, { outcome: ['delivered', 'refused', 'failed'] })
  startAtZero(disabled, { reason: disabledReasons })
  registerGauges(registry, figures)
  return {
    attempted: (outcome: 'delivered' | 'refused' | 'failed') => attempts.inc({ outcome }),
    disabled: (reason: DisabledReason) => disabled.inc({ reason }),
  }
}

export type WebhookMetrics = ReturnType<typeof createWebhookMetrics>

function registerGauges(registry: Metrics, figures: WebhookFigures): void {
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_webhook_deliveries_waiting',
      help: 'Deliveries that wait for an attempt, counted up to 100,000',
      registers: [],
      collect() {
        return read(figures.waiting, (count) => this.set(count))
      },
    }),
  )
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_webhook_lag_seconds',
      help: 'Time since which the longest due endpoint waits for core to deliver to it',
      registers: [],
      collect() {
        return read(figures.lagSeconds, (seconds) => this.set(seconds))
      },
    }),
  )
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_webhook_endpoints',
      help: 'Webhook endpoints by status',
      labelNames: ['status'],
      registers: [],
      collect() {
        return read(figures.endpoints, ({ active, disabled }) => {
          this.set({ status: 'active' }, active)
          this.set({ status: 'disabled' }, disabled)
        })
      },
    }),
  )
}

const read = <T>(figure: () => Promise<T>, set: (value: T) => void): Promise<void> =>
  figure().then(set, () => {})
