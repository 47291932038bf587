import { type JsonObject, isObject, parseObject } from '../../core/lib/json.ts'
import type { Apps } from '../callers/signers.ts'
import { type Session, readSession } from '../signer-state/session.ts'

/** Headers that the end user sent to the signer, as forwarded by the signer. */
export type HeaderMap = JsonObject

export type Credential =
  | { readonly kind: 'given'; readonly text: string }
  | { readonly kind: 'missing' | 'malformed' | 'ambiguous' }

/** One request for a decision, in either format (decision 25). */
export interface AuthorizeBody {
  readonly credential: Credential
  readonly headers: HeaderMap | null
  readonly session: Session | null
  /** Apps that the caller may sign for. */
  readonly apps: Apps
  /** Whether the end user requested a record of the decision. */
  readonly wantsExplanation: boolean
}

const missing: Credential = { kind: 'missing' }
const malformed: Credential = { kind: 'malformed' }
const ambiguous: Credential = { kind: 'ambiguous' }

// RFC 6750 section 2.1: the characters of a b64token.
// RFC 9110 section 11.1: the scheme is case-insensitive.
const bearer = /^bearer +[A-Za-z0-9\-._~+/]+=*$/i
const bare = /^[A-Za-z0-9\-._~+/]+=*$/
const maxCredential = 16_384

/**
 * Parses the text of a request; returns null unless it is one JSON object. Never throws on hostile
 * content.
 */
export function parseBody(text: string, apps: Apps = null): AuthorizeBody | null {
  const body = parseObject(text)
  if (!body) return null
  const payload = objectOf(body['payload'])
  const headers = objectOf(body['headers']) ?? objectOf(payload?.['headers'])
  return {
    credential: credentialOf(headers, body['authorization'], payload?.['authorization']),
    headers,
    session: readSession(body['state'] ?? payload?.['state'], text),
    apps,
    wantsExplanation: headers !== null && wantsExplanation(headers),
  }
}

// Check only the name that Go writes and the one in lower case, because a search through all names
// would slow down every call.
function wantsExplanation(headers: HeaderMap): boolean {
  const value = headers['X-Tollgate-Explain'] ?? headers['x-tollgate-explain']
  return value !== undefined && (Array.isArray(value) ? value[0] : value) === '1'
}

const objectOf = (value: unknown): JsonObject | null => (isObject(value) ? value : null)

// The header map takes precedence. A bare credential is accepted only in the dedicated fields.
function credentialOf(headers: HeaderMap | null, ...fields: readonly unknown[]): Credential {
  const inHeaders = headers ? readValues(headerValues(headers, 'authorization')) : missing
  if (inHeaders.kind !== 'missing') return inHeaders
  for (const field of fields) {
    if (field === undefined || field === null || field === '') continue
    if (typeof field !== 'string') return malformed
    const text = field.trim()
    return readValue(text, bare.test(text) ? bare : bearer)
  }
  return missing
}

function readValues(values: readonly string[] | null): Credential {
  if (!values) return malformed
  const first = values[0]
  if (first === undefined) return missing
  if (values.length > 1 && values.some((value) => value !== first)) return ambiguous
  return readValue(first, bearer)
}

function readValue(value: string, form: RegExp): Credential {
  if (value.length > maxCredential || !form.test(value)) return malformed
  return { kind: 'given', text: value.slice(value.indexOf(' ') + 1).trimStart() }
}

/**
 * Returns the non-empty, trimmed values of a header, matching its name in any case; null when one
 * is not text. `name` must be in lower case.
 */
export function headerValues(headers: HeaderMap, name: string): readonly string[] | null {
  let values: string[] = []
  for (const key in headers) {
    if (key.length !== name.length || key.toLowerCase() !== name) continue
    const member = headers[key]
    for (const value of Array.isArray(member) ? member : [member]) {
      if (typeof value !== 'string') return null
      const text = value.trim()
      if (text === '') continue
      if (values.length === 0) values = [text]
      else values.push(text)
    }
  }
  return values
}
