import { describe, expect, it } from 'vitest'
import * as fc from 'fast-check'
import { splitAtHours } from '../../../core/lib/time.ts'
import { listTimes } from '../../../core/usage/range.ts'

describe('range', () => {
  it('is split into whole hours and edges that together equal the range', () => {
    const instant = fc.option(fc.integer({ min: 0, max: 20_000_000 }).map((ms) => new Date(ms)))
    const holds = (start: Date | null, end: Date | null): boolean => {
      const { from, to, edges } = splitAtHours({ start, end })
      const inside = (at: number) =>
        (start === null || at >= start.getTime()) && (end === null || at < end.getTime())
      const covered = (at: number) => {
        const hour = Math.floor(at / 3_600_000) * 3_600_000
        const whole =
          (from === null || hour >= from.getTime()) && (to === null || hour < to.getTime())
        return (
          Number(whole) +
          edges.filter((edge) => at >= edge.start.getTime() && at < edge.end.getTime()).length
        )
      }
      const probes = [start, end, from, to].flatMap((at) =>
        at ? [at.getTime() - 1, at.getTime(), at.getTime() + 1] : [],
      )
      return [...probes, 5_000_000].every((at) => covered(at) === Number(inside(at)))
    }
    expect(() =>
      fc.assert(
        fc.property(instant, instant, (a, b) =>
          a !== null && b !== null && a >= b ? true : holds(a, b),
        ),
      ),
    ).not.toThrow()
  })

  it('has the days from its start to the day before its exclusive end', () => {
    const days = listTimes(
      'day',
      { start: new Date('2026-01-31T00:00:00Z'), end: new Date('2026-03-01T00:00:00Z') },
      { used: [], now: new Date('2027-01-01T00:00:00Z') },
    )
    expect([days.length, days[0], days.at(-1)]).toEqual([29, '2026-01-31', '2026-02-28'])
    expect(listTimes('day', { start: null, end: null }, { used: [], now: new Date() })).toEqual([])
  })
})
