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
    help: 'Age of the newest checkpoint of the app that has waited longest with entries that none covers; 0 when all are covered',
    registers: [registry],
    collect: () =>
      unsealedSince().then(
        (since) => age.set(secondsSince(since)),
        () => {},
      ),
  })
  const late: Gauge = new Gauge({
    name: 'tollgate_core_receipt_roots_late_seconds',
    help: 'How long ago the oldest day ended of which an app has no root over its tickets yet; 0 when all have theirs',
    registers: [registry],
    collect: () =>
      unbuiltSince().then(
        (since) => late.set(secondsSince(since)),
        () => {},
      ),
  })
  const prices: Gauge = new Gauge({
    name: 'tollgate_core_price_differences',
    help: 'Differences between plan versions, bundles and cuts and their chain, when this core compared them last (every ten minutes); 0 when all prices are as they were written',
    registers: [registry],
    collect: () => prices.set(priceDifferences()),
  })
}
