import { describe, expect, it } from 'vitest'
import { cutsDue } from '../../../core/books/receipts/test-days.ts'

const at = (text: string): Date => new Date(`2026-03-${text}Z`)
const [minute, hour, day] = [60_000, 3_600_000, 86_400_000]
/** The cut of 9 March for all apps. */
const last = { day: '2026-03-09', cutAt: at('10T00:03:00') }
const move = (since: string, aheadMs: number, snapshot: string | null = since) => ({
  since: at(since),
  aheadMs,
  snapshot,
})

interface Case {
  readonly after: string
  readonly moves: readonly ReturnType<typeof move>[]
  readonly now: string
  readonly cuts: readonly string[]
}

describe('cutsDue', () => {
  it.each<Case>([
    {
      after: 'a day that has not ended',
      moves: [move('10T12:00:00', hour)],
      now: '10T22:59:00',
      cuts: [],
    },
    {
      after: 'a midnight of the clock before the real one',
      moves: [move('10T12:00:00', hour)],
      now: '10T23:05:00',
      cuts: ['2026-03-10'],
    },
    {
      after: 'a move within the day',
      moves: [move('10T12:00:00', minute)],
      now: '10T12:01:00',
      cuts: [],
    },
    {
      after: 'a move into another day',
      moves: [move('10T12:00:00', 40 * day)],
      now: '10T12:01:00',
      cuts: ['2026-03-10 by 10T12:00:00'],
    },
    {
      after: 'two moves into other days and a midnight',
      moves: [move('10T12:00:00', day), move('10T13:00:00', 3 * day)],
      now: '11T00:04:00',
      cuts: ['2026-03-10 by 10T12:00:00', '2026-03-11 by 10T13:00:00', '2026-03-13'],
    },
    {
      after: 'a move without a snapshot',
      moves: [move('10T12:00:00', 40 * day, null)],
      now: '10T12:01:00',
      cuts: ['2026-04-18'],
    },
    {
      after: 'a move before the last cut',
      moves: [move('10T00:02:00', 40 * day)],
      now: '10T12:01:00',
      cuts: [],
    },
    {
      after: 'days without a core',
      moves: [move('10T12:00:00', minute)],
      now: '14T12:00:00',
      cuts: ['2026-03-13'],
    },
  ])('returns the cuts after $after', ({ moves, now, cuts }) => {
    const due = cutsDue(last, moves, at(now))
    expect(
      due.map(({ day: of, snapshot }) => (snapshot === null ? of : `${of} by ${snapshot}`)),
    ).toEqual(cuts)
  })
})
