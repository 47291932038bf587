import { describe, expect, it } from 'vitest'
import { nameProblem } from '../../../../core/lib/text/names.ts'

describe('nameProblem', () => {
  it.each([
    'ada',
    '7',
    'auth0|65f0a1b2c3d4e5f6a7b8c9d0',
    'ada@example.com',
    'Škoda – Größe 1',
    'アプリ',
    'مثال',
    'नमस्ते',
    '😀 1',
    'x'.repeat(100),
    'Registered nurses with care',
    'Register with us',
    'An application without a name',
  ])('accepts %s', (name) => {
    expect(nameProblem(name)).toBeNull()
  })

  it.each([
    ['a zero-width space', 'Pay\u200bPal', 'U+200B'],
    ['a zero-width joiner', 'a\u200db', 'U+200D'],
    ['a soft hyphen', 'a\u00adb', 'U+00AD'],
    ['a word joiner', 'a\u2060b', 'U+2060'],
    ['a byte order mark', '\ufeffa', 'U+FEFF'],
    ['a variation selector', 'a\ufe0f', 'U+FE0F'],
    ['a Hangul filler', 'a\u3164', 'U+3164'],
    ['a tag', 'a\u{e0061}', 'U+E0061'],
  ])('rejects %s', (_what, name, code) => {
    expect(nameProblem(name)).toBe(`must not contain an invisible character (${code})`)
  })

  it.each(['😀', '--', '%', '{}', '…', '\u2800', '\u0301'])(
    'rejects %j without a letter or digit',
    (name) => {
      expect(nameProblem(name)).toBe('must have a letter or a digit')
    },
  )

  it.each([
    'Bank (registered with Acme)',
    'REGISTERED WITH',
    'registered-with',
    'registered.with.acme',
    're gis te red w ith',
    'Ｒｅｇｉｓｔｅｒｅｄ　ｗｉｔｈ',
    '𝓇𝑒𝑔𝒾𝓈𝓉𝑒𝓇𝑒𝒹 𝔴𝔦𝔱𝔥',
    'Bank ⓡⓔⓖⓘⓢⓣⓔⓡⓔⓓ ⓦⓘⓣⓗ',
    'Bank 🅁🄴🄶🄸🅂🅃🄴🅁🄴🄳 🅆🄸🅃🄷',
    'Bank 🅡🅔🅖🅘🅢🅣🅔🅡🅔🅓 🅦🅘🅣🅗',
    'Bank 🆁🅴🅶🅸🆂🆃🅴🆁🅴🅳 🆆🅸🆃🅷',
    'Bank 🇷🇪🇬🇮🇸🇹🇪🇷🇪🇩 🇼🇮🇹🇭',
    'rеgіѕtеrеd wіth',
    'ᴙ registᴇred with',
    'ʀᴇɢɪꜱᴛᴇʀᴇᴅ ᴡɪᴛʜ',
    'ЕЕ REGISΤΕRΕD WITΗ',
    'Ꭱegistered with',
    'régïştéred ŵith',
    'reg1stered w1th',
    'reglstered wlth',
    'registered vvith',
    'regiſtered with',
    'яegistered with',
    'ᴙegistered with',
    'rɘgistered with',
    'regıs†ered with',
    'ᖇegistered with',
    'registered ᗯith',
    'registered ꮤith',
    'registered Ꮤith',
  ])('rejects a name that reads like our own words: %s', (name) => {
    expect(nameProblem(name)).toContain('registered with')
  })
})
