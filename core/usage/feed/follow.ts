import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, reasons } from '../../../proto/errors.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Cursors } from './cursor.ts'
import type { Feed, Follower, Position } from './feed.ts'
import { type ChargeEntry, type Snapshot, chargesBetween } from './store.ts'

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

const tooSlow = (): DomainError =>
  new DomainError('UNAVAILABLE', 'the stream was not read fast enough; open it again')

/** Live spend, from a cursor on. Each stream ends after an hour, with core, or when its caller may not read it any more. */
export function createFollow(deps: FollowDeps) {
  const { feed, cursors, now, stopping, times = usual } = deps

  /** Resolves when the stream is over; REQUEST_INVALID for a cursor that is none, RATE_LIMITED. */
  async function follow(following: Following): Promise<void> {
    const given = cursors.parse(following.after, contextOf(following))
    const ended = new AbortController()
    const signal = AbortSignal.any([following.signal, stopping, ended.signal])
    let failure: unknown = null
    const fail = (error: unknown): void => {
      failure ??= error
      ended.abort()
    }
    const voice = createVoice(following, deps)
    const line = createLine(following, voice, fail)
    const since = await feed.join(line.follower)
    const stopWatching = watch(following, { voice, fail })
    try {
      const from = given && positionOf(given, { since, now: now() })
      voice.stand(from ?? { seen: since, to: null, after: null })
      voice.say(null, given !== null && from === null)
      if (from) await replay(from, since, { following, voice, signal })
      voice.stand({ seen: since, to: null, after: null })
      line.open()
      await lifeOver(signal, times.lifeMs)
    } finally {
      stopWatching()
      feed.leave(line.follower)
    }
    if (failure !== null) throw failure
  }

  /** What was booked between the caller's cursor and now. */
  async function replay(
    { seen, to, after }: Position,
    since: Snapshot,
    sending: Sending,
  ): Promise<void> {
    if (to !== null) await replayTo({ seen, to, after }, sending)
    await replayTo({ seen: to ?? seen, to: since, after: null }, sending)
  }

  async function replayTo(
    { seen, to, after: first }: Position & { to: Snapshot },
    { following, voice, signal }: Sending,
  ): Promise<void> {
    const { appId, userId } = following
    let after = first
    for (let more = true; more && !signal.aborted;) {
      const entries: ChargeEntry[] = await chargesBetween(deps.pool, {
        from: seen,
        to,
        after,
        apps: [appId],
        userId,
        limit: pageMax,
      })
      for (const entry of entries) voice.tell(entry, { seen, to, after: entry.key })
      after = entries.at(-1)?.key ?? after
      more = entries.length === pageMax
      if (more) await following.writable()
    }
  }

  /** Says where the stream is while nothing happens, and asks again whether the caller may read; returns how to stop. */
  function watch(
    { userId, readmit }: Following,
    { voice, fail }: { voice: Voice; fail: (error: unknown) => void },
  ): () => void {
    // A check that cannot be made is no verdict.
    const check = (): void =>
      void readmit().catch((error: unknown) => {
        if (error instanceof DomainError && reasons[error.reason].http < 500) fail(error)
      })
    const timers = [
      setInterval(() => voice.say(null), times.beatMs),
      setInterval(check, times.readmitMs),
    ]
    const unwatch = userId === null ? null : deps.watchUser(userId, check)
    return () => {
      for (const timer of timers) clearInterval(timer)
      unwatch?.()
    }
  }

  return follow
}

interface Sending {
  readonly following: Following
  readonly voice: Voice
  readonly signal: AbortSignal
}

const contextOf = ({ appId }: Following): string => `stream:${appId}`

/** Emits what is said together with the place that it brings the reader to. */
function createVoice(following: Following, { cursors, now }: Pick<FollowDeps, 'cursors' | 'now'>) {
  let position: Position = { seen: '', to: null, after: null }
  const stand = (at: Position): void => {
    position = at
  }
  const say = (charge: ChargeEntry | null, reset = false): void =>
    following.emit({
      cursor: cursors.format(partsOf(position, now()), contextOf(following)),
      charge,
      reset,
    })
  const tell = (charge: ChargeEntry, at: Position): void => {
    stand(at)
    say(charge)
  }
  return { stand, say, tell }
}

type Voice = ReturnType<typeof createVoice>

/** What the feed brings waits until the line is open. */
function createLine({ appId, userId }: Following, voice: Voice, fail: (error: unknown) => void) {
  let waiting: { entry: ChargeEntry; at: Position }[] | null = []
  const follower: Follower = {
    appId,
    userId,
    charge(entry, at) {
      if (!waiting) return voice.tell(entry, at)
      if (waiting.length < waitingMax) waiting.push({ entry, at })
      else fail(tooSlow())
    },
    arrived(at) {
      if (!waiting) voice.stand(at)
    },
  }
  function open(): void {
    const missed = waiting ?? []
    waiting = null
    for (const { entry, at } of missed) voice.tell(entry, at)
  }
  return { follower, open }
}

export type Follow = ReturnType<typeof createFollow>

async function lifeOver(signal: AbortSignal, lifeMs: number): Promise<void> {
  if (signal.aborted) return
  await Promise.race([
    once(signal, 'abort'),
    sleep(lifeMs, undefined, { signal, ref: false }).catch(() => {}),
  ])
}

const partsOf = ({ seen, to, after }: Position, at: Date): string[] => [
  at.toISOString(),
  short(seen),
  to === null ? '' : short(to),
  after?.xact ?? '',
  after?.userId ?? '',
  after?.seq ?? '',
]

const longest = 1_000

/** A snapshot beside very many transactions is cut to the oldest of them: what came since then comes again. */
function short(snapshot: Snapshot): Snapshot {
  const [oldest = ''] = snapshot.split(':')
  return snapshot.length <= longest ? snapshot : `${oldest}:${oldest}:`
}

/** Null for a cursor that is too old to go on from, or of another database that this one was restored from. */
function positionOf(
  parts: readonly string[],
  { since, now }: { since: Snapshot; now: Date },
): Position | null {
  const [at = '', seen = '', to = '', xact = '', userId = '', seq = ''] = parts
  if (now.getTime() - Date.parse(at) > oldestMs) return null
  if ([seen, to].some((snapshot) => snapshot !== '' && endOf(snapshot) > endOf(since))) return null
  return { seen, to: to === '' ? null : to, after: xact === '' ? null : { xact, userId, seq } }
}

/** The first transaction that had not begun when the snapshot was taken. */
const endOf = (snapshot: Snapshot): bigint => BigInt(snapshot.split(':')[1] ?? '0')
