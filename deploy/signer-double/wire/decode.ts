import type { JsonValue } from './json-reader.ts'

/** The members of one JSON object as Go would match them to a struct's fields. */
export type Members = ReadonlyMap<string, readonly JsonValue[]>

// Upper case first, because Go folds U+017F (long s) to s as well.
const fold = (name: string): string => name.toUpperCase().toLowerCase()

/** Groups members case-insensitively, in order; `null` reads as an object without members. */
export function membersOf(value: JsonValue): Members {
  const members = new Map<string, JsonValue[]>()
  if (value.kind === 'null') return members
  if (value.kind !== 'object') throw new TypeError(`an object is needed, not ${value.kind}`)
  for (const [name, item] of value.members) {
    const same = members.get(fold(name)) ?? []
    members.set(fold(name), [...same, item])
  }
  return members
}

/**
 * Go decodes every occurrence in turn: a wrong type anywhere fails the whole, null changes
 * nothing, and the last value stays.
 */
function decodeLast<T>(
  members: Members,
  name: string,
  decode: (value: JsonValue) => T,
): T | undefined {
  let last: T | undefined
  for (const value of members.get(fold(name)) ?? []) {
    if (value.kind !== 'null') last = decode(value)
  }
  return last
}

const MAX_INT64 = 2n ** 63n - 1n
const MIN_INT64 = -(2n ** 63n)

function toInt64(value: JsonValue): bigint {
  if (value.kind !== 'number') throw new TypeError(`an integer is needed, not ${value.kind}`)
  if (!/^-?\d{1,19}$/.test(value.literal)) throw new TypeError(`not an integer: ${value.literal}`)
  const integer = BigInt(value.literal)
  if (integer > MAX_INT64 || integer < MIN_INT64) throw new TypeError('the integer exceeds 64 bits')
  return integer
}

function toText(value: JsonValue): string {
  if (value.kind !== 'string') throw new TypeError(`a string is needed, not ${value.kind}`)
  return value.value
}

// Go's json.Number accepts the literal and the same literal in quotes.
function toNumberLiteral(value: JsonValue): string {
  const literal = value.kind === 'number' ? value.literal : toText(value)
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(literal)) {
    throw new TypeError('not a number')
  }
  return literal
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

function toBytes(value: JsonValue): Buffer {
  const text = toText(value).replace(/[\r\n]/g, '')
  if (!BASE64.test(text)) throw new TypeError('not base64')
  return Buffer.from(text, 'base64')
}

/** The readers below answer undefined for an absent or null member and throw on a wrong type. */
export const int64 = (members: Members, name: string): bigint | undefined =>
  decodeLast(members, name, toInt64)

export const text = (members: Members, name: string): string | undefined =>
  decodeLast(members, name, toText)

export const numberLiteral = (members: Members, name: string): string | undefined =>
  decodeLast(members, name, toNumberLiteral)

export const bytes = (members: Members, name: string): Buffer | undefined =>
  decodeLast(members, name, toBytes)

/** A pointer field: unlike scalars, a later null takes an earlier object away again. */
export function object(members: Members, name: string): Members | undefined {
  const values = members.get(fold(name)) ?? []
  const decoded = values.map(membersOf)
  return values.at(-1)?.kind === 'null' ? undefined : decoded.at(-1)
}
