import type { Now } from '../lib/time.ts'

/**
 * The time of all processes that share a database (docs/escrow.md, "Time"): the database's clock, which each process counts on by
 * a clock of its own that never jumps.
 */
export interface DatabaseClock {
  readonly now: Now
  /** As `now`. Reads the database first when this process may have been suspended, because its count has then stopped. */
  current(): Promise<Date>
  /** Reads the database. A reading that fails leaves the count as it is, and rejects. */
  measure(): Promise<void>
  /** When the database's clock last jumped, by its time after the jump; 1970 if it has not. */
  jumpedAt(): Date
}

export interface DatabaseClockOptions {
  readonly read: () => Promise<Date>
  /** Milliseconds of a clock that never jumps. */
  readonly mono: () => number
  /** Unix milliseconds of this machine's clock, which is only compared with `mono`. */
  readonly wall: () => number
}

/** A larger change between two readings is a jump. */
export const jumpMs = 1_000

/** Shows the machine's clock until it is measured for the first time. */
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
    // Suspended meanwhile, or its wall clock was set: the answer may be old.
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

/** A clock that no database is read for: a test's. */
export const clockBy = (now: Now): DatabaseClock => ({
  now,
  current: async () => now(),
  measure: async () => {},
  jumpedAt: () => new Date(0),
})
