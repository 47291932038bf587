import { DomainError } from '../../proto/errors.ts'

/** The size limit of a request body. */
export const maxBodyBytes = 1_048_576

const depthMax = 64
const fieldMax = 100
const ampersand = 0x26

const utf8 = new TextDecoder('utf-8', { fatal: true })

/**
 * The JSON object in a body; an absent body is the empty object. REQUEST_INVALID for any other JSON,
 * MEDIA_TYPE_UNSUPPORTED for another Content-Type.
 */
export function parseJson(bytes: Buffer, contentType: string | undefined): object {
  if (bytes.length === 0) return {}
  if (contentType !== undefined && mediaType(contentType) !== 'application/json') {
    throw new DomainError('MEDIA_TYPE_UNSUPPORTED', 'send the body as application/json')
  }
  const value = readJson(bytes)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new DomainError('REQUEST_INVALID', 'the body must be a JSON object')
  }
  return value
}

export interface FormOptions {
  readonly contentType: string | undefined
  /** Fields that may be repeated; their values are always lists. */
  readonly repeatable?: readonly string[] | undefined
}

/** The fields of a form. Each may be there once (RFC 6749 section 3.2); blank ones count as absent (section 3.1). */
export function parseForm(
  bytes: Buffer,
  { contentType, repeatable = [] }: FormOptions,
): Record<string, string | string[]> {
  if (!isFormType(contentType)) {
    throw new DomainError('REQUEST_INVALID', 'send the body as application/x-www-form-urlencoded')
  }
  if (bytes.filter((byte) => byte === ampersand).length >= fieldMax)
    throw new DomainError('REQUEST_INVALID', `send at most ${fieldMax} fields`)
  const fields = new Map<string, string>()
  const lists = new Map<string, string[]>()
  for (const [name, value] of new URLSearchParams(bytes.toString('utf8'))) {
    if (repeatable.includes(name)) {
      if (value !== '') lists.set(name, [...(lists.get(name) ?? []), usable(value, name)])
      continue
    }
    if (fields.has(name)) throw new DomainError('REQUEST_INVALID', `${quoted(name)} is given twice`)
    fields.set(name, usable(value, name))
  }
  return Object.fromEntries<string | string[]>([
    ...[...fields].filter(([, value]) => value !== ''),
    ...lists,
  ])
}

/** Returns `text`. REQUEST_INVALID when PostgreSQL or UTF-8 cannot carry it: a NUL or half a surrogate pair. */
export function usable(text: string, name: string): string {
  if (text.isWellFormed() && !text.includes('\0')) return text
  throw new DomainError(
    'REQUEST_INVALID',
    `${quoted(name)} contains a character that is not allowed`,
  )
}

/** A name that the caller chose, cut and made printable for an error message. */
export const quoted = (name: string): string =>
  name
    .toWellFormed()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, 64)

export const isFormType = (contentType: string | undefined): boolean =>
  mediaType(contentType ?? '') === 'application/x-www-form-urlencoded'

export const mediaType = (contentType: string): string =>
  contentType.split(';')[0]?.trim().toLowerCase() ?? ''

function readJson(bytes: Buffer): unknown {
  const value = parseText(bytes)
  requireUsable(value, 'the body', depthMax)
  return value
}

function parseText(bytes: Buffer): unknown {
  try {
    return JSON.parse(utf8.decode(bytes))
  } catch (error) {
    throw new DomainError('REQUEST_INVALID', 'the body is not valid JSON', { cause: error })
  }
}

/** Refuses texts and names that PostgreSQL or UTF-8 cannot carry, and what is nested more than `depth` levels. */
function requireUsable(value: unknown, name: string, depth: number): void {
  if (typeof value === 'string') return void usable(value, name)
  if (typeof value !== 'object' || value === null) return
  if (depth === 0)
    throw new DomainError('REQUEST_INVALID', `the body is nested more than ${depthMax} levels deep`)
  for (const [key, member] of Object.entries(value))
    requireUsable(member, usable(key, key), depth - 1)
}

/** A string member of a value whose type is not known; undefined when there is none. */
export function textMember(value: unknown, name: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const member: unknown = Object.getOwnPropertyDescriptor(value, name)?.value
  return typeof member === 'string' ? member : undefined
}
