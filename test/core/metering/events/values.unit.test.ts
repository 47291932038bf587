import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decimalText, integerText } from '../../../../core/metering/events/values.ts'

describe('numbers of an event', () => {
  const nearly = fc.oneof(
    fc.stringMatching(/^[-+.0-9eE]{0,14}$/),
    fc.stringMatching(/^-?[0-9]{1,12}(\.[0-9]{1,12})?$/),
    fc.string({ maxLength: 5 }),
  )

  it('accept integers of the JSON grammar, up to 40 characters', () => {
    fc.assert(
      fc.property(nearly, (text) => {
        expect(integerText(text)).toBe(/^-?(?:0|[1-9]\d*)$/.test(text) ? text : null)
      }),
      { numRuns: 3_000 },
    )
    expect([integerText('1'.repeat(40)), integerText('1'.repeat(41))]).toEqual([
      '1'.repeat(40),
      null,
    ])
  })

  /**
   * Plain version: null for text that is not a number, the same text for a short decimal, else its
   * approximate value.
   */
  function meaning(text: string): string | number | null {
    if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) return null
    return /^\d{1,9}(\.\d{1,12})?$/.test(text) ? text : Number(text)
  }

  it('accept decimals of the JSON grammar, and keep each digit', () => {
    fc.assert(
      fc.property(nearly, (text) => {
        const [read, meant] = [decimalText(text), meaning(text)]
        // A number beyond the bounds is rejected.
        fc.pre(read !== null || typeof meant !== 'number')
        expect(
          typeof meant === 'number' ? Math.abs(Number(read) - meant) < 1e-6 : read === meant,
        ).toBe(true)
      }),
      { numRuns: 3_000 },
    )
  })
})
