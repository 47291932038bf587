import { isUtf8 } from 'node:buffer'
import {
  type JsonObject,
  type JsonMembers,
  type JsonValue,
  isObject,
} from '../../lib/exact-json.ts'

/**
 * Events of one producer name the same members in the same order. Once a text has been read in full, its layout is
 * kept, and a text of that layout is read byte by byte, without making anything but the values that are asked for: what
 * names cost to be made, hashed and compared is half of all parsing (measured). What does not fit in every byte is read
 * in full, so that nothing is taken that would not be taken there, and nothing differently.
 */
interface Layout {
  /** What stands before each value: `{"id":`, `,"type":`. */
  readonly tokens: readonly Uint8Array[]
  /** Of those values that are objects. */
  readonly inner: readonly (Layout | null)[]
  /** The place of its first value among all; the others follow. */
  readonly first: number
  readonly members: JsonMembers
}

const maxLayouts = 4
const maxMembers = 100
const maxNameLength = 100
/** What a value is. */
const [ascii, utf8, numeral, nothing, yes, no, members] = [0, 1, 2, 3, 4, 5, 6]

export function createLayouts() {
  let layouts: readonly Layout[] = []
  let missed = 0
  // Of the text that was read last: where its values begin and end, and what they are.
  const [starts, ends] = [new Int32Array(maxMembers), new Int32Array(maxMembers)]
  const kinds = new Uint8Array(maxMembers)
  let bytes: Buffer = Buffer.alloc(0)
  let text = ''
  let at = 0
  let isAscii = true

  /**
   * The members of an object whose layout is known; null for any other text, be it right or wrong. They are there until
   * the next one is read.
   */
  function read(given: Buffer): JsonMembers | null {
    bytes = given
    for (const layout of layouts) {
      at = 0
      isAscii = true
      if (!readObject(layout) || at < bytes.length || !(isAscii || isUtf8(bytes))) continue
      missed = 0
      text = bytes.toString('latin1')
      return layout.members
    }
    return null
  }

  /** Keeps the layout of what was read in full. Of many that fit nothing only some are, as keeping one has its cost. */
  function learn(object: JsonObject): void {
    missed += 1
    if ((missed & (missed - 1)) !== 0 || sizeOf(object) > maxMembers) return
    const layout = layoutOf(object, 0)
    if (layout) layouts = [layout, ...layouts.slice(0, maxLayouts - 1)]
  }

  function layoutOf(object: JsonObject, first: number): Layout | null {
    const names = [...object.keys()]
    if (
      names.length === 0 ||
      names.some((name) => name.length > maxNameLength || JSON.stringify(name) !== `"${name}"`)
    )
      return null
    let next = first + names.length
    const inner = [...object.values()].map((value) => {
      const layout = isObject(value) ? layoutOf(value, next) : null
      if (layout && isObject(value)) next += sizeOf(value)
      return layout
    })
    const places = new Map(names.map((name, i) => [name, first + i]))
    const insides = new Map(inner.map((layout, i) => [first + i, layout]))
    return {
      inner,
      first,
      tokens: names.map((name, i) => Buffer.from(`${i === 0 ? '{' : ','}"${name}":`)),
      members: { get: (name) => valueAt(places.get(name), insides) },
    }
  }

  function valueAt(
    place: number | undefined,
    insides: ReadonlyMap<number, Layout | null>,
  ): JsonValue | undefined {
    if (place === undefined) return undefined
    const [start, end] = [starts[place] ?? 0, ends[place] ?? 0]
    switch (kinds[place]) {
      case ascii:
        return text.slice(start, end)
      case utf8:
        return bytes.toString('utf8', start, end)
      case numeral:
        return { literal: text.slice(start, end) }
      case members:
        return insides.get(place)?.members
      case nothing:
        return null
      default:
        return kinds[place] === yes
    }
  }

  function readObject({ tokens, inner, first }: Layout): boolean {
    for (let i = 0; i < tokens.length; i++) {
      if (!passes(tokens[i] ?? none) || !readValue(first + i, inner[i] ?? null)) return false
    }
    return bytes[at++] === closingBrace
  }

  function passes(token: Uint8Array): boolean {
    const [given, start] = [bytes, at]
    for (let i = 0; i < token.length; i++) {
      if (given[start + i] !== token[i]) return false
    }
    at = start + token.length
    return true
  }

  function readValue(place: number, inner: Layout | null): boolean {
    const code = bytes[at] ?? 0
    if (code === quote) return readString(place)
    if (code === minus || isDigit(code)) return readNumber(place)
    if (code === openingBrace) {
      kinds[place] = members
      return inner !== null && readObject(inner)
    }
    return words.some(([kind, word]) => {
      kinds[place] = kind
      return passes(word)
    })
  }

  function readNumber(place: number): boolean {
    starts[place] = at
    kinds[place] = numeral
    const isNumber = passesNumber()
    ends[place] = at
    return isNumber
  }

  /** A string without an escape and without a control character. */
  function readString(place: number): boolean {
    const given = bytes
    let end = at + 1
    let all = 0
    for (;;) {
      const code = given[end]
      if (code === undefined || code < space || code === backslash) return false
      if (code === quote) break
      all |= code
      end += 1
    }
    starts[place] = at + 1
    ends[place] = end
    kinds[place] = all < 0x80 ? ascii : utf8
    if (all >= 0x80) isAscii = false
    at = end + 1
    return true
  }

  // Without an exponent, which is rare.
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

/** Its members, and those of the objects in it. */
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
