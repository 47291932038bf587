import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, reasons } from '../../../proto/errors.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import type { Cursors } from '../cursor.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Feed, Follower, Position } from './feed.ts'
import { type ChargeEntry, type Snapshot, chargesBetween } from './store.ts'

/** A stream message: its position and, unless it is a heartbeat, a charge. */
export interface StreamMessage {
  readonly cursor: string
  readonly charge: ChargeEntry | null
  readonly reset: boolean
}

export interface Following {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly after: string | undefined
  emit(message: StreamMessage): void
  /** Resolves when the reader has caught up enough to receive more. */
  writable(): Promise<void>
  /** Throws if the caller may no longer read. */
  readmit(): Promise<void>
  readonly signal: AbortSignal
}

export interface FollowDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly feed: Feed
  readonly cursors: Cursors
  /** Aborted when core drains. */
  readonly stopping: AbortSignal
  /** Returns the account that owns an app; null without one. */
  readonly ownerOf: (app: AppId) => Promise<string | null>
  /**
   * Calls back when this user is deactivated or revoked; returns a function that stops watching.
   */
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
// Maximum charges held back while older ones are still being sent.
const backlogMax = 10_000

const tooSlow = (): DomainError =>
  new DomainError('UNAVAILABLE', 'the stream was not read fast enough; open it again')

/**
 * Streams charges after a cursor. A stream ends after an hour, when core stops, or when its caller
 * may no longer read.
 */
export function createFollow(deps: FollowDeps) {
  const { feed, cursors, now, stopping, times = usual } = deps

  /**
   * Resolves when the stream has ended. Throws REQUEST_INVALID for an invalid cursor, RATE_LIMITED
   * or UNAVAILABLE if too many streams are open.
   */
  async function follow(following: Following): Promise<void> {
    const parts = cursors.parse(following.after, contextOf(following))
    const ended = new AbortController()
    const signal = AbortSignal.any([following.signal, stopping, ended.signal])
    let failure: unknown = null
    const fail = (error: unknown): void => {
      failure ??= error
      ended.abort()
    }
    const writer = createStreamWriter(following, deps)
    const owner = (await deps.ownerOf(following.appId)) ?? following.appId
    const backlog = createBacklog({ ...following, owner }, writer, fail)
    const since = await feed.join(backlog.follower)
    const stopWatching = watch(following, { writer, fail })
    try {
      const from = parts && positionOf(parts, { since, now: now() })
      writer.moveTo(from ?? { seen: since, to: null, after: null })
      writer.write(null, parts !== null && from === null)
      if (from) await replay(from, since, { following, writer, signal })
      writer.moveTo({ seen: since, to: null, after: null })
      backlog.open()
      await lifeOver(signal, times.lifeMs)
    } finally {
      stopWatching()
      feed.leave(backlog.follower)
    }
    if (failure !== null) throw failure
  }

  /** Sends the charges between the caller's cursor and `since`. */
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
    { following, writer, signal }: Sending,
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
      for (const entry of entries) writer.writeCharge(entry, { seen, to, after: entry.key })
      after = entries.at(-1)?.key ?? after
      more = entries.length === pageMax
      if (more) await following.writable()
    }
  }

  /**
   * Sends heartbeats and checks regularly that the caller may still read; returns a function that
   * stops both.
   */
  function watch(
    { userId, readmit }: Following,
    { writer, fail }: { writer: StreamWriter; fail: (error: unknown) => void },
  ): () => void {
    // Ignore checks that fail for a reason unrelated to the caller.
    const check = (): void =>
      void readmit().catch((error: unknown) => {
        if (error instanceof DomainError && reasons[error.reason].http < 500) fail(error)
      })
    const timers = [
      setInterval(() => writer.write(null), times.beatMs),
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
  readonly writer: StreamWriter
  readonly signal: AbortSignal
}

const contextOf = ({ appId }: Following): string => `stream:${appId}`

/** Emits messages with the cursor of the reader's new position. */
function createStreamWriter(
  following: Following,
  { cursors, now }: Pick<FollowDeps, 'cursors' | 'now'>,
) {
  let position: Position = { seen: '', to: null, after: null }
  const moveTo = (at: Position): void => {
    position = at
  }
  const write = (charge: ChargeEntry | null, reset = false): void =>
    following.emit({
      cursor: cursors.format(partsOf(position, now()), contextOf(following)),
      charge,
      reset,
    })
  const writeCharge = (charge: ChargeEntry, at: Position): void => {
    moveTo(at)
    write(charge)
  }
  return { moveTo, write, writeCharge }
}

type StreamWriter = ReturnType<typeof createStreamWriter>

/** Holds back charges of the feed until `open`, while older ones are replayed. */
function createBacklog(
  { appId, userId, owner }: Following & { readonly owner: string },
  writer: StreamWriter,
  fail: (error: unknown) => void,
) {
  let held: { entry: ChargeEntry; at: Position }[] | null = []
  const follower: Follower = {
    appId,
    userId,
    owner,
    charge(entry, at) {
      if (!held) return writer.writeCharge(entry, at)
      if (held.length < backlogMax) held.push({ entry, at })
      else fail(tooSlow())
    },
    arrived(at) {
      if (!held) writer.moveTo(at)
    },
  }
  function open(): void {
    const missed = held ?? []
    held = null
    for (const { entry, at } of missed) writer.writeCharge(entry, at)
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

const snapshotLengthMax = 1_000

/**
 * Shortens a snapshot with very many running transactions to its oldest transaction: later charges
 * are sent again.
 */
function short(snapshot: Snapshot): Snapshot {
  const [oldest = ''] = snapshot.split(':')
  return snapshot.length <= snapshotLengthMax ? snapshot : `${oldest}:${oldest}:`
}

/**
 * Returns null for a cursor that is too old, or ahead of this database, as after a restore from a
 * backup.
 */
function positionOf(
  parts: readonly string[],
  { since, now }: { since: Snapshot; now: Date },
): Position | null {
  const [at = '', seen = '', to = '', xact = '', userId = '', seq = ''] = parts
  if (now.getTime() - Date.parse(at) > oldestMs) return null
  if ([seen, to].some((snapshot) => snapshot !== '' && endOf(snapshot) > endOf(since))) return null
  return { seen, to: to === '' ? null : to, after: xact === '' ? null : { xact, userId, seq } }
}

/** Returns the first transaction that had not begun when the snapshot was taken. */
const endOf = (snapshot: Snapshot): bigint => BigInt(snapshot.split(':')[1] ?? '0')
