import {
  type Json,
  type JsonObject,
  isNumber,
  isObject,
  readExactJson,
} from '../../../core/lib/exact-json.ts'

/**
 * JSON as Go's encoding/json reads and writes it (docs/signer-answers.md, "Decoding by the
 * signer"): number literals are kept unchanged, names match case-insensitively, and a member may
 * occur several times.
 */

/** The members of one JSON object: the list of values by folded name, in order. */
export type Members = JsonObject

const MAX_DEPTH = 1000

// Upper case first, because Go folds U+017F (long s) to s as well.
const fold = (name: string): string => name.toUpperCase().toLowerCase()

function addOccurrence(members: Map<string, Json>, name: string, value: Json): boolean {
  const key = fold(name.toWellFormed())
  members.set(key, [...occurrences(members, name), value])
  return true
}

function occurrences(members: Members, name: string): readonly Json[] {
  const values = members.get(fold(name.toWellFormed()))
  return isList(values) ? values : []
}

/** Reads a text that is one object, or `null`, which has no members. Throws for other texts. */
export function readMembers(text: string): Members {
  const reading = readExactJson(text, { maxDepth: MAX_DEPTH, addMember: addOccurrence })
  if ('value' in reading) return membersOf(reading.value)
  if (reading.fault === 'too_deep') throw new SyntaxError(`JSON is nested deeper than ${MAX_DEPTH}`)
  throw new SyntaxError(`invalid JSON at offset ${reading.at}`)
}

function membersOf(value: Json): Members {
  if (value === null) return new Map()
  if (!isObject(value)) throw new TypeError(`an object is needed, not ${kindOf(value)}`)
  return value
}

function kindOf(value: Json): string {
  if (value === null) return 'null'
  if (isNumber(value)) return 'number'
  if (isList(value)) return 'array'
  return typeof value
}

/**
 * Go decodes every occurrence in turn: a wrong type anywhere fails the whole, null changes nothing,
 * and the last value is kept.
 */
function decodeLast<T>(members: Members, name: string, decode: (value: Json) => T): T | undefined {
  let last: T | undefined
  for (const value of occurrences(members, name)) {
    if (value !== null) last = decode(value)
  }
  return last
}

const MAX_INT64 = 2n ** 63n - 1n
const MIN_INT64 = -(2n ** 63n)

function toInt64(value: Json): bigint {
  if (!isNumber(value)) throw new TypeError(`an integer is needed, not ${kindOf(value)}`)
  if (!/^-?\d{1,19}$/.test(value.literal)) throw new TypeError(`not an integer: ${value.literal}`)
  const integer = BigInt(value.literal)
  if (integer > MAX_INT64 || integer < MIN_INT64) throw new TypeError('the integer exceeds 64 bits')
  return integer
}

// Go replaces lone surrogates by U+FFFD.
function toText(value: Json): string {
  if (typeof value !== 'string') throw new TypeError(`a string is needed, not ${kindOf(value)}`)
  return value.toWellFormed()
}

// Go's json.Number accepts the literal and the same literal in quotes.
function toNumberLiteral(value: Json): string {
  const literal = isNumber(value) ? value.literal : toText(value)
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(literal)) {
    throw new TypeError('not a number')
  }
  return literal
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

function toBytes(value: Json): Buffer {
  const text = toText(value).replace(/[\r\n]/g, '')
  if (!BASE64.test(text)) throw new TypeError('not base64')
  return Buffer.from(text, 'base64')
}

/** The readers below return undefined for an absent or null member and throw on a wrong type. */
export const int64 = (members: Members, name: string): bigint | undefined =>
  decodeLast(members, name, toInt64)

export const text = (members: Members, name: string): string | undefined =>
  decodeLast(members, name, toText)

export const numberLiteral = (members: Members, name: string): string | undefined =>
  decodeLast(members, name, toNumberLiteral)

export const bytes = (members: Members, name: string): Buffer | undefined =>
  decodeLast(members, name, toBytes)

/** A pointer field: unlike with scalars, a later null removes an earlier object. */
export function object(members: Members, name: string): Members | undefined {
  const values = occurrences(members, name)
  const decoded = values.map(membersOf)
  return values.at(-1) === null ? undefined : decoded.at(-1)
}

/** A value to write; a bigint for an integer that must keep every digit. */
export type JsonOut =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly JsonOut[]
  | { readonly [name: string]: JsonOut }

const ESCAPES: Readonly<Record<string, string>> = {
  '<': '\\u003c',
  '>': '\\u003e',
  '&': '\\u0026',
  '\u2028': '\\u2028',
  '\u2029': '\\u2029',
}

function writeString(text: string): string {
  return JSON.stringify(text).replace(/[<>&\u2028\u2029]/g, (match) => ESCAPES[match] ?? match)
}

/**
 * Writes compact JSON with the bytes that Go's json.Marshal prints, members in insertion order.
 * Floats agree because Go and JavaScript switch to exponents at the same magnitudes.
 */
export function writeJson(value: JsonOut): string {
  if (typeof value === 'string') return writeString(value)
  if (value === null || typeof value !== 'object') return String(value)
  if (isList(value)) return `[${value.map(writeJson).join(',')}]`
  const members = Object.entries(value)
  return `{${members.map(([name, item]) => `${writeString(name)}:${writeJson(item)}`).join(',')}}`
}

function isList<T>(value: T | readonly T[] | undefined): value is readonly T[] {
  return Array.isArray(value)
}
