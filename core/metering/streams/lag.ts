/** How far a stream is booked, as stored. */
export interface StreamProgress {
  /** Offset of the first event that is not booked. */
  readonly nextOffset: bigint
  readonly newestAt: Date | null
  readonly bookedAt: Date | null
  /** The end of the stream, as a collector last read it; null for a stream without offsets. */
  readonly end: StreamEnd | null
}

export interface StreamEnd {
  readonly endOffset: bigint
  readonly readAt: Date
  /** The last reading at which every event before the end was booked. */
  readonly caughtUpAt: Date | null
}

export interface StreamLag {
  /** Events that wait at the broker. */
  readonly events: bigint
  /** Upper bound for the waiting time of the oldest event; null if unknown, 0 if none waits. */
  readonly seconds: number | null
  /** Whether events wait and none was booked for a minute. */
  readonly isStalled: boolean
}

const stalledMs = 60_000
/** Collectors read the end every ten seconds. An older reading does not count. */
const readingMaxMs = 60_000

/**
 * Returns how far a stream is behind its end; null if the end is unknown, or if no collector has
 * read it for a minute, because the broker or every collector may be down. The waiting events came
 * after the newest booked one, and after the last reading without waiting events. A marker at the
 * end, which transactions of a producer leave, counts as a waiting event.
 */
export function streamLag(
  { nextOffset, newestAt, bookedAt, end }: StreamProgress,
  now: Date,
): StreamLag | null {
  if (end === null || now.getTime() - end.readAt.getTime() > readingMaxMs) return null
  const events = end.endOffset > nextOffset ? end.endOffset - nextOffset : 0n
  if (events === 0n) return { events, seconds: 0, isStalled: false }
  const since = latest(newestAt, end.caughtUpAt)
  const movedAt = latest(bookedAt, end.caughtUpAt)
  return {
    events,
    seconds: since && Math.max(0, Math.round((now.getTime() - since.getTime()) / 1_000)),
    isStalled: movedAt === null || now.getTime() - movedAt.getTime() > stalledMs,
  }
}

const latest = (a: Date | null, b: Date | null): Date | null =>
  a === null || (b !== null && b > a) ? b : a
