import * as fc from 'fast-check'

/** Text that is known to break parsers, databases and headers. */
export const hostileText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    ' ',
    '\u0000',
    '\u0000a',
    '\ud800',
    '\udfff\ud800',
    '🤡',
    'ﷺ',
    '\u2028',
    '\r\n',
    '"',
    '\\',
    "'; drop table tickets; --",
    '{}',
    '__proto__',
    'constructor',
    'toString',
    'null',
    'NaN',
    '-1',
    '0x10',
    '1e5',
    '9'.repeat(400),
    'a'.repeat(5_000),
    '%00',
    '../../..',
    '2026-02-30T00:00:00Z',
    '2026-09-14T10:15:30.1234567890123Z',
    '9999-12-31T23:59:59Z',
    '0000-00-00T00:00:00Z',
  ),
)

// Placeholder for JSON numbers that exceed a JavaScript number, and for invalid JSON.
const hole = '<raw>'
const literals = [
  '9007199254740993',
  '18446744073709551616',
  '-1',
  '-0',
  '1e400',
  '-1e-400',
  '0.1e-30',
  '00',
  '1.',
  '.5',
  'NaN',
  'Infinity',
  `1${'0'.repeat(500)}`,
  `${'['.repeat(200)}${']'.repeat(200)}`,
  '{"a":1,"a":2}',
  '"\\ud800"',
  '"\\u0000"',
  '',
  '}',
  '"',
] as const

const hostileValue = fc.oneof(
  hostileText,
  fc.constant(hole),
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(null, true, [], {}, [[]], 2 ** 53, -1, 0.1, 1e-9, [null, ''], {
    a: { b: [] },
  }),
)

interface Change {
  readonly at: readonly string[]
  readonly value: unknown
}

/**
 * Returns `template` as text with up to four members replaced, removed or added. The text may be
 * invalid JSON.
 */
export function spoiltJson(template: object): fc.Arbitrary<string> {
  const change: fc.Arbitrary<Change> = fc.record({
    at: fc.oneof(
      fc.constantFrom(...pathsOf(template, [])),
      fc.tuple(fc.constantFrom('data', 'state', 'headers', '__proto__', 'x'), hostileText),
    ),
    value: fc.oneof(hostileValue, fc.constant(undefined)),
  })
  return fc
    .record({
      changes: fc.array(change, { maxLength: 4 }),
      literal: fc.constantFrom(...literals),
      cut: fc.oneof(
        { weight: 11, arbitrary: fc.constant(0) },
        { weight: 1, arbitrary: fc.integer({ min: 1, max: 400 }) },
      ),
    })
    .map(({ changes, literal, cut }) => {
      const text = JSON.stringify(changes.reduce<unknown>(replaced, template)).replaceAll(
        JSON.stringify(hole),
        literal,
      )
      return text.slice(0, text.length - cut)
    })
}

function pathsOf(value: unknown, path: readonly string[]): string[][] {
  if (!isObject(value)) return []
  return Object.entries(value).flatMap(([name, member]) => [
    [...path, name],
    ...pathsOf(member, [...path, name]),
  ])
}

function replaced(value: unknown, { at: [name, ...rest], value: by }: Change): unknown {
  if (name === undefined) return by
  const members = new Map(isObject(value) ? Object.entries(value) : [])
  members.set(name, replaced(members.get(name), { at: rest, value: by }))
  return Object.fromEntries(members)
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
