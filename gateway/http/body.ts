import { DomainError } from '../../proto/errors.ts'
import { quoted, requireUtf8 } from './texts.ts'

/** The size limit of a request body, in bytes. */
export const maxBodyBytes = 1_048_576

const fieldMax = 100

const utf8 = new TextDecoder('utf-8', { fatal: true })

/**
 * Parses a JSON object; an absent body is the empty object. Throws REQUEST_INVALID for any other
 * JSON, MEDIA_TYPE_UNSUPPORTED for another Content-Type.
 */
export function parseJson(bytes: Buffer, contentType: string | undefined): object {
  if (bytes.length === 0) return {}
  if (contentType !== undefined && mediaType(contentType) !== 'application/json') {
    throw new DomainError('MEDIA_TYPE_UNSUPPORTED', 'send the body as application/json')
  }
  const value = parseText(bytes)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new DomainError('REQUEST_INVALID', 'the body must be a JSON object')
  }
  return value
}

export interface FormOptions {
  readonly contentType: string | undefined
  /** Fields that may be repeated. Their values are always lists. */
  readonly repeatable?: readonly string[] | undefined
}

/**
 * Parses the fields of a form. Other fields may occur only once (RFC 6749 section 3.2); blank ones
 * count as absent (section 3.1).
 */
export function parseForm(
  bytes: Buffer,
  { contentType, repeatable = [] }: FormOptions,
): Record<string, string | string[]> {
  if (!isFormType(contentType)) {
    throw new DomainError('REQUEST_INVALID', 'send the body as application/x-www-form-urlencoded')
  }
  const octets = bytes.toString('latin1')
  requireUtf8(octets, 'the body')
  if (octets.split('&', fieldMax + 1).length > fieldMax)
    throw new DomainError('REQUEST_INVALID', `send at most ${fieldMax} fields`)
  const fields = new Map<string, string>()
  const lists = new Map<string, string[]>()
  for (const [name, value] of new URLSearchParams(bytes.toString('utf8'))) {
    if (repeatable.includes(name)) {
      if (value !== '') lists.set(name, [...(lists.get(name) ?? []), value])
      continue
    }
    if (fields.has(name)) throw new DomainError('REQUEST_INVALID', `${quoted(name)} is given twice`)
    fields.set(name, value)
  }
  return Object.fromEntries<string | string[]>([
    ...[...fields].filter(([, value]) => value !== ''),
    ...lists,
  ])
}

export const isFormType = (contentType: string | undefined): boolean =>
  mediaType(contentType ?? '') === 'application/x-www-form-urlencoded'

export const mediaType = (contentType: string): string =>
  contentType.split(';')[0]?.trim().toLowerCase() ?? ''

function parseText(bytes: Buffer): unknown {
  try {
    return JSON.parse(utf8.decode(bytes))
  } catch (error) {
    throw new DomainError('REQUEST_INVALID', 'the body is not valid JSON', { cause: error })
  }
}

/** Returns a string member of an unknown value, undefined if there is no such string. */
export function textMember(value: unknown, name: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const member: unknown = Object.getOwnPropertyDescriptor(value, name)?.value
  return typeof member === 'string' ? member : undefined
}
