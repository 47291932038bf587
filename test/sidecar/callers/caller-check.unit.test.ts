import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCallerCheck, maxSecretBytes } from '../../../sidecar/callers/callers.ts'

const long = 'whsec_a-secret-that-is-long'
const short = 'whsec_short'
const bearer = (text: string) => ({ authorization: `Bearer ${text}` })

describe('createCallerCheck', () => {
  it('refuses a prefix of a secret right after the whole secret', () => {
    const isKnown = createCallerCheck([long])
    expect(isKnown(bearer(long))).toBe(true)
    expect(isKnown(bearer(long.slice(0, -1)))).toBe(false)
    expect(isKnown(bearer(long.slice(0, 1)))).toBe(false)
  })

  it('accepts a short secret after a longer text', () => {
    const isKnown = createCallerCheck([short])
    expect(isKnown(bearer(long))).toBe(false)
    expect(isKnown(bearer(short))).toBe(true)
  })

  it('reads the scheme in any case, and requires it', () => {
    const isKnown = createCallerCheck([short])
    for (const scheme of ['Bearer', 'bearer', 'BEARER'])
      expect(isKnown({ authorization: `${scheme} ${short}` })).toBe(true)
    for (const text of [short, `Bearer${short}`, `Basic ${short}`])
      expect(isKnown({ authorization: text })).toBe(false)
  })

  it('accepts only the secrets, independent of earlier requests', () => {
    const isKnown = createCallerCheck([long, short])
    const similar = fc
      .tuple(fc.constantFrom(long, short, long.repeat(9)), fc.nat(maxSecretBytes))
      .map(([text, end]) => text.slice(0, end))
    fc.assert(
      fc.property(fc.array(fc.oneof(similar, fc.string()), { maxLength: 20 }), (texts) => {
        for (const text of texts)
          expect(isKnown(bearer(text))).toBe([long, short].includes(text.trim()))
      }),
    )
  })
})
