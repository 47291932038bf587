import { setTimeout as sleep } from 'node:timers/promises'
import { createKeyedSemaphore } from '../../lib/concurrency.ts'
import { backoffMs } from '../../lib/loop.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createOutboxMetrics } from './metrics.ts'
import * as store from './store.ts'
import type { Delivery, Destination, Entry } from './types.ts'

export { countItems, enqueue, figures, listSetAside, retrySetAside, waitingSince } from './store.ts'

export interface OutboxDeps {
  readonly pool: Pool
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
  readonly destinations: readonly Destination[]
  /** For tests. */
  readonly idleMs?: number
}

/**
 * The result of a round of deliveries. `waitMs` is the minimum pause if the other system is at
 * fault, otherwise null.
 */
export interface Round {
  readonly claimed: number
  readonly delivered: number
  readonly waitMs: number | null
}

const attemptsMax = 8
const leaseMs = 300_000
const idleMsDefault = 1_000
const drainMs = 1_500
const pauses = { firstMs: 1_000, lastMs: 60_000 }
const retries = { firstMs: 5_000, lastMs: 600_000 }
const errorLength = 500

/**
 * Delivers outbox rows to other systems at least once. Any number of cores share the work. A row
 * that the other system refuses is retried with growing pauses, and set aside after eight attempts.
 * It does not block other rows.
 */
export function createOutbox({
  pool,
  log,
  metrics,
  now,
  destinations,
  idleMs = idleMsDefault,
}: OutboxDeps) {
  const stopping = new AbortController()
  const giveUp = new AbortController()
  let awake = new AbortController()
  let running: Promise<unknown> = Promise.resolve()
  // In turn, so that idle destinations share one connection.
  const claims = createKeyedSemaphore({ running: 1 })
  const meters = createOutboxMetrics(metrics, {
    kinds: destinations.map(({ kind }) => kind),
    rows: () => store.figures(pool),
    ageSeconds: async () => {
      const since = await store.waitingSince(pool)
      return since ? Math.max(0, (now().getTime() - since.getTime()) / 1000) : 0
    },
  })

  /**
   * Claims and delivers rows once. Throws if the database is unavailable; another round claims the
   * rows when the lease ends.
   */
  async function round(to: Destination): Promise<Round> {
    const at = now()
    const leaseEnd = new Date(at.getTime() + leaseMs)
    const bounds = { items: to.itemsAtOnce, bytes: to.bytesAtOnce }
    const claim = { kind: to.kind, at, until: leaseEnd, ...bounds }
    const entries = await claims.run('claim', () => store.claim(pool, claim))
    if (entries.length === 0) return { claimed: 0, delivered: 0, waitMs: null }
    const deliveries = await to.deliver(entries, giveUp.signal)
    const delivered = entries.filter((_, i) => deliveries[i]?.kind === 'delivered')
    await store.remove(
      pool,
      delivered.map((entry) => entry.id),
    )
    count(to.kind, entries, deliveries)
    // A partial delivery also shows that the other system works.
    const works = deliveries.some(
      (delivery) =>
        delivery.kind === 'delivered' || delivery.kind === 'refused' || delivery.rest !== undefined,
    )
    for (const [i, entry] of entries.entries()) {
      const delivery = deliveries[i] ?? { kind: 'later', why: 'no outcome' }
      if (delivery.kind !== 'delivered')
        await store.putBack(pool, next(entry, delivery, works), leaseEnd)
    }
    return {
      claimed: entries.length,
      delivered: delivered.length,
      waitMs: waitOf(deliveries, works),
    }
  }

  function next(
    entry: Entry,
    delivery: Exclude<Delivery, { kind: 'delivered' }>,
    works: boolean,
  ): store.Postponed {
    const isOwnFault = delivery.kind === 'refused' || (delivery.kind === 'failed' && works)
    const attempts = entry.attempts + (isOwnFault ? 1 : 0)
    const setAside = attempts >= attemptsMax
    if (setAside)
      log.error(
        { outboxId: String(entry.id), items: entry.itemCount, err: delivery.why },
        'an outbox row was set aside',
      )
    const delay = delivery.kind === 'later' ? 0 : backoffMs(attempts, retries)
    return {
      id: entry.id,
      attempts,
      error: delivery.why.slice(0, errorLength),
      rest: delivery.rest,
      dueAt: new Date(now().getTime() + delay),
      setAsideAt: setAside ? now() : null,
    }
  }

  function count(kind: string, entries: readonly Entry[], deliveries: readonly Delivery[]): void {
    for (const [i, entry] of entries.entries()) {
      const delivery = deliveries[i]
      if (delivery?.kind === 'delivered') meters.delivered(kind, entry.itemCount)
      else if (delivery) {
        meters.failed(kind, delivery.kind)
        if (delivery.rest) meters.delivered(kind, entry.itemCount - delivery.rest.itemCount)
      }
    }
  }

  async function serve(to: Destination): Promise<void> {
    let failures = 0
    while (!stopping.signal.aborted) {
      const done = to.ready() ? await round(to).catch(afterFailure) : null
      const wait = done?.waitMs ?? null
      failures = wait === null ? 0 : failures + 1
      if (wait === null && done && done.claimed > 0) continue
      await pause(wait === null ? idleMs : Math.max(wait, backoffMs(failures, pauses)))
    }
    await drain(to)
  }

  /** Delivers due rows for a limited time. Other rows wait for the next start or another core. */
  async function drain(to: Destination): Promise<void> {
    while (to.ready() && !giveUp.signal.aborted) {
      const done = await round(to).catch(afterFailure)
      if (done.claimed === 0 || done.waitMs !== null) return
    }
  }

  function afterFailure(error: unknown): Round {
    log.warn({ err: error }, 'the outbox cannot be read; retrying')
    return { claimed: 0, delivered: 0, waitMs: 0 }
  }

  async function pause(milliseconds: number): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, awake.signal])
    await sleep(milliseconds, undefined, { signal, ref: false }).catch(() => {})
    awake = new AbortController()
  }

  function start(): void {
    running = Promise.all(destinations.map(serve))
  }

  async function stop(): Promise<void> {
    stopping.abort()
    const timer = setTimeout(() => giveUp.abort(), drainMs)
    await running
    clearTimeout(timer)
  }

  /** Runs one round of each destination, for tests and commands. */
  const pass = (): Promise<Round[]> =>
    Promise.all(destinations.filter((to) => to.ready()).map(round))

  return { start, stop, pass, wake: () => awake.abort() }
}

/**
 * The minimum pause in milliseconds that the other system requests; null if deliveries may
 * continue.
 */
function waitOf(deliveries: readonly Delivery[], works: boolean): number | null {
  const later = deliveries.filter((delivery) => delivery.kind === 'later')
  if (later.length === 0) return works ? null : 0
  return Math.min(
    pauses.lastMs,
    Math.max(0, ...later.map((delivery) => delivery.retryAfterMs ?? 0)),
  )
}
