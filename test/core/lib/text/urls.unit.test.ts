import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { withoutFinalSlashes } from '../../../../core/lib/text/urls.ts'

describe('a URL without its final slashes', () => {
  it('is what is left when they are taken off one by one', () => {
    const oneByOne = (url: string): string => (url.endsWith('/') ? oneByOne(url.slice(0, -1)) : url)
    const urls = fc.string({ unit: fc.constantFrom('/', '/', 'a', ':', '\n') })
    fc.assert(
      fc.property(urls, (url) => {
        expect(withoutFinalSlashes(url)).toBe(oneByOne(url))
      }),
    )
  })

  it('is there at once, however many slashes a stranger sends before the last character', () => {
    const url = `${'/'.repeat(1_000_000)}x`
    expect(withoutFinalSlashes(url)).toBe(url)
  })
})
