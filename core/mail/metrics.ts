import { Counter, Gauge } from 'prom-client'
import { type Metrics, startAtZero } from '../lib/metrics.ts'

export type MailOutcome = 'sent' | 'failed' | 'unsent' | 'limited' | 'capped'
const outcomes: readonly MailOutcome[] = ['sent', 'failed', 'unsent', 'limited', 'capped']

/** Metrics of mails. `waiting` is read at every scrape; if it rejects, the last value stays. */
export function createMailMetrics(
  registry: Metrics,
  { waiting }: { waiting: () => Promise<number> },
) {
  const mails = new Counter({
    name: 'tollgate_mails_total',
    help: 'Mails by outcome: sent; failed (given up); unsent (there is no server); limited (the address gets no more now); capped (the deployment sends no more of the kind now)',
    labelNames: ['outcome'],
    registers: [registry],
  })
  const failures = new Counter({
    name: 'tollgate_mail_attempts_failed_total',
    help: 'Attempts to send a mail that failed, whether or not they are repeated',
    registers: [registry],
  })
  startAtZero(mails, { outcome: outcomes })
  registry.registerMetric(
    new Gauge({
      name: 'tollgate_mails_waiting',
      help: 'Mails that wait to be sent, counted up to 100,000',
      registers: [],
      collect() {
        return waiting().then(
          (count) => this.set(count),
          () => {},
        )
      },
    }),
  )
  return {
    ended: (outcome: MailOutcome) => mails.inc({ outcome }),
    attemptFailed: () => failures.inc(),
  }
}

export type MailMetrics = ReturnType<typeof createMailMetrics>
