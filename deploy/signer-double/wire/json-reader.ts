/**
 * A JSON reader as strict as Go's encoding/json, which keeps number literals as written:
 * JSON.parse takes `200.0` and `2e2` for 200 and loses digits above 2^53, and the signer does
 * neither (signer contract 2.3).
 */
export type JsonValue =
  | Readonly<{ kind: 'null' }>
  | Readonly<{ kind: 'boolean'; value: boolean }>
  | Readonly<{ kind: 'number'; literal: string }>
  | Readonly<{ kind: 'string'; value: string }>
  | Readonly<{ kind: 'array'; items: readonly JsonValue[] }>
  | Readonly<{ kind: 'object'; members: readonly JsonMember[] }>

/** Members stay in order and repeat when the text repeats them. */
export type JsonMember = readonly [name: string, value: JsonValue]

const MAX_DEPTH = 1000
const SPACE = /[ \t\r\n]*/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const STRING = /"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
const BELOW_SPACE = /[^ -\uffff]/
const WORD = /true|false|null/y

type Cursor = { readonly text: string; at: number }

function take(cursor: Cursor, pattern: RegExp): string | undefined {
  pattern.lastIndex = cursor.at
  const found = pattern.exec(cursor.text)?.[0]
  if (found !== undefined) cursor.at += found.length
  return found
}

function peek(cursor: Cursor): string {
  take(cursor, SPACE)
  return cursor.text.charAt(cursor.at)
}

function fail(cursor: Cursor): never {
  throw new SyntaxError(`invalid JSON at offset ${cursor.at}`)
}

function expect(cursor: Cursor, character: string): void {
  if (peek(cursor) !== character) fail(cursor)
  cursor.at += 1
}

// The literal has been checked, so JSON.parse only resolves its escapes; Go replaces surrogates
// without a partner by U+FFFD.
function readString(cursor: Cursor): string {
  peek(cursor)
  const literal = take(cursor, STRING) ?? fail(cursor)
  if (BELOW_SPACE.test(literal)) fail(cursor)
  const value: unknown = JSON.parse(literal)
  return String(value).toWellFormed()
}

/** Reads `open item, item close` and calls `readItem` once for each item. */
function readSequence(cursor: Cursor, close: string, readItem: () => void): void {
  cursor.at += 1
  if (peek(cursor) === close) {
    cursor.at += 1
    return
  }
  for (;;) {
    readItem()
    if (peek(cursor) === close) break
    expect(cursor, ',')
  }
  cursor.at += 1
}

function readArray(cursor: Cursor, depth: number): JsonValue {
  const items: JsonValue[] = []
  readSequence(cursor, ']', () => items.push(readValue(cursor, depth + 1)))
  return { kind: 'array', items }
}

function readObject(cursor: Cursor, depth: number): JsonValue {
  const members: JsonMember[] = []
  readSequence(cursor, '}', () => {
    const name = readString(cursor)
    expect(cursor, ':')
    members.push([name, readValue(cursor, depth + 1)])
  })
  return { kind: 'object', members }
}

function readValue(cursor: Cursor, depth: number): JsonValue {
  if (depth > MAX_DEPTH) throw new SyntaxError(`JSON is nested deeper than ${MAX_DEPTH}`)
  const first = peek(cursor)
  if (first === '{') return readObject(cursor, depth)
  if (first === '[') return readArray(cursor, depth)
  if (first === '"') return { kind: 'string', value: readString(cursor) }
  const literal = take(cursor, NUMBER)
  if (literal !== undefined) return { kind: 'number', literal }
  const word = take(cursor, WORD) ?? fail(cursor)
  return word === 'null' ? { kind: 'null' } : { kind: 'boolean', value: word === 'true' }
}

/** Promise: the one JSON value the text consists of. Throws a SyntaxError for anything else. */
export function readJson(text: string): JsonValue {
  const cursor: Cursor = { text, at: 0 }
  const value = readValue(cursor, 0)
  peek(cursor)
  if (cursor.at !== text.length) fail(cursor)
  return value
}
