import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  calendarMonth,
  computeOverage,
  buildTimeline,
} from '../../../core/billing/summary/summary.ts'

const days = (start: string, end: string) =>
  buildTimeline({ start: new Date(start), end: new Date(end) }, []).map(({ day }) => day)

describe('buildTimeline', () => {
  it('returns 29 days for February 2028', () => {
    const { start, end } = calendarMonth(new Date('2028-02-14T10:00:00Z'))
    expect(buildTimeline({ start, end }, [])).toHaveLength(29)
  })

  it('adds no day for an end at midnight', () => {
    expect(days('2026-01-31T00:00:00Z', '2026-03-01T00:00:00Z').at(-1)).toBe('2026-02-28')
    expect(days('2026-01-31T12:00:00Z', '2026-02-28T12:00:00Z')).toHaveLength(29)
  })

  it('returns at most 366 days', () => {
    expect(days('2026-01-01T00:00:00Z', '2036-01-01T00:00:00Z')).toHaveLength(366)
  })

  it('returns every UTC day of a period once, in order', () => {
    fc.assert(
      fc.property(
        fc.date({ min: new Date('2020-01-01'), max: new Date('2040-01-01'), noInvalidDate: true }),
        fc.integer({ min: 1, max: 365 * 86_400_000 }),
        (start, length) => {
          const end = new Date(start.getTime() + length)
          const list = days(start.toISOString(), end.toISOString())
          expect(list[0]).toBe(start.toISOString().slice(0, 10))
          expect(list.at(-1)).toBe(new Date(end.getTime() - 1).toISOString().slice(0, 10))
          for (const [i, day] of list.slice(1).entries())
            expect(Date.parse(day) - Date.parse(list[i] ?? '')).toBe(86_400_000)
        },
      ),
    )
  })
})

describe('computeOverage', () => {
  const plan = {
    type: 'subscription',
    includedUnits: 100_000n,
    overageRateWei: 10n ** 12n,
  } as const
  const none = { units: 0n, wei: 0n }

  const beyond = { units: 8_300n, wei: 8_300_000_000_000_000n }

  it('returns the units beyond the quota, at the rate of the plan', () => {
    expect(computeOverage(plan, 108_300n)).toEqual(beyond)
    expect(computeOverage({ ...plan, type: 'usage' }, 108_300n)).toEqual(beyond)
    expect(computeOverage(plan, 100_000n)).toEqual(none)
  })

  it.each([
    ['of a free plan, regardless of its columns', { ...plan, type: 'free' }],
    ['of a usage plan with only a quota', { ...plan, type: 'usage', overageRateWei: null }],
    ['of a usage plan with only a rate', { ...plan, type: 'usage', includedUnits: null }],
    ['without a plan', null],
  ] as const)('returns zero %s', (_, terms) => {
    expect(computeOverage(terms, 108_300n)).toEqual(none)
  })
})
