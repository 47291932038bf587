import { Gauge } from 'prom-client'
import type { Metrics } from '../lib/metrics.ts'
import type { Now } from '../lib/time.ts'

export interface BooksMetricsDeps {
  readonly unsealedSince: () => Promise<Date | null>
  readonly unbuiltSince: () => Promise<Date | null>
  readonly priceDifferences: () => number
  readonly now: Now
}

/**
 * Gauges for overdue checkpoints, overdue daily roots, and price differences. Ages are read at each
 * scrape; if that fails, the gauge keeps its value.
 */
export function createBooksMetrics(
  registry: Metrics,
  { unsealedSince, unbuiltSince, priceDifferences, now }: BooksMetricsDeps,
): void {
  const secondsSince = (since: Date | null): number =>
    since ? Math.max(0, (now().getTime() - since.getTime()) / 1000) : 0
  const age: Gauge = new Gauge({
    name: 'tollgate_core_books_checkpoint_age_seconds',
    help: 'Longest time for which an app has had entries that no checkpoint covers; 0 when all are covered',
    registers: [registry],
    collect: () =>
      unsealedSince().then(
        (since) => age.set(secondsSince(since)),
        () => {},
      ),
  })
  const late: Gauge = new Gauge({
    name: 'tollgate_core_receipt_roots_late_seconds',
    help: 'Time since the end of the oldest day for which an app has no root over its tickets; 0 when every day has its root',
    registers: [registry],
    collect: () =>
      unbuiltSince().then(
        (since) => late.set(secondsSince(since)),
        () => {},
      ),
  })
  const prices: Gauge = new Gauge({
    name: 'tollgate_core_price_differences',
    help: 'Differences between prices (plan versions, bundles and cuts) and their chain at the last comparison by this core (every ten minutes); 0 when no price was changed',
    registers: [registry],
    collect: () => prices.set(priceDifferences()),
  })
}
