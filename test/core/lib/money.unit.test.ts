import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  divCeil,
  divFloor,
  ethRate,
  formatDecimal18,
  formatDollars,
  formatEth,
  microsDown,
  microsThatAddUp,
  microsToAttos,
  microsUp,
  parseDecimal18,
  parseInteger,
  priceBound,
  computePrice,
  usdAttos,
  usdMicros,
  wei,
} from '../../../core/lib/money.ts'

const rate = (text: string) => ethRate(parseDecimal18(text) ?? -1n)

describe('pricing', () => {
  it.each([
    [1_000_000_000_000_000n, '3000.00', 3_000_000n],
    [8_420_000_000_000_000n, '3000', 25_260_000n],
    [128_750_000_000_000_000n, '3000', 386_250_000n],
    [9_262_000_000_000_000n, '3000', 27_786_000n],
    [141_625_000_000_000_000n, '3000', 424_875_000n],
  ])('prices %s wei at %s USD as %s micros', (fee, usd, micros) => {
    expect(microsUp(computePrice(wei(fee), rate(usd)))).toBe(micros)
  })

  it('keeps amounts far below a micro', () => {
    const one = computePrice(wei(1n), rate('3000'))
    expect(one).toBe(3_000n)
    expect(microsUp(usdAttos(one * 1000n))).toBe(1n)
    expect(microsDown(usdAttos(one * 1000n))).toBe(0n)
  })

  it('is exact beyond 2^53 wei', () => {
    expect(computePrice(wei(9_007_199_254_740_993n), rate('1'))).toBe(9_007_199_254_740_993n)
  })

  it('rounds a price down and a bound up to whole atto-dollars', () => {
    expect(computePrice(wei(1n), rate('0.5'))).toBe(0n)
    expect(priceBound(wei(1n), rate('0.5'))).toBe(1n)
    expect(computePrice(wei(3n), rate('0.5'))).toBe(1n)
    expect(priceBound(wei(3n), rate('0.5'))).toBe(2n)
    expect(priceBound(wei(2n), rate('0.5'))).toBe(1n)
  })
})

describe('rounding', () => {
  it('rounds in its direction, also below zero', () => {
    expect([divFloor(-1n, 2n), divCeil(-1n, 2n), divFloor(1n, 2n), divCeil(1n, 2n)]).toEqual([
      -1n,
      0n,
      0n,
      1n,
    ])
  })

  it('makes rows add up to the displayed total', () => {
    fc.assert(
      fc.property(fc.array(fc.bigInt({ min: 0n, max: 10n ** 24n }), { maxLength: 40 }), (parts) => {
        const shown = microsThatAddUp(parts.map(usdAttos))
        const total = microsUp(usdAttos(parts.reduce((sum, part) => sum + part, 0n)))
        expect(shown.reduce((sum: bigint, part) => sum + part, 0n)).toBe(total)
        shown.forEach((micros, index) => {
          const exact = usdAttos(parts[index] ?? 0n)
          expect(micros === microsDown(exact) || micros === microsUp(exact)).toBe(true)
        })
      }),
    )
  })

  it('makes rounded consumption and balance add up to the granted amount', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 0n, max: 10n ** 12n }),
        fc.bigInt({ min: 0n, max: 10n ** 24n }),
        (granted, spent) => {
          const attos = microsToAttos(usdMicros(granted))
          fc.pre(spent <= attos)
          expect(microsUp(usdAttos(spent)) + microsDown(usdAttos(attos - spent))).toBe(granted)
        },
      ),
    )
  })
})

describe('parsing and formatting', () => {
  it.each(['', ' 5', '+5', '-5', '1.0', '0x10', '007', '5 ', '1e3', 'abc', '9'.repeat(31)])(
    'rejects %j as an integer',
    (text) => {
      expect(parseInteger(text)).toBeNull()
    },
  )

  it.each(['', '.5', '1.', '-1', '1e3', '01', '1.0000000000000000001', 'NaN', '1,5'])(
    'rejects %j as a decimal',
    (text) => {
      expect(parseDecimal18(text)).toBeNull()
    },
  )

  it('formats ETH exactly: no trailing zero, no exponent, "0" for zero', () => {
    expect(formatEth(wei(8_420_000_000_000_000n))).toBe('0.00842')
    expect(formatEth(wei(0n))).toBe('0')
    expect(formatEth(wei(1n))).toBe('0.000000000000000001')
    expect(formatEth(wei(10n ** 18n))).toBe('1')
  })

  it.each([
    [0n, '0.00'],
    [7n * 10n ** 18n, '7.00'],
    [75n * 10n ** 17n, '7.50'],
    [-125n * 10n ** 15n, '-0.125'],
    [1n, '0.000000000000000001'],
  ])('formats %d atto-dollars with two decimals or more', (attos, text) => {
    expect(formatDollars(attos)).toBe(text)
  })

  it('parses its own output', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 35n }), (value) => {
        expect(parseDecimal18(formatDecimal18(value))).toBe(value)
      }),
    )
  })
})
