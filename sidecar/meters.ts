import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../core/lib/metrics.ts'

type Part = 'core' | 'cache'

/**
 * The sidecar's figures. The children of the hot counter are kept, so that counting costs one
 * look-up.
 */
export function createMeters(metrics: Metrics) {
  const registers = [metrics]
  const decisions = new Counter({
    name: 'sidecar_authorize_total',
    help: 'Decisions by verdict and by the part that answered.',
    labelNames: ['verdict', 'source'],
    registers,
  })
  const seconds = new Histogram({
    name: 'sidecar_authorize_seconds',
    help: 'Time from the whole request to its answer.',
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2],
    registers,
  })
  const failures = new Counter({
    name: 'sidecar_dependency_failures_total',
    help: 'Calls to core and to the shared cache that failed.',
    labelNames: ['part'],
    registers,
  })
  const events = new Counter({
    name: 'sidecar_events_total',
    help: 'Envelopes that core has taken in direct mode.',
    registers,
  })
  const children = new Map<string, Counter.Internal>()

  function childOf(verdict: string, source: string): Counter.Internal {
    const name = `${verdict} ${source}`
    const known = children.get(name)
    if (known) return known
    const child = decisions.labels(verdict, source)
    children.set(name, child)
    return child
  }

  function decided(decision: { code: string; source: string }, ms: number): void {
    childOf(decision.code, decision.source).inc()
    seconds.observe(ms / 1000)
  }

  const failed = (part: Part): void => failures.inc({ part })
  const forwarded = (count: number): void => events.inc(count)

  /** Reports the sizes of the caches whenever the page is read. */
  function watchSizes(sizes: () => Readonly<Record<string, number>>): void {
    const gauge: Gauge<'cache'> = new Gauge({
      name: 'sidecar_cache_entries',
      help: 'Entries held in this process.',
      labelNames: ['cache'],
      registers,
      collect: () => Object.entries(sizes()).forEach(([cache, size]) => gauge.set({ cache }, size)),
    })
  }

  return { decided, failed, forwarded, watchSizes }
}

export type Meters = ReturnType<typeof createMeters>
