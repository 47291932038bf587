import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { withoutFinalSlashes } from '../../../../core/lib/text/urls.ts'

describe('withoutFinalSlashes', () => {
  it('removes all slashes at the end', () => {
    const oneByOne = (url: string): string => (url.endsWith('/') ? oneByOne(url.slice(0, -1)) : url)
    const urls = fc.string({ unit: fc.constantFrom('/', '/', 'a', ':', '\n') })
    fc.assert(
      fc.property(urls, (url) => {
        expect(withoutFinalSlashes(url)).toBe(oneByOne(url))
      }),
    )
  })

  it('takes linear time for many slashes before another character', () => {
    const url = `${'/'.repeat(1_000_000)}x`
    expect(withoutFinalSlashes(url)).toBe(url)
  })
})
