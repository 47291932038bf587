import { Gauge } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import {
  type ChargeEntry,
  type ChargeKey,
  type Snapshot,
  chargesBetween,
  currentSnapshot,
} from './store.ts'

/** How far somebody has come: all that was committed in `seen`, and of what came until `to` all up to `after`. */
export interface Position {
  readonly seen: Snapshot
  readonly to: Snapshot | null
  readonly after: ChargeKey | null
}

export interface Follower {
  readonly appId: AppId
  /** Null: all users of the app. */
  readonly userId: UserId | null
  charge(entry: ChargeEntry, position: Position): void
  /** Nothing is missing up to here. */
  arrived(position: Position): void
}

export interface FeedDeps {
  readonly pool: Pool
  readonly log: Log
  readonly metrics: Metrics
  readonly pollMs?: number
}

const pageMax = 1_000
const bounds = { total: 500, perApp: 100, perUser: 5 }

/**
 * Reads new charges once a second, for all followers together, and only while there are any. A round that fails is
 * repeated from where the last one ended, so that nobody misses anything.
 */
export function createFeed({ pool, log, metrics, pollMs = 1_000 }: FeedDeps) {
  const followers = new Set<Follower>()
  let seen: Snapshot | null = null
  let timer: NodeJS.Timeout | undefined
  let turn: Promise<unknown> = Promise.resolve()
  void new Gauge({
    name: 'usage_streams',
    help: 'Streams of live spend that are open',
    registers: [metrics],
    collect() {
      this.set(followers.size)
    },
  })

  /** One after the other: who joins while a round runs would not know what of it came before. */
  function inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = turn.then(work)
    turn = done.catch(() => {})
    return done
  }

  /** From now on `follower` hears of every charge; returns the snapshot after which that is. RATE_LIMITED. */
  async function join(follower: Follower): Promise<Snapshot> {
    admit(follower)
    followers.add(follower)
    try {
      return await inTurn(async () => {
        seen ??= await currentSnapshot(pool)
        timer ??= setInterval(poll, pollMs).unref()
        joined.add(follower)
        return seen
      })
    } catch (error) {
      leave(follower)
      throw error
    }
  }

  const joined = new Set<Follower>()

  function leave(follower: Follower): void {
    followers.delete(follower)
    joined.delete(follower)
    if (followers.size > 0) return
    clearInterval(timer)
    timer = undefined
    seen = null
  }

  function admit({ appId, userId }: Follower): void {
    const ofApp = [...followers].filter((each) => each.appId === appId)
    const ofUser = ofApp.filter((each) => each.userId !== null && each.userId === userId)
    if (
      followers.size < bounds.total &&
      ofApp.length < bounds.perApp &&
      ofUser.length < bounds.perUser
    )
      return
    throw new DomainError(
      'RATE_LIMITED',
      `too many streams are open; at most ${bounds.perApp} for an app and ${bounds.perUser} for a user`,
    )
  }

  let waiting = false
  function poll(): void {
    if (waiting) return
    waiting = true
    inTurn(round)
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
    const apps = [...new Set([...joined].map(({ appId }) => appId))]
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
      for (const entry of entries) tell(entry, { seen: from, to, after: entry.key })
      after = entries.at(-1)?.key ?? null
      more = entries.length === pageMax
    }
    // Everybody may have gone meanwhile.
    if (seen !== null) seen = to
    for (const follower of joined) follower.arrived({ seen: to, to: null, after: null })
  }

  function tell(entry: ChargeEntry, position: Position): void {
    for (const follower of joined) {
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
