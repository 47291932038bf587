import { describe, expect, it } from 'vitest'
import { attosToMicros, toAttos } from '../../../gateway/web/ui/attos.ts'
import { describeChange } from '../../../gateway/web/ui/usage/change.ts'
import {
  type RangeSearch,
  countDays,
  parseRangeSearch,
  toDates,
  toRange,
  widen,
} from '../../../gateway/web/ui/usage/range.ts'
import { addSeconds, sumMinute } from '../../../gateway/web/ui/usage/minute.ts'

const now = Date.parse('2026-03-30T10:12:13.456Z')

/** Returns both spans of a range as text, half-open. */
function spansOf(search: RangeSearch) {
  const text = (ms: number) => new Date(ms).toISOString().replace('T00:00:00.000Z', '').slice(0, 16)
  const { current, before } = toRange(search, now)
  return [current, before].map(({ start, end }) => `${text(start)}/${text(end)}`)
}

describe('ranges of the dashboard', () => {
  it.each<[RangeSearch, string, string]>([
    [{ range: '1h' }, '2026-03-30T09:13/2026-03-30T10:13', '2026-03-30T08:13/2026-03-30T09:13'],
    [{ range: '24h' }, '2026-03-29T10:13/2026-03-30T10:13', '2026-03-28T10:13/2026-03-29T10:13'],
    [{ range: '7d' }, '2026-03-24/2026-03-30T10:15', '2026-03-17/2026-03-23T10:15'],
    [{}, '2026-03-01/2026-03-30T10:15', '2026-01-30/2026-02-28T10:15'],
    // February has no 30th day.
    [{ range: 'month' }, '2026-03-01/2026-03-30T10:15', '2026-02-01/2026-03-01'],
    [{ range: 'last-month' }, '2026-02-01/2026-03-01', '2026-01-01/2026-02-01'],
    [{ range: '90d' }, '2025-12-31/2026-03-30T10:15', '2025-10-02/2025-12-30T10:15'],
    [{ range: '1y' }, '2025-03-31/2026-03-30T10:15', '2024-03-31/2025-03-30T10:15'],
    [{ from: '2026-03-02', to: '2026-03-08' }, '2026-03-02/2026-03-09', '2026-02-23/2026-03-02'],
    [
      { from: '2026-03-29', to: '2026-03-30' },
      '2026-03-29/2026-03-30T10:15',
      '2026-03-27/2026-03-28T10:15',
    ],
    [{ from: '2026-05-01', to: '2026-05-01' }, '2026-05-01/2026-05-02', '2026-04-30/2026-05-01'],
  ])('%j is %s, compared with %s', (search, current, before) => {
    expect(spansOf(search)).toEqual([current, before])
  })

  it.each([
    [{ range: '7d', from: '2026-01-01', to: '2026-01-02' }, { range: '7d' }],
    [
      { from: '2026-01-01', to: '2026-01-02', other: 1 },
      { from: '2026-01-01', to: '2026-01-02' },
    ],
    [{ range: 'ever' }, {}],
    [{ from: '2026-02-30', to: '2026-03-02' }, {}],
    [{ from: '2026-01-02', to: '2026-01-01' }, {}],
    [{ from: '2026-01-02' }, {}],
    [{ from: 20260102, to: 20260103 }, {}],
  ])('reads %j as %j', (search, parsed) => {
    expect(parseRangeSearch(search)).toEqual(parsed)
  })

  it('includes the last millisecond and no more', () => {
    const { current } = toRange({ from: '2026-03-02', to: '2026-03-03' }, now)
    expect(toDates(current)).toEqual({
      startDate: '2026-03-02T00:00:00.000Z',
      endDate: '2026-03-03T23:59:59.999Z',
    })
    expect(countDays(current)).toBe(2)
  })

  it('extend to the end of the day, the same at any time of it', () => {
    const dates = ['2026-03-30T00:00:01.000Z', '2026-03-30T10:12:13.456Z'].map((at) =>
      toDates(widen(toRange({ range: '7d' }, Date.parse(at)).current)),
    )
    const day = { startDate: '2026-03-24T00:00:00.000Z', endDate: '2026-03-30T23:59:59.999Z' }
    expect(dates).toEqual([day, day])
  })

  it('of an hour are the same for a quarter of an hour when they are widened', () => {
    const starts = ['10:12:13', '10:14:59', '10:15:01'].map((time) => {
      const at = Date.parse(`2026-03-30T${time}Z`)
      return toDates(widen(toRange({ range: '1h' }, at).current)).startDate.slice(11, 16)
    })
    expect(starts).toEqual(['09:00', '09:15', '09:15'])
  })
})

describe('describeChange', () => {
  it.each([
    [0n, 0n, ''],
    [5n, 0n, ''],
    [5n, 5n, 'as before'],
    [100_001n, 100_000n, 'about as before'],
    [150n, 100n, '+50 %'],
    [1_123n, 1_000n, '+12.3 %'],
    [877n, 1_000n, '−12.3 %'],
    [0n, 7n, '−100 %'],
    [123_456n, 10n, '+1,234,460 %'],
  ])('from %s, before %s, is %j', (value, before, text) => {
    expect(describeChange(value, before)).toBe(text)
  })
})

describe('the last minute', () => {
  it('adds up exactly, by second, and forgets all but sixty seconds', () => {
    const added = Array.from({ length: 100 }, (_, at) => ({ at, tickets: 1, attos: 3n }))
    const minute = addSeconds(addSeconds([], added), [{ at: 99, tickets: 2, attos: 1n }])
    expect(minute).toHaveLength(60)
    expect(minute.at(-1)).toEqual({ at: 99, tickets: 3, attos: 4n })
    expect(sumMinute(minute, 99)).toMatchObject({ tickets: 62, attos: 181n })
    expect(sumMinute(minute, 129)).toMatchObject({ tickets: 32, attos: 91n })
    expect(sumMinute(minute, 159)).toEqual({ recent: [], tickets: 0, attos: 0n })
  })

  it.each([
    ['0.360000000000000001', 360_000_000_000_000_001n, '360000'],
    ['12', 12_000_000_000_000_000_000n, '12000000'],
    ['-0.0000005', -500_000_000_000n, '-1'],
  ])('reads %s dollars exactly', (text, attos, micros) => {
    expect(toAttos(text)).toBe(attos)
    expect(attosToMicros(attos)).toBe(micros)
  })

  it('rejects text that is no amount', () => {
    for (const text of ['', '1e3', '1.', '0.1234567890123456789', '--1'])
      expect(() => toAttos(text)).toThrow('not an amount')
  })
})
