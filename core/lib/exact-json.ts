/**
 * An exact reader for one JSON text (RFC 8259). Numbers stay text, because JSON.parse turns a
 * uint64 or a fraction into a float. The caller decides about a repeated member. Nesting is
 * bounded.
 */
export type Json = string | boolean | null | JsonNumber | readonly Json[] | JsonObject
export interface JsonNumber {
  readonly literal: string
}
export type JsonObject = ReadonlyMap<string, Json>

export const isObject = (value: Json | undefined): value is JsonObject => value instanceof Map
export const isNumber = (value: Json | undefined): value is JsonNumber =>
  typeof value === 'object' && value !== null && 'literal' in value

export type JsonFault = 'not_json' | 'too_deep' | 'duplicate_member'
/** The value, or the fault and its character offset. */
export type JsonReading =
  { readonly value: Json } | { readonly fault: JsonFault; readonly at: number }

export interface JsonRules {
  /** Maximum nesting of objects and arrays. Default is 32. */
  readonly maxDepth?: number
  /**
   * Stores a member in the object being read. Returns false to reject the text
   * (`duplicate_member`). By default a repeated member is rejected. A reader that keeps repetitions
   * stores the values of each name as an array.
   */
  readonly addMember?: (members: Map<string, Json>, name: string, value: Json) => boolean
}

function addNewMember(members: Map<string, Json>, name: string, value: Json): boolean {
  const count = members.size
  members.set(name, value)
  return members.size > count
}

interface Cursor extends Required<JsonRules> {
  readonly text: string
  at: number
  /**
   * Whether the text has no escape and no control character, so that strings need no check of their
   * own.
   */
  readonly plain: boolean
}

// Thrown by the reader functions, and caught only in readExactJson.
interface Fault {
  readonly fault: JsonFault
  readonly at: number
}

function fail(cursor: Cursor, fault: JsonFault = 'not_json'): never {
  const thrown: Fault = { fault, at: cursor.at }
  throw thrown
}

const isFault = (thrown: unknown): thrown is Fault =>
  typeof thrown === 'object' && thrown !== null && 'fault' in thrown

// Control characters and the backslash. One character class is the fastest search.
const unusual = /[^ -[\]-~\u00a0-\uffff]/

/** Reads the whole text as one value. A lone surrogate escape stays in its string. Never throws. */
export function readExactJson(
  text: string,
  { maxDepth = 32, addMember = addNewMember }: JsonRules = {},
): JsonReading {
  const cursor: Cursor = { text, at: 0, plain: !unusual.test(text), maxDepth, addMember }
  try {
    const value = readValue(cursor, 0)
    skipSpace(cursor)
    if (cursor.at < text.length) fail(cursor)
    return { value }
  } catch (thrown) {
    if (isFault(thrown)) return thrown
    throw thrown
  }
}

function skipSpace(cursor: Cursor): void {
  for (;;) {
    const code = cursor.text.charCodeAt(cursor.at)
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return
    cursor.at += 1
  }
}

function readValue(cursor: Cursor, depth: number): Json {
  skipSpace(cursor)
  const first = cursor.text[cursor.at]
  if (first === '"') return readString(cursor)
  if (first === '{') return readObject(cursor, depth + 1)
  if (first === '[') return readArray(cursor, depth + 1)
  if (first === 't') return readWord(cursor, 'true', true)
  if (first === 'f') return readWord(cursor, 'false', false)
  if (first === 'n') return readWord(cursor, 'null', null)
  return readNumber(cursor)
}

function readWord<T extends boolean | null>(cursor: Cursor, word: string, value: T): T {
  if (!cursor.text.startsWith(word, cursor.at)) fail(cursor)
  cursor.at += word.length
  return value
}

const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y

function readNumber(cursor: Cursor): JsonNumber {
  number.lastIndex = cursor.at
  const literal = number.exec(cursor.text)?.[0] ?? fail(cursor)
  cursor.at += literal.length
  return { literal }
}

function readString(cursor: Cursor): string {
  const start = cursor.at
  const end = closingQuote(cursor)
  cursor.at = end + 1
  if (cursor.plain) return cursor.text.slice(start + 1, end)
  const literal = cursor.text.slice(start, end + 1)
  if (!unusual.test(literal)) return literal.slice(1, -1)
  try {
    return String(JSON.parse(literal))
  } catch {
    return fail(cursor)
  }
}

function closingQuote(cursor: Cursor): number {
  let end = cursor.text.indexOf('"', cursor.at + 1)
  while (end > 0 && !cursor.plain && isEscaped(cursor.text, end))
    end = cursor.text.indexOf('"', end + 1)
  return end > 0 ? end : fail(cursor)
}

function isEscaped(text: string, at: number): boolean {
  let start = at
  while (text[start - 1] === '\\') start -= 1
  return (at - start) % 2 === 1
}

function readObject(cursor: Cursor, depth: number): JsonObject {
  if (depth > cursor.maxDepth) fail(cursor, 'too_deep')
  const members = new Map<string, Json>()
  if (opensEmpty(cursor, '}')) return members
  do {
    skipSpace(cursor)
    if (cursor.text[cursor.at] !== '"') fail(cursor)
    const name = readString(cursor)
    skipSpace(cursor)
    if (cursor.text[cursor.at] !== ':') fail(cursor)
    cursor.at += 1
    if (!cursor.addMember(members, name, readValue(cursor, depth))) fail(cursor, 'duplicate_member')
  } while (continues(cursor, '}'))
  return members
}

function readArray(cursor: Cursor, depth: number): readonly Json[] {
  if (depth > cursor.maxDepth) fail(cursor, 'too_deep')
  const items: Json[] = []
  if (opensEmpty(cursor, ']')) return items
  do items.push(readValue(cursor, depth))
  while (continues(cursor, ']'))
  return items
}

function opensEmpty(cursor: Cursor, close: string): boolean {
  cursor.at += 1
  skipSpace(cursor)
  if (cursor.text[cursor.at] !== close) return false
  cursor.at += 1
  return true
}

function continues(cursor: Cursor, close: string): boolean {
  skipSpace(cursor)
  const next = cursor.text[cursor.at]
  if (next !== ',' && next !== close) fail(cursor)
  cursor.at += 1
  return next === ','
}
