import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { periodAt } from '../../../core/lib/time.ts'

const day = (text: string) => new Date(`${text}T00:00:00.000Z`)
const show = ({ start, end }: { start: Date; end: Date }) => [
  start.toISOString(),
  end.toISOString(),
]

describe('monthly period', () => {
  it('begins on the day of the subscription and ends before that day of the next month', () => {
    expect(show(periodAt(new Date('2026-01-15T10:30:00Z'), 'monthly', day('2026-03-01')))).toEqual([
      '2026-02-15T10:30:00.000Z',
      '2026-03-15T10:30:00.000Z',
    ])
  })

  it('clamps to the last day of short months without drifting', () => {
    const anchor = day('2028-01-31')
    expect(show(periodAt(anchor, 'monthly', day('2028-02-29')))).toEqual([
      '2028-02-29T00:00:00.000Z',
      '2028-03-31T00:00:00.000Z',
    ])
    expect(show(periodAt(anchor, 'monthly', day('2028-02-28')))).toEqual([
      '2028-01-31T00:00:00.000Z',
      '2028-02-29T00:00:00.000Z',
    ])
    expect(show(periodAt(anchor, 'monthly', day('2028-05-01')))).toEqual([
      '2028-04-30T00:00:00.000Z',
      '2028-05-31T00:00:00.000Z',
    ])
  })

  it('contains its start but not its end, and leaves no gap', () => {
    const instants = fc.date({
      min: day('2020-01-01'),
      max: day('2040-01-01'),
      noInvalidDate: true,
    })
    fc.assert(
      fc.property(
        instants,
        instants,
        fc.constantFrom('daily', 'weekly', 'monthly'),
        (anchor, at, cycle) => {
          fc.pre(at >= anchor)
          const { start, end } = periodAt(anchor, cycle, at)
          expect(start <= at && at < end).toBe(true)
          expect(periodAt(anchor, cycle, start)).toEqual({ start, end })
          expect(periodAt(anchor, cycle, end).start).toEqual(end)
        },
      ),
    )
  })
})
