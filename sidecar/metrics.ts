import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metrics } from '../core/lib/metrics.ts'
import type { Source } from './identity/verifiers/types.ts'

type Part = 'core' | 'cache'

// Times are handed over in batches of this size, and whenever the page is read.
const batch = 256

interface Tally {
  readonly code: string
  readonly source: Source
  count: number
}

/**
 * The sidecar's figures. A decision is counted in plain numbers; the library's own counting is
 * called by the page that shows them, because its code would push a good part of the decision's
 * out of the processor's cache each time.
 */
export function createMeters(metrics: Metrics) {
  const registers = [metrics]
  const tallies = new Map<string, Tally>()
  // Most decisions are like the one before.
  let latest: Tally | null = null
  const times = new Float64Array(batch)
  let timed = 0

  const decisions: Counter<'verdict' | 'source'> = new Counter({
    name: 'sidecar_authorize_total',
    help: 'Decisions by verdict and by the part that answered.',
    labelNames: ['verdict', 'source'],
    registers,
    collect: () => {
      decisions.reset()
      for (const { code: verdict, source, count } of tallies.values())
        decisions.inc({ verdict, source }, count)
    },
  })
  const seconds: Histogram = new Histogram({
    name: 'sidecar_authorize_seconds',
    help: 'Time from the whole request to its answer.',
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2],
    registers,
    collect: () => handOver(),
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

  function handOver(): void {
    for (const ms of times.subarray(0, timed)) seconds.observe(ms / 1000)
    timed = 0
  }

  function decided({ code, source }: { code: string; source: Source }, ms: number): void {
    if (latest?.code !== code || latest.source !== source) latest = tallyOf(code, source)
    latest.count++
    times[timed++] = ms
    if (timed === batch) handOver()
  }

  function tallyOf(code: string, source: Source): Tally {
    const name = `${code} ${source}`
    const known = tallies.get(name)
    if (known) return known
    const tally = { code, source, count: 0 }
    tallies.set(name, tally)
    return tally
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
      'sidecar_allowed_usd_total',
      'Estimated cost of the calls that were allowed.',
      () => money().allowed,
    )
    count(
      'sidecar_missing_usd_total',
      'Of it what did not reach the ledger within one to two EVENT_LAG_SECONDS.',
      () => money().missing,
    )
  }

  return { decided, failed, forwarded, watchSizes, watchMoney }
}

export type Meters = ReturnType<typeof createMeters>
