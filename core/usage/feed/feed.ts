import { Gauge } from 'prom-client'
import type { Shared } from '../../shared/shared.ts'
import { type StreamBounds, type StreamHolder, createStreamPlaces } from './places.ts'
import {
  type ChargeEntry,
  type ChargeKey,
  type Snapshot,
  chargesBetween,
  currentSnapshot,
} from './store.ts'

/**
 * A reader's progress: all charges committed in `seen`, and those committed between `seen` and `to`
 * with keys up to `after`.
 */
export interface Position {
  readonly seen: Snapshot
  readonly to: Snapshot | null
  readonly after: ChargeKey | null
}

export interface Follower extends StreamHolder {
  charge(entry: ChargeEntry, position: Position): void
  /** Called when the follower has every charge up to this position. */
  arrived(position: Position): void
}

export interface FeedDeps extends Pick<Shared, 'pool' | 'log' | 'metrics'> {
  readonly pollMs?: number
  readonly bounds?: StreamBounds
}

const pageMax = 1_000

/**
 * Reads new charges once a second while there are followers, in one query for all. A failed round
 * is repeated from the last position, so that no follower misses a charge.
 */
export function createFeed({ pool, log, metrics, pollMs = 1_000, bounds }: FeedDeps) {
  const places = createStreamPlaces(bounds)
  let seen: Snapshot | null = null
  let timer: NodeJS.Timeout | undefined
  let queue: Promise<unknown> = Promise.resolve()
  void new Gauge({
    name: 'tollgate_usage_streams',
    help: 'Open streams of live spend',
    registers: [metrics],
    collect() {
      this.set(places.count())
    },
  })

  /** Runs joins and rounds in sequence: a follower that joined during a round would miss a part. */
  function inOrder<T>(work: () => Promise<T>): Promise<T> {
    const result = queue.then(work)
    queue = result.catch(() => {})
    return result
  }

  /**
   * Sends `follower` every charge after the returned snapshot. Throws RATE_LIMITED or UNAVAILABLE
   * if too many streams are open.
   */
  async function join(follower: Follower): Promise<Snapshot> {
    places.take(follower)
    try {
      return await inOrder(async () => {
        seen ??= await currentSnapshot(pool)
        timer ??= setInterval(poll, pollMs).unref()
        active.add(follower)
        return seen
      })
    } catch (error) {
      leave(follower)
      throw error
    }
  }

  const active = new Set<Follower>()

  function leave(follower: Follower): void {
    places.giveBack(follower)
    active.delete(follower)
    if (places.count() > 0) return
    clearInterval(timer)
    timer = undefined
    seen = null
  }

  let waiting = false
  function poll(): void {
    if (waiting) return
    waiting = true
    inOrder(round)
      .catch((error: unknown) =>
        log.warn({ err: error }, 'new charges could not be read; read again in a moment'),
      )
      .finally(() => {
        waiting = false
      })
  }

  async function round(): Promise<void> {
    const from = seen
    if (from === null) return
    const apps = [...new Set([...active].map(({ appId }) => appId))]
    const to = await currentSnapshot(pool)
    let after: ChargeKey | null = null
    for (let more = true; more;) {
      const entries: ChargeEntry[] = await chargesBetween(pool, {
        from,
        to,
        after,
        apps,
        userId: null,
        limit: pageMax,
      })
      for (const entry of entries) publish(entry, { seen: from, to, after: entry.key })
      after = entries.at(-1)?.key ?? null
      more = entries.length === pageMax
    }
    // All followers may have left meanwhile.
    if (seen !== null) seen = to
    for (const follower of active) follower.arrived({ seen: to, to: null, after: null })
  }

  function publish(entry: ChargeEntry, position: Position): void {
    for (const follower of active) {
      if (
        follower.appId === entry.appId &&
        (follower.userId === null || follower.userId === entry.userId)
      ) {
        follower.charge(entry, position)
      }
    }
  }

  return { join, leave }
}

export type Feed = ReturnType<typeof createFeed>
