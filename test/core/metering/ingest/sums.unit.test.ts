import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { addDecimal, decimalText, newDecimalSum } from '../../../../core/lib/decimal.ts'
import { multirange, rangesOf } from '../../../../core/metering/ingest/session-store.ts'

const digits = (max: number) => fc.stringMatching(new RegExp(`^[0-9]{1,${max}}$`))
const decimal = fc
  .tuple(fc.boolean(), digits(12), fc.option(digits(30)))
  .map(
    ([negative, whole, fraction]) =>
      `${negative ? '-' : ''}${whole.replace(/^0+(?=\d)/, '')}${fraction === null ? '' : `.${fraction}`}`,
  )

const scale = 10n ** 30n
const scaled = (text: string): bigint => {
  const [whole = '', fraction = ''] = text.replace('-', '').split('.')
  return (
    (text.startsWith('-') ? -1n : 1n) * (BigInt(whole) * scale + BigInt(fraction.padEnd(30, '0')))
  )
}

describe('a sum of decimals', () => {
  it('is exact to thirty places', () => {
    fc.assert(
      fc.property(fc.array(decimal), (texts) => {
        const sum = newDecimalSum()
        for (const text of texts) addDecimal(sum, text)
        expect(scaled(decimalText(sum))).toBe(
          texts.reduce((total, text) => total + scaled(text), 0n),
        )
      }),
    )
  })

  it('stays exact when it outgrows a double', () => {
    const sum = newDecimalSum()
    for (let i = 0; i < 20_000; i++) addDecimal(sum, '999999.999999999')
    expect(decimalText(sum)).toBe('19999999999.99998')
  })
})

describe('a set of sequence numbers', () => {
  it('has each number once, in ranges that do not touch', () => {
    fc.assert(
      fc.property(fc.array(fc.bigInt({ min: 0n, max: 60n })), (numbers) => {
        const ranges = rangesOf(multirange(numbers))
        const listed = ranges.flatMap(([from, to]) =>
          Array.from({ length: Number(to - from) }, (_, i) => from + BigInt(i)),
        )
        expect(listed).toEqual([...new Set(numbers)].toSorted((a, b) => Number(a - b)))
        ranges.forEach(([from], i) => expect(from > (ranges[i - 1]?.[1] ?? -1n)).toBe(true))
      }),
    )
  })
})
