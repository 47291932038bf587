import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../core/lib/metrics.ts'
import type { Source } from './identity/verifiers/verifier.ts'

type Dependency = 'core' | 'cache'

interface DecisionCount {
  readonly code: string
  readonly source: Source
  count: number
}

/**
 * The sidecar's metrics. Decisions are counted in plain numbers, and observed by prom-client in
 * batches of 256 or when the page is read: in the row `authorize-warm` of `npm run bench` that
 * costs less than a call of prom-client for each decision, whose code displaces the decision's own
 * from the processor's cache.
 */
export function createSidecarMetrics(metrics: Metrics) {
  const registers = [metrics]
  const decisionMetrics = createDecisionMetrics(metrics)
  const failures = new Counter({
    name: 'tollgate_sidecar_dependency_failures_total',
    help: 'Calls to core and to the shared cache that failed.',
    labelNames: ['dependency'],
    registers,
  })
  const events = new Counter({
    name: 'tollgate_sidecar_events_total',
    help: 'Envelopes of direct mode that core has committed.',
    registers,
  })

  const countFailure = (dependency: Dependency): void => failures.inc({ dependency })
  const countEvents = (count: number): void => events.inc(count)

  /** Reports the sizes of the caches whenever the page is read. */
  function watchSizes(sizes: () => Readonly<Record<string, number>>): void {
    const gauge: Gauge<'cache'> = new Gauge({
      name: 'tollgate_sidecar_cache_entries',
      help: 'Entries held in this process.',
      labelNames: ['cache'],
      registers,
      collect: () => Object.entries(sizes()).forEach(([cache, size]) => gauge.set({ cache }, size)),
    })
  }

  /** Reports amounts in nano-dollars whenever the page is read. */
  function watchMoney(money: () => { readonly allowed: number; readonly missing: number }): void {
    const count = (name: string, help: string, nanos: () => number): void => {
      const counter: Counter = new Counter({
        name,
        help,
        registers,
        collect: () => {
          counter.reset()
          counter.inc(nanos() / 1e9)
        },
      })
    }
    count(
      'tollgate_sidecar_allowed_usd_total',
      'Estimated cost of the calls that were allowed.',
      () => money().allowed,
    )
    count(
      'tollgate_sidecar_missing_usd_total',
      'Of it what did not reach the ledger within one to two EVENT_LAG_SECONDS.',
      () => money().missing,
    )
  }

  return { ...decisionMetrics, countFailure, countEvents, watchSizes, watchMoney }
}

export type SidecarMetrics = ReturnType<typeof createSidecarMetrics>

const batchSize = 256

function createDecisionMetrics(metrics: Metrics) {
  const registers = [metrics]
  const counts = new Map<string, DecisionCount>()
  // Most decisions have the code and source of the one before.
  let latest: DecisionCount | null = null
  const times = new Float64Array(batchSize)
  let pending = 0

  const decisions: Counter<'decision' | 'source'> = new Counter({
    name: 'tollgate_sidecar_decisions_total',
    help: 'Decisions by their code and by the part that answered.',
    labelNames: ['decision', 'source'],
    registers,
    collect: () => {
      decisions.reset()
      for (const { code: decision, source, count } of counts.values())
        decisions.inc({ decision, source }, count)
    },
  })
  const seconds: Histogram = new Histogram({
    name: 'tollgate_sidecar_decision_duration_seconds',
    help: 'Time from the whole request to its answer.',
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2],
    registers,
    collect: () => observeTimes(),
  })

  function observeTimes(): void {
    for (const ms of times.subarray(0, pending)) seconds.observe(ms / 1000)
    pending = 0
  }

  function countDecision({ code, source }: { code: string; source: Source }, ms: number): void {
    if (latest?.code !== code || latest.source !== source) latest = countOf(code, source)
    latest.count++
    times[pending++] = ms
    if (pending === batchSize) observeTimes()
  }

  function countOf(code: string, source: Source): DecisionCount {
    const key = `${code} ${source}`
    const known = counts.get(key)
    if (known) return known
    const count = { code, source, count: 0 }
    counts.set(key, count)
    return count
  }

  return { countDecision }
}
