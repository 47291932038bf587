export interface Push {
  /** Each has exactly the bytes that were sent. */
  readonly envelopes: readonly Buffer[]
  readonly isArray: boolean
}

/**
 * Splits one push into its envelopes: one document, an array, or one document per line. Returns
 * null when an array is broken.
 */
export function splitEnvelopes(body: Buffer): Push | null {
  const start = skipBlank(body, 0)
  if (body[start] === open['[']) {
    const elements = elementsOf(body, start)
    return elements && { envelopes: elements, isArray: true }
  }
  const end = endOfValue(body, start)
  // Only a single document may span lines.
  const isOne = start < body.length && end !== null && skipBlank(body, end) === body.length
  const document = isOne ? body.subarray(start, end) : null
  return { envelopes: document && isWhole(document) ? [document] : linesOf(body), isArray: false }
}

// A truncated line can close its quotes and brackets with those of later lines. Parse such a
// document, so that it cannot swallow good events.
const isWhole = (document: Buffer): boolean => !document.includes(newline) || isJson(document)

function isJson(document: Buffer): boolean {
  try {
    JSON.parse(document.toString())
    return true
  } catch {
    return false
  }
}

const open = { '[': 0x5b, '{': 0x7b } as const
const close = { ']': 0x5d, '}': 0x7d } as const
const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const newline = 0x0a

function skipBlank(body: Buffer, from: number): number {
  let at = from
  while (at < body.length && isBlank(body[at])) at++
  return at
}

const isBlank = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x09 || byte === newline || byte === 0x0d

/**
 * Returns the end of the JSON value that starts at `from`: after its closing bracket or quote, or
 * before the comma or bracket that follows. Null when it never ends. Parses nothing, so that
 * numbers keep every digit.
 */
function endOfValue(body: Buffer, from: number): number | null {
  let depth = 0
  for (let at = from; at < body.length;) {
    const byte = body[at]
    if (depth === 0 && at > from && (byte === comma || byte === close[']'])) return at
    const next = byte === quote ? endOfString(body, at) : at + 1
    if (next === null) return null
    depth += depthChange(byte)
    if (depth < 0) return null
    if (depth === 0 && endsValue(byte)) return next
    at = next
  }
  return depth === 0 ? body.length : null
}

function depthChange(byte: number | undefined): number {
  if (byte === open['{'] || byte === open['[']) return 1
  return byte === close['}'] || byte === close[']'] ? -1 : 0
}

const endsValue = (byte: number | undefined): boolean =>
  byte === quote || byte === close['}'] || byte === close[']']

function endOfString(body: Buffer, from: number): number | null {
  for (let at = from + 1; at < body.length; at++) {
    if (body[at] === backslash) at++
    else if (body[at] === quote) return at + 1
  }
  return null
}

function elementsOf(body: Buffer, start: number): Buffer[] | null {
  const elements: Buffer[] = []
  let at = skipBlank(body, start + 1)
  if (body[at] === close[']']) return isEnd(body, at + 1) ? elements : null
  while (at < body.length) {
    if (body[at] === comma || body[at] === close[']']) return null
    const end = endOfValue(body, at)
    if (end === null) return null
    elements.push(trimEnd(body.subarray(at, end)))
    at = skipBlank(body, end)
    if (body[at] === close[']']) return isEnd(body, at + 1) ? elements : null
    if (body[at] !== comma) return null
    at = skipBlank(body, at + 1)
  }
  return null
}

export interface Member {
  readonly name: string
  /** Index where its value begins. */
  readonly at: number
}

/** The members of a JSON object, including repeated ones. The bytes must be JSON. */
export function listMembers(object: Buffer): Member[] {
  const members: Member[] = []
  let at = skipBlank(object, 0) + 1
  for (;;) {
    const name = skipBlank(object, at)
    const nameEnd = object[name] === quote ? endOfString(object, name) : null
    if (nameEnd === null) return members
    const value = skipBlank(object, skipBlank(object, nameEnd) + 1)
    members.push({ name: String(JSON.parse(object.toString('utf8', name, nameEnd))), at: value })
    at = skipBlank(object, endOfMember(object, value)) + 1
  }
}

// A bare number or word also ends where the object ends.
function endOfMember(object: Buffer, value: number): number {
  if (object[value] === quote || object[value] === open['{'] || object[value] === open['['])
    return endOfValue(object, value) ?? object.length
  let at = value
  while (at < object.length && object[at] !== comma && object[at] !== close['}']) at++
  return at
}

const isEnd = (body: Buffer, at: number): boolean => skipBlank(body, at) === body.length

function linesOf(body: Buffer): Buffer[] {
  const lines: Buffer[] = []
  for (let at = 0; at < body.length;) {
    const end = body.indexOf(newline, at)
    const line = trimEnd(body.subarray(skipBlank(body, at), end === -1 ? body.length : end))
    if (line.length > 0) lines.push(line)
    at = end === -1 ? body.length : end + 1
  }
  return lines
}

function trimEnd(bytes: Buffer): Buffer {
  let end = bytes.length
  while (end > 0 && isBlank(bytes[end - 1])) end--
  return bytes.subarray(0, end)
}
