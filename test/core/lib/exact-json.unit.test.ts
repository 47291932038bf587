import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Json,
  type JsonReading,
  isNumber,
  isObject,
  readExactJson,
} from '../../../core/lib/exact-json.ts'

const faultOf = (reading: JsonReading): string | null => ('fault' in reading ? reading.fault : null)

/** The value that JSON.parse would return if it lost nothing. */
function plain(value: Json): unknown {
  if (isObject(value)) {
    return Object.fromEntries([...value].map(([name, member]) => [name, plain(member)]))
  }
  if (isNumber(value)) return Number(value.literal)
  return Array.isArray(value) ? value.map(plain) : value
}

function parsed(text: string): { readonly value: unknown } | null {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return null
  }
}

describe('readExactJson', () => {
  it('reads the same values as JSON.parse', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom('', ' ', '\n\t'), (text, space) => {
        const reading = readExactJson(`${space}${text}${space}`)
        expect('value' in reading && plain(reading.value)).toEqual(JSON.parse(text))
      }),
    )
  })

  it('rejects exactly the texts that JSON.parse rejects', () => {
    const nearly = fc
      .record({
        text: fc.json({ maxDepth: 3 }),
        at: fc.nat(60),
        gone: fc.nat(2),
        put: fc.stringMatching(/^[-"{}[\],:.0-9a-z \n\t\\\u0085]{0,2}$/),
      })
      .map(({ text, at, gone, put }) => text.slice(0, at) + put + text.slice(at + gone))
    fc.assert(
      fc.property(nearly, (text) => {
        const [fault, expected] = [faultOf(readExactJson(text)), parsed(text)]
        fc.pre(fault !== 'duplicate_member')
        expect(fault).toBe(expected === null ? 'not_json' : null)
      }),
      { numRuns: 2_000 },
    )
  })

  it('keeps each number as it was written', () => {
    for (const literal of ['18446744073709551616', '-0', '1.0', '2e2', '0.10000000000000000001'])
      expect(readExactJson(literal)).toEqual({ value: { literal } })
  })

  it('rejects a repeated member, even an escaped one, and returns its offset', () => {
    expect(readExactJson('{"a":1,"a":2}')).toEqual({ fault: 'duplicate_member', at: 12 })
    expect(faultOf(readExactJson('{"a":{"b":1,"\\u0062":2}}'))).toBe('duplicate_member')
  })

  it('passes repeated members to a caller who keeps them', () => {
    const keepAll = (members: Map<string, Json>, name: string, value: Json): boolean => {
      const earlier = members.get(name)
      members.set(name, Array.isArray(earlier) ? [...earlier, value] : [value])
      return true
    }
    const reading = readExactJson('{"a":1,"b":null,"a":{"a":2}}', { addMember: keepAll })
    expect('value' in reading && reading.value).toEqual(
      new Map<string, Json>([
        ['a', [{ literal: '1' }, new Map([['a', [{ literal: '2' }]]])]],
        ['b', [null]],
      ]),
    )
  })

  it('rejects text nested deeper than the limit', () => {
    const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth)
    expect([32, 33].map((depth) => faultOf(readExactJson(nested(depth))))).toEqual([
      null,
      'too_deep',
    ])
    expect(faultOf(readExactJson(nested(1_000), { maxDepth: 1_000 }))).toBeNull()
    expect(faultOf(readExactJson(nested(1_001), { maxDepth: 1_000 }))).toBe('too_deep')
  })
})
