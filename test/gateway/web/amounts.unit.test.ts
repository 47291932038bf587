import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  formatCurrency,
  formatDollars,
  formatExactMicros,
  formatMicros,
} from '../../../gateway/web/ui/amounts.ts'
import { testSeed } from '../../support/run/sizes.ts'

describe('amounts of the dashboard', () => {
  it.each([
    ['0', '$0.00'],
    ['1', '$0.000001'],
    ['9999', '$0.009999'],
    ['10000', '$0.01'],
    ['14999', '$0.01'],
    ['15000', '$0.02'],
    ['5630000', '$5.63'],
    ['999995000', '$1,000.00'],
    ['-2500000', '-$2.50'],
    ['123456789012345678901', '$123,456,789,012,345.68'],
  ])('shows %s micros as %s', (micros, text) => {
    expect(formatMicros(micros)).toBe(text)
  })

  it('keeps every micro in the exact value', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), (micros) => {
        const text = formatExactMicros(String(micros))
        expect(BigInt(text.replace(/[^-\d]/g, ''))).toBe(micros)
      }),
      { seed: testSeed },
    )
  })

  it('differs from the exact value by at most half a cent', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 20n), max: 10n ** 20n }), (micros) => {
        const [, whole = '', fraction = ''] = /\$([\d,]+)\.(\d+)$/.exec(
          formatMicros(String(micros)),
        ) ?? ['']
        const size = BigInt(whole.replaceAll(',', '') + fraction.padEnd(6, '0'))
        const error = size - (micros < 0n ? -micros : micros)
        expect(error < 0n ? -error : error).toBeLessThanOrEqual(5_000n)
      }),
      { seed: testSeed },
    )
  })

  it.each([
    ['10.9', '$10.90'],
    ['-3.00', '-$3.00'],
    ['1234567.123456', '$1,234,567.123456'],
  ])('shows %s dollars as %s', (amount, text) => {
    expect(formatDollars(amount)).toBe(text)
  })

  it.each([
    ['-1234.50', 'USD', '-$1,234.50'],
    ['1234567', 'JPY', '1,234,567 JPY'],
    ['-0.007', 'KWD', '-0.007 KWD'],
  ])('shows %s %s as %s', (amount, currency, text) => {
    expect(formatCurrency(amount, currency)).toBe(text)
  })
})
