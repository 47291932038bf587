import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { roundToMicros } from '../../../gateway/web/ui/amounts.ts'
import { percentOfRate, rateOfPercent, sellAt } from '../../../gateway/web/ui/rates.ts'
import { testSeed } from '../../support/run/sizes.ts'

describe('rates as per cent of the network price', () => {
  it.each([
    ['100', '0.000001'],
    ['150', '0.0000015'],
    ['0', '0'],
    ['0.5', '0.000000005'],
    ['1234567.654321', '0.01234567654321'],
    ['100000000', '1'],
    ['1234567890123', null],
    ['', null],
    ['1e2', null],
    ['-5', null],
    ['1,5', null],
  ])('converts %j', (percent, rate) => {
    expect(rateOfPercent(percent)).toBe(rate)
  })

  it('convert back exactly', () => {
    fc.assert(
      fc.property(fc.nat(9_999_999), fc.nat(999_999), (whole, millionths) => {
        const fraction = String(millionths).padStart(6, '0').replace(/0+$/, '')
        const percent = fraction === '' ? String(whole) : `${whole}.${fraction}`
        expect(percentOfRate(rateOfPercent(percent) ?? '')).toBe(percent)
      }),
      { seed: testSeed },
    )
  })
})

describe('the price of a job', () => {
  it.each([
    [10_000n, '0.000001', 10_000n],
    [10_000n, '0.0000015', 15_000n],
    [1n, '0.0000015', 2n],
    [10_000n, '0', 0n],
    [7n, '1', 7_000_000n],
  ])('sells %s micros at %s', (micros, rate, price) => {
    expect(sellAt(micros, rate)).toBe(price)
  })
})

describe('dollars of many digits', () => {
  it.each([
    ['1', '1000000'],
    ['0.123456789', '123457'],
    ['0.0000009', '1'],
    ['0.00000049', '0'],
    ['-2.5', '-2500000'],
    ['-0.000000001', '0'],
  ])('rounds %s', (dollars, micros) => {
    expect(roundToMicros(dollars)).toBe(micros)
  })
})
