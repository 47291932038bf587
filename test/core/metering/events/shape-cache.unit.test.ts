import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type JsonMembers,
  type JsonValue,
  hasMembers,
  isObject,
  readExactJson,
} from '../../../../core/lib/exact-json.ts'
import { createShapeCache } from '../../../../core/metering/events/shape-cache.ts'

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

/** Whether the members of a text, read by its shape, equal those read by `readExactJson`. */
function isRight(members: JsonMembers | null, text: string): boolean {
  const read = readExactJson(text)
  return members !== null && 'value' in read && isObject(read.value) && isSame(members, read.value)
}

function isSame(quick: JsonValue | undefined, full: JsonValue): boolean {
  if (!isObject(full)) return isDeepStrictEqual(quick, full)
  return hasMembers(quick) && [...full].every(([of, value]) => isSame(quick.get(of), value))
}

function learned(text: string) {
  const shapes = createShapeCache()
  const read = readExactJson(text)
  if ('value' in read && isObject(read.value)) shapes.learn(read.value)
  return shapes
}

describe('text of a known shape', () => {
  it('reads like the full parser', () => {
    fc.assert(
      fc.property(event, (text) => {
        expect(isRight(learned(text).read(Buffer.from(text)), text)).toBe(true)
      }),
      { numRuns: 500 },
    )
  })

  it('is not recognised with a character missing, added or changed', () => {
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

  it('stays known after others are learned; a repeated member is never learned', () => {
    const shapes = learned('{"a":1}')
    for (const text of ['{"b":{"c":1}}', '{"d":[]}']) {
      const read = readExactJson(text)
      if ('value' in read && isObject(read.value)) shapes.learn(read.value)
    }
    expect(shapes.read(Buffer.from('{"a":2}'))?.get('a')).toEqual({ literal: '2' })
    expect(shapes.read(Buffer.from('{"b":{"c":3}}'))?.get('b')).toBeDefined()
    expect(shapes.read(Buffer.from('{"a":1,"a":2}'))).toBeNull()
  })
})

describe('bytes of a known shape', () => {
  it('are not read if they are not UTF-8', () => {
    const bytes = Buffer.from('{"a":"Zoë"}')
    expect(learned('{"a":1}').read(bytes)?.get('a')).toBe('Zoë')
    expect(
      learned('{"a":1}').read(
        Buffer.from(bytes.subarray(0, 9).toString('latin1') + '"}', 'latin1'),
      ),
    ).toBeNull()
  })

  it('are not read if they end too soon, nor beyond their end', () => {
    const whole = Buffer.from('{"a":"text","b":12.5,"c":{"d":null,"e":true}}{"a":"text"')
    const [text, shapes] = [
      '{"a":"text","b":12.5,"c":{"d":null,"e":true}}',
      learned('{"a":"","b":0,"c":{"d":0,"e":0}}'),
    ]
    for (let end = 0; end < text.length; end++)
      expect(shapes.read(whole.subarray(0, end))).toBeNull()
    expect(isRight(shapes.read(whole.subarray(0, text.length)), text)).toBe(true)
  })
})
