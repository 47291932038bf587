import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, reasons } from '../../proto/errors.ts'
import type { AppId, UserId } from '../ids.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { Cursors } from './cursor.ts'
import type { Feed, Position } from './feed.ts'
import { type ChargeEntry, type ChargeKey, type Snapshot, chargesBetween } from './feed-store.ts'

/** What a stream says: where it is, and mostly also a charge. */
export interface Said {
  readonly cursor: string
  readonly charge: ChargeEntry | null
  readonly reset: boolean
}

export interface Following {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly after: string | undefined
  emit(said: Said): void
  /** Resolves when what was emitted has been read so far that more may follow. */
  writable(): Promise<void>
  /** Throws when the caller may not read any more. */
  readmit(): Promise<void>
  readonly signal: AbortSignal
}

export interface FollowDeps {
  readonly pool: Pool
  readonly feed: Feed
  readonly cursors: Cursors
  readonly now: Now
  /** Core drains: everybody goes elsewhere. */
  readonly stopping: AbortSignal
  /** Calls back when something about this user has ended; returns how to stop that. */
  readonly watchUser: (user: UserId, changed: () => void) => () => void
  readonly times?: Times
}

interface Times {
  readonly beatMs: number
  readonly readmitMs: number
  readonly lifeMs: number
}

const usual: Times = { beatMs: 10_000, readmitMs: 15_000, lifeMs: 3_600_000 }
const oldestMs = 24 * 3_600_000
const pageMax = 500
// Charges that may come while older ones are still being sent.
const waitingMax = 10_000

const tooSlow = (): DomainError => new DomainError('UNAVAILABLE', 'the stream was not read fast enough; open it again')

/** Live spend, from a cursor on. Each stream ends after an hour, with core, or when its caller may not read it any more. */
export function createFollow({ pool, feed, cursors, now, stopping, watchUser, times = usual }: FollowDeps) {
  /** Resolves when the stream is over; REQUEST_INVALID for a cursor that is none, RATE_LIMITED. */
  async function follow(following: Following): Promise<void> {
    const { appId, userId, emit } = following
    const context = `stream:${appId}`
    const given = cursors.parse(following.after, context)
    const ended = new AbortController()
    const signal = AbortSignal.any([following.signal, stopping, ended.signal])
    let failure: unknown = null
    const fail = (error: unknown): void => { failure ??= error; ended.abort() }
    let waiting: { entry: ChargeEntry; position: Position }[] | null = []
    let position: Position = { seen: '', to: null, after: null }
    const say = (charge: ChargeEntry | null, reset = false): void =>
      emit({ cursor: cursors.format(partsOf(position, now()), context), charge, reset })
    const tell = (charge: ChargeEntry, at: Position): void => { position = at; say(charge) }

    const follower = {
      appId, userId,
      charge(entry: ChargeEntry, at: Position): void {
        if (!waiting) return tell(entry, at)
        if (waiting.length < waitingMax) waiting.push({ entry, position: at })
        else fail(tooSlow())
      },
      arrived(at: Position): void { if (!waiting) position = at },
    }

    /** What was booked between the caller's cursor and now. */
    async function replay(since: Snapshot): Promise<void> {
      const from = given && positionOf(given, { since, now: now() })
      position = from ?? { seen: since, to: null, after: null }
      say(null, given !== null && from === null)
      if (!from) return
      if (from.to !== null) await replayTo(from.seen, from.to, from.after)
      await replayTo(from.to ?? from.seen, since, null)
      position = { seen: since, to: null, after: null }
    }

    async function replayTo(seen: Snapshot, to: Snapshot, first: ChargeKey | null): Promise<void> {
      let after = first
      for (let more = true; more && !signal.aborted;) {
        const entries: ChargeEntry[] = await chargesBetween(pool, { from: seen, to, after, apps: [appId], userId, limit: pageMax })
        for (const entry of entries) tell(entry, { seen, to, after: entry.key })
        after = entries.at(-1)?.key ?? after
        more = entries.length === pageMax
        if (more) await following.writable()
      }
    }

    const since = await feed.join(follower)
    const timers = [
      setInterval(() => say(null), times.beatMs),
      setInterval(() => void following.readmit().catch(refused), times.readmitMs),
    ]
    const unwatch = userId === null ? null : watchUser(userId, () => void following.readmit().catch(refused))
    // A check that cannot be made is no verdict.
    function refused(error: unknown): void {
      if (error instanceof DomainError && reasons[error.reason].http < 500) fail(error)
    }
    try {
      await replay(since)
      const missed = waiting
      waiting = null
      for (const each of missed) tell(each.entry, each.position)
      await lifeOver(signal, times.lifeMs)
    } finally {
      for (const timer of timers) clearInterval(timer)
      unwatch?.()
      feed.leave(follower)
    }
    if (failure !== null) throw failure
  }

  return follow
}

export type Follow = ReturnType<typeof createFollow>

async function lifeOver(signal: AbortSignal, lifeMs: number): Promise<void> {
  if (signal.aborted) return
  await Promise.race([once(signal, 'abort'), sleep(lifeMs, undefined, { signal, ref: false }).catch(() => {})])
}

const partsOf = ({ seen, to, after }: Position, at: Date): string[] =>
  [at.toISOString(), seen, to ?? '', after?.xact ?? '', after?.userId ?? '', after?.seq ?? '']

/** Null for a cursor that is too old to go on from, or of another database that this one was restored from. */
function positionOf(parts: readonly string[], { since, now }: { since: Snapshot; now: Date }): Position | null {
  const [at = '', seen = '', to = '', xact = '', userId = '', seq = ''] = parts
  if (now.getTime() - Date.parse(at) > oldestMs) return null
  if ([seen, to].some((snapshot) => snapshot !== '' && endOf(snapshot) > endOf(since))) return null
  return { seen, to: to === '' ? null : to, after: xact === '' ? null : { xact, userId, seq } }
}

/** The first transaction that had not begun when the snapshot was taken. */
const endOf = (snapshot: Snapshot): bigint => BigInt(snapshot.split(':')[1] ?? '0')
