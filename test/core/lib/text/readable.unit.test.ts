import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isReadable, toReadable, unreadableCharacter } from '../../../../core/lib/text/readable.ts'

describe('unreadable text', () => {
  it.each([
    ['\0', 'a NUL character (U+0000)'],
    ['\u0007', 'a control character (U+0007)'],
    ['\t', 'a control character (U+0009)'],
    ['\u007f', 'a control character (U+007F)'],
    ['\u009b', 'a control character (U+009B)'],
    ['\n', 'a line break (U+000A)'],
    ['\r', 'a line break (U+000D)'],
    ['\u0085', 'a line break (U+0085)'],
    ['\u2028', 'a line break (U+2028)'],
    ['\ud800', 'half of a surrogate pair (U+D800)'],
    ['\udfff', 'half of a surrogate pair (U+DFFF)'],
    ['\u202e', 'a bidirectional formatting character (U+202E)'],
    ['\u2066', 'a bidirectional formatting character (U+2066)'],
    ['\u061c', 'a bidirectional formatting character (U+061C)'],
  ])('is reported by kind and code point: %j', (character, name) => {
    expect(isReadable(`a${character}b`)).toBe(false)
    expect(unreadableCharacter(`a${character}b\0`)).toBe(name)
  })

  it.each([
    '',
    'a b',
    'ä',
    '😀',
    '日本語',
    'עברית',
    "' or 1=1 --",
    '../..',
    '١٢٣',
    '\u00a0',
    '\ufffd',
  ])('excludes %j', (text) => {
    expect([isReadable(text), unreadableCharacter(text), toReadable(text)]).toEqual([
      true,
      null,
      text,
    ])
  })

  it('becomes readable by toReadable', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(isReadable(toReadable(text))).toBe(true)
        expect(unreadableCharacter(text) === null).toBe(isReadable(text))
      }),
    )
  })
})
