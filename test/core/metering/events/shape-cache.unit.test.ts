import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decimalText, instantOf, integerText } from '../../../../core/metering/events/fields.ts'
import {
  type JsonMembers,
  type JsonValue,
  hasMembers,
  isObject,
  readExactJson,
} from '../../../../core/lib/exact-json.ts'
import { createLayouts } from '../../../../core/metering/events/shape-cache.ts'

const name = fc.stringMatching(/^[a-z_ é]{1,8}$/)
const number = fc.constantFrom(
  '0',
  '-0',
  '7',
  '-12.50',
  '18446744073709551616',
  '0.000001',
  '123.0',
)
const scalar = fc.oneof(
  number,
  fc.constantFrom('null', 'true', 'false', '""', '"a:b,c}"', '"Zoë"'),
  fc.stringMatching(/^[ !#-[\]-~]{0,12}$/).map((text) => `"${text}"`),
)
const object = (value: fc.Arbitrary<string>) =>
  fc
    .uniqueArray(name, { minLength: 1, maxLength: 6 })
    .chain((names) =>
      fc
        .tuple(...names.map(() => value))
        .map((values) => `{${names.map((of, i) => `"${of}":${values[i]}`).join(',')}}`),
    )
const event = object(
  fc.oneof({ weight: 4, arbitrary: scalar }, { weight: 1, arbitrary: object(scalar) }),
)

/** Is a text, read by its layout, what it is when read in full? */
function isRight(members: JsonMembers | null, text: string): boolean {
  const read = readExactJson(text)
  return members !== null && 'value' in read && isObject(read.value) && isSame(members, read.value)
}

function isSame(quick: JsonValue | undefined, full: JsonValue): boolean {
  if (!isObject(full)) return isDeepStrictEqual(quick, full)
  return hasMembers(quick) && [...full].every(([of, value]) => isSame(quick.get(of), value))
}

function learned(text: string) {
  const layouts = createLayouts()
  const read = readExactJson(text)
  if ('value' in read && isObject(read.value)) layouts.learn(read.value)
  return layouts
}

describe('a text of a known layout', () => {
  it('is read as it would be in full', () => {
    fc.assert(
      fc.property(event, (text) => {
        expect(isRight(learned(text).read(Buffer.from(text)), text)).toBe(true)
      }),
      { numRuns: 500 },
    )
  })

  it('is not taken for one when a character is too many, too few or another', () => {
    const spoiled = fc
      .record({
        text: event,
        at: fc.nat(200),
        gone: fc.nat(2),
        put: fc.stringMatching(/^[-"{}[\],:.0-9a-z \n\\\u0085é]{0,2}$/),
      })
      .map(({ text, at, gone, put }) => {
        const place = at % text.length
        return { text, other: text.slice(0, place) + put + text.slice(place + gone) }
      })
    fc.assert(
      fc.property(spoiled, ({ text, other }) => {
        const members = learned(text).read(Buffer.from(other))
        expect(members === null || isRight(members, other)).toBe(true)
      }),
      { numRuns: 5_000 },
    )
  })

  it('is kept among others, and a repeated member is never learned', () => {
    const layouts = learned('{"a":1}')
    for (const text of ['{"b":{"c":1}}', '{"d":[]}']) {
      const read = readExactJson(text)
      if ('value' in read && isObject(read.value)) layouts.learn(read.value)
    }
    expect(layouts.read(Buffer.from('{"a":2}'))?.get('a')).toEqual({ literal: '2' })
    expect(layouts.read(Buffer.from('{"b":{"c":3}}'))?.get('b')).toBeDefined()
    expect(layouts.read(Buffer.from('{"a":1,"a":2}'))).toBeNull()
  })
})

describe('bytes of a known layout', () => {
  it('that are not UTF-8 are left to who can say so', () => {
    const bytes = Buffer.from('{"a":"Zoë"}')
    expect(learned('{"a":1}').read(bytes)?.get('a')).toBe('Zoë')
    expect(
      learned('{"a":1}').read(
        Buffer.from(bytes.subarray(0, 9).toString('latin1') + '"}', 'latin1'),
      ),
    ).toBeNull()
  })

  it('that end too soon are not read, and nothing behind them is', () => {
    const whole = Buffer.from('{"a":"text","b":12.5,"c":{"d":null,"e":true}}{"a":"text"')
    const [text, layouts] = [
      '{"a":"text","b":12.5,"c":{"d":null,"e":true}}',
      learned('{"a":"","b":0,"c":{"d":0,"e":0}}'),
    ]
    for (let end = 0; end < text.length; end++)
      expect(layouts.read(whole.subarray(0, end))).toBeNull()
    expect(isRight(layouts.read(whole.subarray(0, text.length)), text)).toBe(true)
  })
})

describe('an instant of the minute that was read last', () => {
  it('is what it would be by itself', () => {
    const fraction = fc.stringMatching(/^(\.[0-9]{0,12})?$/)
    const given = fc.record({
      second: fc.integer({ min: 0, max: 61 }),
      fraction,
      zone: fc.constantFrom('Z', 'z', '+00:00', ''),
    })
    fc.assert(
      fc.property(given, ({ second, fraction: parts, zone }) => {
        const text = `2026-03-31T23:59:${String(second).padStart(2, '0')}${parts}${zone}`
        instantOf('2020-01-01T00:00:00Z')
        const alone = instantOf(text)
        instantOf('2026-03-31T23:59:00Z')
        expect(instantOf(text)).toEqual(alone)
      }),
      { numRuns: 2_000 },
    )
  })
})

describe('numbers of an event', () => {
  const nearly = fc.oneof(
    fc.stringMatching(/^[-+.0-9eE]{0,14}$/),
    fc.stringMatching(/^-?[0-9]{1,12}(\.[0-9]{1,12})?$/),
    fc.string({ maxLength: 5 }),
  )

  it('are integers by the grammar of JSON, up to 40 characters', () => {
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

  /** What a text stands for: null for no number, "kept" for one that is taken as it stands, else about its value. */
  function meaning(text: string): string | number | null {
    if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) return null
    return /^\d{1,9}(\.\d{1,12})?$/.test(text) ? text : Number(text)
  }

  it('are decimals by the grammar of JSON, and keep each digit as it stands', () => {
    fc.assert(
      fc.property(nearly, (text) => {
        const [read, meant] = [decimalText(text), meaning(text)]
        // Of a number beyond the bounds nothing is left.
        fc.pre(read !== null || typeof meant !== 'number')
        expect(
          typeof meant === 'number' ? Math.abs(Number(read) - meant) < 1e-6 : read === meant,
        ).toBe(true)
      }),
      { numRuns: 3_000 },
    )
  })
})
