import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createOutboxMetrics } from './metrics.ts'
import * as store from './store.ts'
import type { Destination, Entry, Outcome } from './types.ts'

export { countItems, enqueue, retrySetAside } from './store.ts'

export interface OutboxDeps {
  readonly pool: Pool
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
  readonly destinations: readonly Destination[]
  /** Set in tests. */
  readonly idleMs?: number
}

/** How a round went: `more` when there is more to do, otherwise how long to wait when the far end is to blame. */
export interface Round {
  readonly taken: number
  readonly delivered: number
  readonly waitMs: number | null
}

const attemptsMax = 8
const leaseMs = 300_000
const idleMsDefault = 1_000
const drainMs = 1_500
const pauseMs = { first: 1_000, last: 60_000 }
const retryMs = { first: 5_000, last: 600_000 }
const errorLength = 500

/**
 * Brings what was written to the outbox to where it belongs, at least once. Any number of cores share the work. A row
 * the far end refuses is tried again ever later and at last set aside; it holds up no other row.
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
  const meters = createOutboxMetrics(metrics, {
    rows: () => store.figures(pool),
    ageSeconds: async () => {
      const since = await store.waitingSince(pool)
      return since ? Math.max(0, (now().getTime() - since.getTime()) / 1000) : 0
    },
  })

  /** Takes and delivers once. Throws when the database is away; the rows are then taken again when their lease ends. */
  async function round(to: Destination): Promise<Round> {
    const at = now()
    const held = new Date(at.getTime() + leaseMs)
    const entries = await store.claim(pool, {
      kind: to.kind,
      at,
      until: held,
      items: to.itemsAtOnce,
      bytes: to.bytesAtOnce,
    })
    if (entries.length === 0) return { taken: 0, delivered: 0, waitMs: null }
    const outcomes = await to.deliver(entries, giveUp.signal)
    const delivered = entries.filter((_, i) => outcomes[i]?.kind === 'delivered')
    await store.remove(
      pool,
      delivered.map((entry) => entry.id),
    )
    count(to.kind, entries, outcomes)
    // Part of a row that arrived shows as well that the far end works.
    const works = outcomes.some(
      (outcome) =>
        outcome.kind === 'delivered' || outcome.kind === 'refused' || outcome.rest !== undefined,
    )
    for (const [i, entry] of entries.entries()) {
      const outcome = outcomes[i] ?? { kind: 'later', why: 'no outcome' }
      if (outcome.kind !== 'delivered') await store.putBack(pool, next(entry, outcome, works), held)
    }
    return { taken: entries.length, delivered: delivered.length, waitMs: waitOf(outcomes, works) }
  }

  function next(
    entry: Entry,
    outcome: Exclude<Outcome, { kind: 'delivered' }>,
    works: boolean,
  ): store.Postponed {
    const guilty = outcome.kind === 'refused' || (outcome.kind === 'failed' && works)
    const attempts = entry.attempts + (guilty ? 1 : 0)
    const setAside = attempts >= attemptsMax
    if (setAside)
      log.error(
        { outboxId: String(entry.id), items: entry.itemCount, err: outcome.why },
        'an outbox row was set aside',
      )
    const delay = outcome.kind === 'later' ? 0 : backOff(retryMs, attempts)
    return {
      id: entry.id,
      attempts,
      error: outcome.why.slice(0, errorLength),
      rest: outcome.rest,
      dueAt: new Date(now().getTime() + delay),
      setAsideAt: setAside ? now() : null,
    }
  }

  function count(kind: string, entries: readonly Entry[], outcomes: readonly Outcome[]): void {
    for (const [i, entry] of entries.entries()) {
      const outcome = outcomes[i]
      if (outcome?.kind === 'delivered') meters.delivered(kind, entry.itemCount)
      else if (outcome) {
        meters.failed(kind, outcome.kind)
        if (outcome.rest) meters.delivered(kind, entry.itemCount - outcome.rest.itemCount)
      }
    }
  }

  async function serve(to: Destination): Promise<void> {
    let failures = 0
    while (!stopping.signal.aborted) {
      const done = to.ready() ? await round(to).catch(faulty) : null
      const wait = done?.waitMs ?? null
      failures = wait === null ? 0 : failures + 1
      if (wait === null && done && done.taken > 0) continue
      await pause(wait === null ? idleMs : Math.max(wait, backOff(pauseMs, failures)))
    }
    await drain(to)
  }

  /** What is due still leaves, for a moment; the rest waits for the next start or another core. */
  async function drain(to: Destination): Promise<void> {
    while (to.ready() && !giveUp.signal.aborted) {
      const done = await round(to).catch(faulty)
      if (done.taken === 0 || done.waitMs !== null) return
    }
  }

  function faulty(error: unknown): Round {
    log.warn({ err: error }, 'the outbox cannot be read; it goes on')
    return { taken: 0, delivered: 0, waitMs: 0 }
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

  /** One round of each destination, for tests and commands. */
  const pass = (): Promise<Round[]> =>
    Promise.all(destinations.filter((to) => to.ready()).map(round))

  return { start, stop, pass, wake: () => awake.abort() }
}

/** Doubles with each failure up to a bound, and varies, so that many who failed together do not return together. */
function backOff({ first, last }: { first: number; last: number }, failures: number): number {
  const most = Math.min(last, first * 2 ** Math.max(0, Math.min(failures, 20) - 1))
  return most / 2 + Math.random() * (most / 2)
}

/** Null: go on. Otherwise the far end wants, or needs, a pause of at least so many milliseconds. */
function waitOf(outcomes: readonly Outcome[], works: boolean): number | null {
  const later = outcomes.filter((outcome) => outcome.kind === 'later')
  if (later.length === 0) return works ? null : 0
  return Math.min(pauseMs.last, Math.max(0, ...later.map((outcome) => outcome.retryAfterMs ?? 0)))
}
