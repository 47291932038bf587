import { type JsonNumber, type JsonObject, type Members, type Value, isObject } from './json.ts'

/**
 * Events of one producer name the same members in the same order. Once a text has been read in full, its layout is
 * kept, and a text of that layout is read without looking at a single name: names are where the time goes, as each is a
 * text of its own to make, to hash and to compare (measured: half of all parsing). What does not fit in every character
 * is read in full, so that nothing is taken that would not be taken there, and nothing differently.
 */
interface Layout {
  /** What stands before each value: `{"id":`, `,"type":`. */
  readonly tokens: readonly string[]
  readonly places: ReadonlyMap<string, number>
  /** Of those values that are objects. */
  readonly inner: readonly (Layout | null)[]
}

const maxLayouts = 4
const maxMembers = 100
const maxNameLength = 100

export function createLayouts() {
  let layouts: readonly Layout[] = []
  let missed = 0
  let text = ''
  let at = 0

  /**
   * The members of an object whose layout is known; null for any other text, be it right or wrong. `given` has no escape
   * and no control character.
   */
  function read(given: string): Members | null {
    text = given
    for (const layout of layouts) {
      at = 0
      const members = readObject(layout)
      if (members === null || at < text.length) continue
      missed = 0
      return members
    }
    return null
  }

  /** Keeps the layout of what was read in full. Of many that fit nothing only some are, as keeping one has its cost. */
  function learn(object: JsonObject): void {
    missed += 1
    if ((missed & (missed - 1)) !== 0) return
    const layout = layoutOf(object)
    if (layout) layouts = [layout, ...layouts.slice(0, maxLayouts - 1)]
  }

  function readObject({ tokens, places, inner }: Layout): Members | null {
    const values: Value[] = []
    for (let i = 0; i < tokens.length; i++) {
      const token = tokens[i] ?? ''
      if (!text.startsWith(token, at)) return null
      at += token.length
      const value = readValue(inner[i] ?? null)
      if (value === undefined) return null
      values.push(value)
    }
    if (text.charCodeAt(at) !== closingBrace) return null
    at += 1
    return { get: (name) => values[places.get(name) ?? -1] }
  }

  function readValue(inner: Layout | null): Value | undefined {
    const code = text.charCodeAt(at)
    if (code === quote) return readString()
    if (code === openingBrace) return (inner && readObject(inner)) ?? undefined
    if (code === minus || isDigit(code)) return readNumber()
    if (text.startsWith('null', at)) return word(null, 4)
    if (text.startsWith('true', at)) return word(true, 4)
    return text.startsWith('false', at) ? word(false, 5) : undefined
  }

  function word<T>(value: T, length: number): T {
    at += length
    return value
  }

  function readString(): string | undefined {
    const start = at + 1
    const end = text.indexOf('"', start)
    if (end < 0) return undefined
    at = end + 1
    return text.slice(start, end)
  }

  // Without an exponent, which is rare.
  function readNumber(): JsonNumber | undefined {
    const start = at
    if (text.charCodeAt(at) === minus) at += 1
    const whole = at
    skipDigits()
    if (at === whole || (at > whole + 1 && text.charCodeAt(whole) === zero)) return undefined
    if (text.charCodeAt(at) === point) {
      at += 1
      const fraction = at
      skipDigits()
      if (at === fraction) return undefined
    }
    return { literal: text.slice(start, at) }
  }

  function skipDigits(): void {
    while (isDigit(text.charCodeAt(at))) at += 1
  }

  return { read, learn }
}

const [quote, openingBrace, closingBrace, minus, point, zero, nine] = [34, 123, 125, 45, 46, 48, 57]

const isDigit = (code: number): boolean => code >= zero && code <= nine

function layoutOf(object: JsonObject): Layout | null {
  const names = [...object.keys()]
  if (names.length === 0 || names.length > maxMembers) return null
  if (names.some((name) => name.length > maxNameLength || JSON.stringify(name) !== `"${name}"`)) return null
  const inner = [...object.values()].map((value) => (isObject(value) ? layoutOf(value) : null))
  return {
    inner, tokens: names.map((name, i) => `${i === 0 ? '{' : ','}"${name}":`),
    places: new Map(names.map((name, i) => [name, i])),
  }
}
