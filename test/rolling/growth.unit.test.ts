import { describe, expect, it } from 'vitest'
import { grownTables } from './books.ts'
import { measureGrowth } from './memory.ts'

/** A sample every ten seconds for ten minutes. */
const samplesOf = (mebibytes: (minute: number) => number) =>
  Array.from({ length: 60 }, (_, i) => ({ seconds: i * 10, mebibytes: mebibytes(i / 6) }))

describe('the growth of memory', () => {
  it('is found in a process that grows steadily', () => {
    const { perHour, isGrowing } = measureGrowth(samplesOf((minute) => 200 + 4 * minute))
    expect(perHour).toBeCloseTo(240)
    expect(isGrowing).toBe(true)
  })

  it.each([
    ['is flat', () => 200],
    ['fills its caches at first', (minute: number) => 100 + 30 * Math.min(minute, 3)],
    ['collects garbage', (minute: number) => 200 + ((minute * 40) % 60)],
    ['shrinks', (minute: number) => 300 - 10 * minute],
  ])('is not found in a process that %s', (_, mebibytes) =>
    expect(measureGrowth(samplesOf(mebibytes)).isGrowing).toBe(false),
  )
})

describe('tables that grew', () => {
  it('are those with a quarter and a thousand rows more', () => {
    const before = new Map([
      ['outbox', 10],
      ['leases', 8_000],
      ['sidecars', 2],
    ])
    const after = new Map([
      ['outbox', 900],
      ['leases', 9_500],
      ['sidecars', 2_000],
      ['decisions', 1_001],
    ])
    expect(grownTables(before, after)).toEqual([
      'sidecars: 2 to 2000 rows',
      'decisions: 0 to 1001 rows',
    ])
  })
})
