import { Gauge } from 'prom-client'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { MeteringBackend } from './backend.ts'
import { type AppDay, createComparison, dayMs, hourMs, toMicros } from './comparison.ts'
import * as store from './store.ts'

export interface ReconciliationDeps {
  readonly pool: Pool
  readonly backend: MeteringBackend
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
}

const everyMs = hourMs
const daysBack = 2
const runMs = 600_000
const loggedMax = 20

/**
 * Compares our sums with the backend's once an hour: the two days before today, and the settled
 * hours of today. Only one core runs it; every core exports the result as metrics.
 */
export function createReconciliation({ pool, backend, log, metrics, now }: ReconciliationDeps) {
  const { spanOf, compare } = createComparison({ pool, backend, now })
  const stopping = new AbortController()
  let running: Promise<void> | null = null
  if (backend.destinations.length > 0) registerDrift(metrics, () => store.readDrift(pool))

  /** Called once a minute; returns at once and works in the background. */
  async function tend(): Promise<void> {
    if (backend.destinations.length === 0 || running) return
    running = runWhenDue()
      .catch((error: unknown) =>
        log.warn(
          { err: error },
          'reconciling with the metering backend failed; the next attempt is in an hour',
        ),
      )
      .finally(() => {
        running = null
      })
  }

  async function runWhenDue(): Promise<void> {
    // This also refreshes the known state of the backend when nothing else uses it.
    const answers = await backend.requireAnswers().then(
      () => true,
      () => false,
    )
    const at = now()
    if (answers && (await store.claimRun(pool, at, new Date(at.getTime() - everyMs)))) await run(at)
  }

  async function run(at: Date): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(runMs)])
    const today = Math.floor(at.getTime() / dayMs) * dayMs
    const days: AppDay[] = []
    let compared = 0
    for await (const day of compare(
      { clientId: null, from: new Date(today - daysBack * dayMs), to: new Date(today + dayMs) },
      signal,
    )) {
      compared += day.users.length
      const users = day.users.filter((user) => user.drifts)
      if (users.length > 0) days.push({ ...day, users })
    }
    if (signal.aborted) throw new Error('the comparison took too long, or the process is stopping')
    const drifting = days.flatMap((day) => day.users)
    await store.saveDrift(pool, {
      compared,
      drifting: drifting.length,
      at: at.toISOString(),
      usdMicros: drifting.reduce(
        (sum, user) => sum + Math.abs(user.backendMicros - toMicros(user.ownCost)),
        0,
      ),
      tickets: drifting.reduce(
        (sum, user) => sum + Math.abs(user.backendTickets - Number(user.ownTickets)),
        0,
      ),
    })
    if (drifting.length > 0)
      log.warn(
        {
          userDays: drifting.length,
          first: days
            .slice(0, loggedMax)
            .map(({ clientId, day, users }) => ({ clientId, day, users: users.length })),
        },
        'the sums of the metering backend differ from ours; see tollgate reconcile',
      )
  }

  async function stop(): Promise<void> {
    stopping.abort()
    await running
  }

  return { spanOf, compare, tend, stop }
}

export type Reconciliation = ReturnType<typeof createReconciliation>

function registerDrift(metrics: Metrics, read: () => Promise<store.Drift | null>): void {
  const gauge = (name: string, help: string, select: (drift: store.Drift) => number): void =>
    metrics.registerMetric(
      new Gauge({
        name,
        help,
        registers: [],
        // NaN before the first run; if the database is unavailable, keeps the last value.
        collect() {
          return read().then(
            (drift) => this.set(drift ? select(drift) : NaN),
            () => {},
          )
        },
      }),
    )
  gauge(
    'tollgate_metering_drift_usd_micros',
    "Difference in cost between our sums and the metering backend's, over users' days beyond tolerance",
    (drift) => drift.usdMicros,
  )
  gauge(
    'tollgate_metering_drift_tickets',
    "Difference in tickets between our sums and those of the metering backend, over users' days beyond tolerance",
    (drift) => drift.tickets,
  )
  gauge(
    'tollgate_metering_drift_user_days',
    'Days of users beyond tolerance',
    (drift) => drift.drifting,
  )
  gauge(
    'tollgate_metering_drift_checked_timestamp_seconds',
    'Time of the last comparison with the metering backend, in Unix seconds',
    (drift) => Date.parse(drift.at) / 1000,
  )
}
