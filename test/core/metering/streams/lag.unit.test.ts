import { describe, expect, it } from 'vitest'
import { streamLag } from '../../../../core/metering/streams/lag.ts'

const now = new Date('2026-09-14T10:20:00Z')
const before = (seconds: number): Date => new Date(now.getTime() - seconds * 1_000)
const end = (endOffset: bigint, caughtUpAt: Date | null = null, readAt = before(5)) => ({
  endOffset,
  readAt,
  caughtUpAt,
})

describe('the lag of a stream', () => {
  it.each([
    ['is unknown without an end', { newestAt: before(9), bookedAt: before(9), end: null }, null],
    [
      'is none when every event is booked, however long ago',
      { newestAt: before(9_000), bookedAt: before(9_000), end: end(10n) },
      { events: 0n, seconds: 0, isStalled: false },
    ],
    [
      'is none when more was booked than the end that was read',
      { newestAt: before(1), bookedAt: before(1), end: end(7n) },
      { events: 0n, seconds: 0, isStalled: false },
    ],
    [
      'is counted from the newest booked event',
      { newestAt: before(300), bookedAt: before(2), end: end(42n) },
      { events: 32n, seconds: 300, isStalled: false },
    ],
    [
      'is counted from the last reading without waiting events, if that is later',
      { newestAt: before(9_000), bookedAt: before(9_000), end: end(11n, before(15)) },
      { events: 1n, seconds: 15, isStalled: false },
    ],
    [
      'stands still a minute after the last booked event',
      { newestAt: before(300), bookedAt: before(61), end: end(11n, before(90)) },
      { events: 1n, seconds: 90, isStalled: true },
    ],
    [
      'has no time when none was ever booked',
      { newestAt: null, bookedAt: null, end: end(11n) },
      { events: 1n, seconds: null, isStalled: true },
    ],
    [
      'is still known a minute after the end was read',
      { newestAt: before(90), bookedAt: before(60), end: end(11n, null, before(60)) },
      { events: 1n, seconds: 90, isStalled: false },
    ],
    [
      'is unknown later, also when every event before that end is booked',
      { newestAt: before(90), bookedAt: before(70), end: end(10n, before(61), before(61)) },
      null,
    ],
    [
      'is unknown later, also when events waited before that end',
      { newestAt: before(90), bookedAt: before(90), end: end(11n, null, before(61)) },
      null,
    ],
  ])('%s', (_title, progress, lag) => {
    expect(streamLag({ nextOffset: 10n, ...progress }, now)).toEqual(lag)
  })
})
