import { Counter, Gauge, Histogram } from 'prom-client'
import { type Metrics, startAtZero } from '../core/lib/metrics.ts'

type Dependency = 'core' | 'cache'

const recordOutcomes = ['recorded', 'omitted', 'refused'] as const
/** What happened to a record of a decision. */
export type RecordOutcome = (typeof recordOutcomes)[number]

interface DecisionKind {
  readonly code: string
  readonly source: string
  readonly money: string
}

/** Figures of the escrow; money is in nano-dollars. */
export interface EscrowFigures {
  readonly lent: number
  readonly spent: number
  readonly returned: number
  readonly offline: number
  /** Calls that are not reported to core yet. */
  readonly unreported: number
  /** Seconds until the end of the lease that ends last. */
  readonly leaseSeconds: number
  readonly isAway: boolean
}

/** Metrics of unauthenticated callers and forged cache entries. */
function createStrangerMetrics(registers: Metrics[]) {
  const callers = new Counter({
    name: 'tollgate_sidecar_callers_refused_total',
    help: 'Requests without a valid webhook secret: compared, or refused unread after too many wrong ones.',
    labelNames: ['reason'],
    registers,
  })
  startAtZero(callers, { reason: ['unknown', 'limited'] })
  const forgeries = new Counter({
    name: 'tollgate_sidecar_cache_forgeries_total',
    help: 'Entries of the shared cache whose signature is wrong; they are not used.',
    registers,
  })
  const countRefusedCaller = (reason: string): void => callers.inc({ reason })
  const countForgery = (): void => forgeries.inc()
  return { countRefusedCaller, countForgery }
}

/** `codes` are the codes of all decisions. */
export function createSidecarMetrics(metrics: Metrics, codes: readonly string[]) {
  const registers = [metrics]
  const failures = new Counter({
    name: 'tollgate_sidecar_dependency_failures_total',
    help: 'Calls to core and to the shared cache that failed.',
    labelNames: ['dependency'],
    registers,
  })
  startAtZero(failures, { dependency: ['core', 'cache'] })
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

  const records: Record<RecordOutcome, number> = { recorded: 0, omitted: 0, refused: 0 }
  const countRecords = (outcome: RecordOutcome, count: number): void =>
    void (records[outcome] += count)
  const recordCounter: Counter<'outcome'> = new Counter({
    name: 'tollgate_sidecar_decision_records_total',
    help: 'Records of decisions: accepted by core, omitted by the limit, refused by core.',
    labelNames: ['outcome'],
    registers,
    collect: () => {
      recordCounter.reset()
      for (const outcome of recordOutcomes) recordCounter.inc({ outcome }, records[outcome])
    },
  })

  let refusedNanos = 0
  const countRefusedMoney = (nanos: number): void => void (refusedNanos += nanos)

  /** Reports the figures of the escrow whenever the page is read. */
  function watchEscrow(figures: () => EscrowFigures): void {
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
    const measure = (name: string, help: string, value: () => number): void => {
      const gauge: Gauge = new Gauge({
        name,
        help,
        registers,
        collect: () => gauge.set(value()),
      })
    }
    count('tollgate_sidecar_lent_usd_total', 'USD that core has lent.', () => figures().lent)
    count(
      'tollgate_sidecar_spent_usd_total',
      'Bounds of the calls that leases paid for.',
      () => figures().spent,
    )
    count(
      'tollgate_sidecar_returned_usd_total',
      'Unused USD of returned leases.',
      () => figures().returned,
    )
    count(
      'tollgate_sidecar_offline_usd_total',
      'Bounds of calls that the offline budget paid for.',
      () => figures().offline,
    )
    count(
      'tollgate_sidecar_refused_usd_total',
      'Bounds of calls that were refused for lack of money.',
      () => refusedNanos,
    )
    measure(
      'tollgate_sidecar_unreported_calls',
      'Entries of calls that wait for a report, without those that wait for the renewal of a lease.',
      () => figures().unreported,
    )
    measure(
      'tollgate_sidecar_lease_seconds',
      'Seconds until the last lease ends, which is how long the sidecar can work without core.',
      () => figures().leaseSeconds,
    )
    measure('tollgate_sidecar_core_away', '1 while core does not answer.', () =>
      Number(figures().isAway),
    )
  }

  return {
    ...createDecisionMetrics(registers, codes),
    countFailure,
    ...createStrangerMetrics(registers),
    countEvents,
    countRecords,
    countRefusedMoney,
    watchSizes,
    watchEscrow,
  }
}

export type SidecarMetrics = ReturnType<typeof createSidecarMetrics>

function createDecisionMetrics(registers: Metrics[], codes: readonly string[]) {
  const decisions = new Counter({
    name: 'tollgate_sidecar_decisions_total',
    help: 'Decisions by code, source of the identity and source of the money.',
    labelNames: ['decision', 'identity', 'money'],
    registers,
  })
  startAtZero(decisions, { decision: codes, identity: ['none'], money: ['none'] })
  const seconds = new Histogram({
    name: 'tollgate_sidecar_decision_duration_seconds',
    help: 'Time from the complete request to its response.',
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 2],
    registers,
  })

  function countDecision({ code: decision, source: identity, money }: DecisionKind, ms: number) {
    decisions.inc({ decision, identity, money })
    seconds.observe(ms / 1000)
  }

  return { countDecision }
}
