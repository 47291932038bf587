import { Gauge } from 'prom-client'
import type { Metrics } from '../lib/metrics.ts'
import type { Now } from '../lib/time.ts'

/** Tells whether the books are sealed in time. `unsealedSince` is read at each scrape; when it fails, the figure stays as it was. */
export function createBooksMetrics(
  registry: Metrics,
  { unsealedSince, now }: { unsealedSince: () => Promise<Date | null>; now: Now },
): void {
  const age: Gauge = new Gauge({
    name: 'tollgate_core_books_checkpoint_age_seconds',
    help: 'Age of the newest checkpoint of the app that has waited longest with entries that none covers; 0 when all are covered',
    registers: [registry],
    collect: () =>
      unsealedSince().then(
        (since) => age.set(since ? Math.max(0, (now().getTime() - since.getTime()) / 1000) : 0),
        () => {},
      ),
  })
}
