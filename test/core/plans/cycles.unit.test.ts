import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type BillingCycle,
  type CycleChange,
  anchorFrom,
  periodIn,
} from '../../../core/lib/time.ts'

const day = (text: string) => new Date(`${text}T00:00:00.000Z`)
const cycles = fc.constantFrom<BillingCycle>('daily', 'weekly', 'monthly')
const show = ({ start, end }: { start: Date; end: Date }) =>
  [start, end].map((instant) => instant.toISOString().slice(0, 10))

describe('periodIn with changes of cycle', () => {
  it('changes the length when the next period begins, and counts from there', () => {
    const changes: [CycleChange, ...CycleChange[]] = [
      { since: day('2028-01-31'), cycle: 'monthly' },
      { since: day('2028-02-10'), cycle: 'weekly' },
    ]
    const at = (text: string) => show(periodIn(day('2028-01-31'), changes, day(text)))
    expect(at('2028-02-15')).toEqual(['2028-01-31', '2028-02-29'])
    expect(at('2028-02-29')).toEqual(['2028-02-29', '2028-03-07'])
    expect(at('2028-03-08')).toEqual(['2028-03-07', '2028-03-14'])
  })

  it('ignores a change undone before the period ends, and keeps the 31st', () => {
    const changes: [CycleChange, ...CycleChange[]] = [
      { since: day('2027-01-31'), cycle: 'monthly' },
      { since: day('2027-02-03'), cycle: 'daily' },
      { since: day('2027-02-04'), cycle: 'monthly' },
    ]
    expect(show(periodIn(day('2027-01-31'), changes, day('2027-03-30')))).toEqual([
      '2027-02-28',
      '2027-03-31',
    ])
  })

  it('returns adjacent periods that contain the instant', () => {
    const instants = fc.date({
      min: day('2024-01-01'),
      max: day('2029-01-01'),
      noInvalidDate: true,
    })
    fc.assert(
      fc.property(
        fc.record({ since: instants, cycle: cycles }),
        fc.array(fc.record({ since: instants, cycle: cycles }), { maxLength: 6 }),
        instants,
        ({ since: anchor, cycle }, later, at) => {
          const from = at < anchor ? anchor : at
          const ordered = later
            .filter(({ since }) => since > anchor)
            .toSorted((a, b) => a.since.getTime() - b.since.getTime())
          const changes: [CycleChange, ...CycleChange[]] = [{ since: anchor, cycle }, ...ordered]
          const period = periodIn(anchor, changes, from)
          expect(period.start <= from && from < period.end).toBe(true)
          expect(periodIn(anchor, changes, period.start)).toEqual(period)
          expect(periodIn(anchor, changes, period.end).start).toEqual(period.end)
          const newest = changes.findLast(({ since }) => since <= period.start)
          expect(period.cycle).toBe(newest?.cycle)
        },
      ),
      { numRuns: 2_000 },
    )
  })
})

describe('anchorFrom', () => {
  const changes: [CycleChange] = [{ since: day('2028-01-31'), cycle: 'monthly' }]
  const from = { anchor: day('2028-01-31'), changes }

  it('keeps the anchor, and with it the 31st, when the cycle stays the same', () => {
    const anchor = anchorFrom(day('2028-02-29'), from, 'monthly')
    expect(anchor).toEqual(day('2028-01-31'))
    expect(
      show(periodIn(anchor, [{ since: day('2028-02-29'), cycle: 'monthly' }], day('2028-04-15'))),
    ).toEqual(['2028-03-31', '2028-04-30'])
  })

  it('returns the start of the successor when the cycle changes', () => {
    expect(anchorFrom(day('2028-02-29'), from, 'weekly')).toEqual(day('2028-02-29'))
  })
})
