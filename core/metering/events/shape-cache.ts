import { isUtf8 } from 'node:buffer'
import {
  type JsonObject,
  type JsonMembers,
  type JsonValue,
  isObject,
} from '../../lib/exact-json.ts'

/**
 * A shape cache for JSON objects: events of one producer have the same members in the same order.
 *
 * Gains: an object of a known shape is compared with the shape byte by byte, and only requested
 * values become strings. Building, hashing and comparing names otherwise takes half of all parsing;
 * the `ingest by COPY` row of `npm run bench` shows it. Plain version: `readExactJson`, which reads
 * every object that differs from the known shapes in any byte, so that results never differ.
 * test/core/metering/events/shape-cache.unit.test.ts compares each result with the plain version.
 */
interface Shape {
  /** The bytes before each value: `{"id":`, `,"type":`. */
  readonly tokens: readonly Uint8Array[]
  /** By value position: the shape of a nested object, else null. */
  readonly inner: readonly (Shape | null)[]
  /** Slot of the first value; the other values use the following slots. */
  readonly first: number
  readonly members: JsonMembers
}

const maxShapes = 4
const maxMembers = 100
const maxNameLength = 100
/** Kinds of values. */
const [ascii, utf8, numeral, nothing, yes, no, members] = [0, 1, 2, 3, 4, 5, 6]

export function createShapeCache() {
  let shapes: readonly Shape[] = []
  let misses = 0
  // For the last text, by slot: start, end and kind of the value.
  const [starts, ends] = [new Int32Array(maxMembers), new Int32Array(maxMembers)]
  const kinds = new Uint8Array(maxMembers)
  let bytes: Buffer = Buffer.alloc(0)
  let text = ''
  let at = 0
  let isAscii = true

  /**
   * Reads an object of a known shape; null for any other text, valid or not. The members are valid
   * until the next call, which reuses their memory.
   */
  function read(object: Buffer): JsonMembers | null {
    bytes = object
    for (const shape of shapes) {
      at = 0
      isAscii = true
      if (!readObject(shape) || at < bytes.length || !(isAscii || isUtf8(bytes))) continue
      misses = 0
      text = bytes.toString('latin1')
      return shape.members
    }
    return null
  }

  /**
   * Adds the shape of an object that `readExactJson` read. In a series of misses, adds only the
   * 1st, 2nd, 4th, 8th ... object, because adding costs more than reading.
   */
  function learn(object: JsonObject): void {
    misses += 1
    if ((misses & (misses - 1)) !== 0 || sizeOf(object) > maxMembers) return
    const shape = shapeOf(object, 0)
    if (shape) shapes = [shape, ...shapes.slice(0, maxShapes - 1)]
  }

  function shapeOf(object: JsonObject, first: number): Shape | null {
    const names = [...object.keys()]
    if (
      names.length === 0 ||
      names.some((name) => name.length > maxNameLength || JSON.stringify(name) !== `"${name}"`)
    )
      return null
    let next = first + names.length
    const inner = [...object.values()].map((value) => {
      const shape = isObject(value) ? shapeOf(value, next) : null
      if (shape && isObject(value)) next += sizeOf(value)
      return shape
    })
    const slots = new Map(names.map((name, i) => [name, first + i]))
    const shapesInside = new Map(inner.map((shape, i) => [first + i, shape]))
    return {
      inner,
      first,
      tokens: names.map((name, i) => Buffer.from(`${i === 0 ? '{' : ','}"${name}":`)),
      members: { get: (name) => valueAt(slots.get(name), shapesInside) },
    }
  }

  function valueAt(
    slot: number | undefined,
    shapesInside: ReadonlyMap<number, Shape | null>,
  ): JsonValue | undefined {
    if (slot === undefined) return undefined
    const [start, end] = [starts[slot] ?? 0, ends[slot] ?? 0]
    switch (kinds[slot]) {
      case ascii:
        return text.slice(start, end)
      case utf8:
        return bytes.toString('utf8', start, end)
      case numeral:
        return { literal: text.slice(start, end) }
      case members:
        return shapesInside.get(slot)?.members
      case nothing:
        return null
      default:
        return kinds[slot] === yes
    }
  }

  function readObject({ tokens, inner, first }: Shape): boolean {
    for (let i = 0; i < tokens.length; i++) {
      if (!passes(tokens[i] ?? none) || !readValue(first + i, inner[i] ?? null)) return false
    }
    return bytes[at++] === closingBrace
  }

  function passes(token: Uint8Array): boolean {
    const [source, start] = [bytes, at]
    for (let i = 0; i < token.length; i++) {
      if (source[start + i] !== token[i]) return false
    }
    at = start + token.length
    return true
  }

  function readValue(slot: number, inner: Shape | null): boolean {
    const code = bytes[at] ?? 0
    if (code === quote) return readString(slot)
    if (code === minus || isDigit(code)) return readNumber(slot)
    if (code === openingBrace) {
      kinds[slot] = members
      return inner !== null && readObject(inner)
    }
    return words.some(([kind, word]) => {
      kinds[slot] = kind
      return passes(word)
    })
  }

  function readNumber(slot: number): boolean {
    starts[slot] = at
    kinds[slot] = numeral
    const isNumber = passesNumber()
    ends[slot] = at
    return isNumber
  }

  /** Reads a string without escapes and control characters. */
  function readString(slot: number): boolean {
    const source = bytes
    let end = at + 1
    let all = 0
    for (;;) {
      const code = source[end]
      if (code === undefined || code < space || code === backslash) return false
      if (code === quote) break
      all |= code
      end += 1
    }
    starts[slot] = at + 1
    ends[slot] = end
    kinds[slot] = all < 0x80 ? ascii : utf8
    if (all >= 0x80) isAscii = false
    at = end + 1
    return true
  }

  // Numbers with an exponent are rare; the plain version reads them.
  function passesNumber(): boolean {
    if (bytes[at] === minus) at += 1
    const whole = at
    skipDigits()
    if (at === whole || (at > whole + 1 && bytes[whole] === zero)) return false
    if (bytes[at] !== point) return true
    at += 1
    const fraction = at
    skipDigits()
    return at > fraction
  }

  function skipDigits(): void {
    while (isDigit(bytes[at] ?? 0)) at += 1
  }

  return { read, learn }
}

/** Counts the members of an object and of nested objects. */
const sizeOf = (object: JsonObject): number =>
  object.size +
  [...object.values()].reduce(
    (sum: number, value) => sum + (isObject(value) ? sizeOf(value) : 0),
    0,
  )

const none = new Uint8Array(0)
const words = [
  [nothing, Buffer.from('null')],
  [yes, Buffer.from('true')],
  [no, Buffer.from('false')],
] as const
const [quote, openingBrace, closingBrace, minus, point, zero, nine] = [34, 123, 125, 45, 46, 48, 57]
const [space, backslash] = [0x20, 0x5c]

const isDigit = (code: number): boolean => code >= zero && code <= nine
