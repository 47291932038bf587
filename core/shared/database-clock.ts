import type { Now } from '../lib/time.ts'

/**
 * The common time of all processes that share a database (docs/escrow-settlement.md, "Time"): the
 * database's clock, which each process advances with a monotonic clock of its own.
 */
export interface DatabaseClock {
  readonly now: Now
  /**
   * Like `now`. Reads the database first if this process may have been suspended, because its own
   * clock stopped meanwhile.
   */
  current(): Promise<Date>
  /** Reads the database's clock. Rejects on failure, and then changes nothing. */
  measure(): Promise<void>
  /** The time of the database's clock after its last jump; 1970 if it has not jumped. */
  jumpedAt(): Date
}

export interface DatabaseClockOptions {
  readonly read: () => Promise<Date>
  /** Milliseconds of a monotonic clock. */
  readonly mono: () => number
  /**
   * Unix milliseconds of this machine's clock. Compared with `mono`, and used as the time until the
   * first measurement.
   */
  readonly wall: () => number
}

/** A larger change between two readings is a jump. */
const jumpMs = 1_000

/** Returns a clock that shows the machine's time until the first measurement. */
export function createDatabaseClock({ read, mono, wall }: DatabaseClockOptions): DatabaseClock {
  let offsetMs: number | null = null
  let wallGapMs = 0
  let jumped = new Date(0)
  let measuring: Promise<void> | null = null

  const now = (): Date => new Date(offsetMs === null ? wall() : mono() + offsetMs)

  async function readOnce(): Promise<void> {
    const sentAt = mono()
    const gapBefore = wall() - sentAt
    const at = (await read()).getTime()
    const receivedAt = mono()
    wallGapMs = wall() - receivedAt
    // The process was suspended meanwhile, or its wall clock was set, so the reading may be old.
    if (Math.abs(wallGapMs - gapBefore) > jumpMs) return readOnce()
    const errorMs = (receivedAt - sentAt) / 2
    const readMs = at - sentAt - errorMs
    const changeMs = Math.abs(readMs - (offsetMs ?? readMs))
    if (offsetMs === null || changeMs > errorMs) offsetMs = readMs
    if (changeMs > jumpMs + errorMs) jumped = now()
  }

  const measure = (): Promise<void> => (measuring ??= readOnce().finally(() => (measuring = null)))

  async function current(): Promise<Date> {
    if (Math.abs(wall() - mono() - wallGapMs) > jumpMs) await measure()
    return now()
  }

  return { now, current, measure, jumpedAt: () => jumped }
}

/** A clock that reads no database, for tests. */
export const clockBy = (now: Now): DatabaseClock => ({
  now,
  current: async () => now(),
  measure: async () => {},
  jumpedAt: () => new Date(0),
})
