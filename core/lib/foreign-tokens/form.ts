import { type JsonObject, parseObject } from '../json.ts'
import { isReadable } from '../text/readable.ts'
import { withoutFinalSlashes } from '../text/urls.ts'

/** The most bytes of a token that anything reads: providers that list groups write several thousand. */
export const tokenBytesMax = 16_384
const kidMax = 512

/** The algorithms of foreign tokens: asymmetric ones alone, so that no public key can pass for a secret. */
export const foreignAlgorithms = ['RS256', 'ES256'] as const
export type ForeignAlgorithm = (typeof foreignAlgorithms)[number]

// Most identity providers do not write the type of RFC 9068 (docs/decisions/39.md).
const types: readonly unknown[] = [undefined, 'jwt', 'at+jwt', 'application/at+jwt']

/** A JWT that was taken apart. Nothing of it is proved yet. */
export interface UnprovedToken {
  readonly text: string
  readonly header: JsonObject
  readonly claims: JsonObject
}

const shape = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/

/** True for text of a JWT's shape. */
export const looksLikeToken = (text: string): boolean => shape.test(text)

/** Takes a JWT in compact serialization apart (RFC 7515 section 3.1); null for anything else, and for one that is too long. */
export function openToken(text: string): UnprovedToken | null {
  if (text.length > tokenBytesMax || !looksLikeToken(text)) return null
  const [header, claims] = text.split('.', 2).map(parsePart)
  return header && claims ? { text, header, claims } : null
}

const parsePart = (part: string): JsonObject | null =>
  parseObject(Buffer.from(part, 'base64url').toString('utf8'))

/** Whether the `typ` of a header is one that providers give their access tokens. */
export const isForeignType = (typ: unknown): boolean =>
  types.includes(typeof typ === 'string' ? typ.toLowerCase() : typ)

export const algorithmOf = ({
  header: { alg },
}: Pick<UnprovedToken, 'header'>): ForeignAlgorithm | null =>
  foreignAlgorithms.find((known) => known === alg) ?? null

/**
 * Whether the header names no extension: `crit` lists those that must be understood (RFC 7515 section 4.1.11), and an
 * unencoded payload (`b64`, RFC 7797 section 7) is for no JWT.
 */
export const isUnderstood = ({ header }: Pick<UnprovedToken, 'header'>): boolean =>
  !Object.hasOwn(header, 'crit') && (header['b64'] === undefined || header['b64'] === true)

/** The key's id; null when it has none, undefined for one that no key has. */
export function kidOf({
  header: { kid },
}: Pick<UnprovedToken, 'header'>): string | null | undefined {
  if (kid === undefined) return null
  return typeof kid === 'string' && kid.length <= kidMax ? kid : undefined
}

/** Its issuer without final slashes; "" when it names none. */
export const issuerOf = ({ claims: { iss } }: UnprovedToken): string =>
  typeof iss === 'string' ? withoutFinalSlashes(iss) : ''

/** Whether `text` is a JWT that names another issuer than `issuer`. */
export function isOfOtherIssuer(text: string, issuer: string): boolean {
  const token = openToken(text)
  const named = token ? issuerOf(token) : ''
  return named !== '' && named !== withoutFinalSlashes(issuer)
}

/** The texts of a claim that is one text or a list of them. */
export function textsOf(claim: unknown): string[] {
  if (typeof claim === 'string') return [claim]
  return Array.isArray(claim) ? claim.filter((item) => typeof item === 'string') : []
}

/** The scopes of a token: one text with blanks (RFC 9068 section 2.2.3), or a list. */
export function scopesOf({ scope }: Readonly<Record<string, unknown>>): readonly unknown[] {
  if (typeof scope === 'string') return scope.split(' ')
  return Array.isArray(scope) ? scope : []
}

/** Whether a provider may name a user so: ids that begin with `owner:` or `user:` are ours to give (docs/decisions/08.md). */
export const isForeignUser = (name: string): boolean =>
  name !== '' && name === name.trim() && isReadable(name) && !/^(owner|user):/.test(name)

/** Clocks of providers and ours may differ by so much. */
export const toleranceSeconds = 60

// The end of the year 9999: nothing later can be written as a date, and a time in milliseconds is past it.
const instantEnd = 253_402_300_800

/** Whether a claim is an instant in Unix seconds (RFC 7519 section 2). */
const isInstant = (claim: unknown): claim is number =>
  typeof claim === 'number' && Math.abs(claim) < instantEnd

/** What is wrong with its times at `at` (Unix seconds); null for nothing. `exp` is needed. */
export function timeFault({ claims }: Pick<UnprovedToken, 'claims'>, at: number): string | null {
  const { exp, nbf, iat } = claims
  if (!isInstant(exp)) return 'has no exp in seconds'
  if (typeof iat === 'number' && !isInstant(iat)) return 'has an iat that is not in seconds'
  if (exp + toleranceSeconds <= at) return 'has expired'
  if (nbf !== undefined && typeof nbf !== 'number') return 'has an nbf that is no number'
  return typeof nbf === 'number' && nbf - toleranceSeconds > at ? 'is not valid yet' : null
}
