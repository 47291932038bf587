import { isUtf8 } from 'node:buffer'
import { isObject } from '../../core/lib/json.ts'
import { isReadable, unreadableCharacter } from '../../core/lib/text/readable.ts'
import { DomainError } from '../../proto/errors.ts'

/**
 * All input text passes through here: path, query, headers named in a schema, JSON and forms; names
 * and values. Rejects unreadable characters (core/lib/text/readable.ts). Only a schema can exempt a
 * field, by its format. No field takes several lines.
 */
const exceptedFormats: ReadonlySet<unknown> = new Set([
  // Never displayed.
  'password',
  // Cleaned by core.
  'label',
])

/** Our formats that the validator does not know. */
export const textFormats = { label: true } as const

const depthMax = 64

/**
 * Rejects unreadable names and texts in a part of a request, and nesting deeper than 64 levels.
 * Throws REQUEST_INVALID with the field's name.
 */
export function requireTexts(part: object, schema?: unknown): void {
  for (const [name, value] of Object.entries(part)) {
    if (!isReadable(name)) throw unreadable(name, `the name ${quoted(name)}`)
    if (typeof value !== 'string') requireMembers(value, name, depthMax - 1)
    else if (!isReadable(value) && !isExcepted(schema, name, value))
      throw unreadable(value, quoted(name))
  }
}

function requireMembers(value: unknown, field: string, depth: number): void {
  if (typeof value === 'string' && !isReadable(value)) throw unreadable(value, quoted(field))
  if (typeof value !== 'object' || value === null) return
  if (depth === 0)
    throw new DomainError('REQUEST_INVALID', `the body is nested more than ${depthMax} levels deep`)
  for (const [name, member] of Object.entries(value)) {
    const path = `${field}/${name}`
    if (!isReadable(name)) throw unreadable(name, `the name ${quoted(path)}`)
    requireMembers(member, path, depth - 1)
  }
}

// PostgreSQL does not store NUL, and UTF-8 cannot encode half of a surrogate pair.
function isExcepted(schema: unknown, name: string, text: string): boolean {
  const fields = isObject(schema) ? schema['properties'] : undefined
  const field = isObject(fields) && Object.hasOwn(fields, name) ? fields[name] : undefined
  const hasFormat = isObject(field) && exceptedFormats.has(field['format'])
  return hasFormat && text.isWellFormed() && !text.includes('\0')
}

const unreadable = (text: string, field: string): DomainError =>
  new DomainError(
    'REQUEST_INVALID',
    `${field} contains ${unreadableCharacter(text)}, which is not allowed`,
  )

/** Rejects percent-encoded text that is not UTF-8, because decoding it would change the text. */
export function requireUtf8(encoded: string, part: string): void {
  const bytes = encoded.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  )
  if (!isUtf8(Buffer.from(bytes, 'latin1')))
    throw new DomainError('REQUEST_INVALID', `${part} is not UTF-8`)
}

/** Truncates a name chosen by the caller and makes it printable, for an error message. */
export const quoted = (name: string): string =>
  name
    .toWellFormed()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, 64)
