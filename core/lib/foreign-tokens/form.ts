import { type JsonObject, parseObject } from '../json.ts'
import { isReadable } from '../text/readable.ts'
import { withoutFinalSlashes } from '../text/urls.ts'

/** Maximum size of a token in bytes. Providers that list groups write several thousand. */
const tokenBytesMax = 16_384
const kidMax = 512

/**
 * Algorithms of foreign tokens: only asymmetric ones, so that a public key cannot pass for a
 * secret.
 */
export const foreignAlgorithms = ['RS256', 'ES256'] as const
export type ForeignAlgorithm = (typeof foreignAlgorithms)[number]

// Most identity providers do not write the type of RFC 9068 (docs/decisions/39.md).
const types: readonly unknown[] = [undefined, 'jwt', 'at+jwt', 'application/at+jwt']

/** A parsed JWT whose signature is not verified yet. */
export interface UnprovedToken {
  readonly text: string
  readonly header: JsonObject
  readonly claims: JsonObject
}

const shape = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/

/** Whether the text has the shape of a JWT. */
export const looksLikeToken = (text: string): boolean => shape.test(text)

/**
 * Parses a JWT in compact serialization (RFC 7515 section 3.1). Returns null for other text, and
 * for a token that is too long.
 */
export function openToken(text: string): UnprovedToken | null {
  if (text.length > tokenBytesMax || !looksLikeToken(text)) return null
  const [header, claims] = text.split('.', 2).map(parsePart)
  return header && claims ? { text, header, claims } : null
}

const parsePart = (part: string): JsonObject | null =>
  parseObject(Buffer.from(part, 'base64url').toString('utf8'))

/** Whether `typ` is a header type that providers give their access tokens. */
export const isForeignType = (typ: unknown): boolean =>
  types.includes(typeof typ === 'string' ? typ.toLowerCase() : typ)

export const readAlgorithm = ({
  header: { alg },
}: Pick<UnprovedToken, 'header'>): ForeignAlgorithm | null =>
  foreignAlgorithms.find((known) => known === alg) ?? null

/**
 * Whether the header has no extension: `crit` lists extensions that must be understood (RFC 7515
 * section 4.1.11), and JWTs must not use an unencoded payload (`b64`, RFC 7797 section 7).
 */
export const isUnderstood = ({ header }: Pick<UnprovedToken, 'header'>): boolean =>
  !Object.hasOwn(header, 'crit') && (header['b64'] === undefined || header['b64'] === true)

/** The token's key id; null if it is missing, undefined if it is invalid. */
export function readKid({
  header: { kid },
}: Pick<UnprovedToken, 'header'>): string | null | undefined {
  if (kid === undefined) return null
  return typeof kid === 'string' && kid.length <= kidMax ? kid : undefined
}

/** The token's issuer without final slashes; "" if it is missing. */
export const readIssuer = ({ claims: { iss } }: UnprovedToken): string =>
  typeof iss === 'string' ? withoutFinalSlashes(iss) : ''

/** Whether `text` is a JWT of an issuer other than `issuer`. */
export function isOfOtherIssuer(text: string, issuer: string): boolean {
  const token = openToken(text)
  const named = token ? readIssuer(token) : ''
  return named !== '' && named !== withoutFinalSlashes(issuer)
}

/** The strings of a claim that is a string or a list of strings. */
export function readTexts(claim: unknown): string[] {
  if (typeof claim === 'string') return [claim]
  return Array.isArray(claim) ? claim.filter((item) => typeof item === 'string') : []
}

/** The scopes of a token: one string separated by blanks (RFC 9068 section 2.2.3), or a list. */
export function readScopes({ scope }: Readonly<Record<string, unknown>>): readonly unknown[] {
  if (typeof scope === 'string') return scope.split(' ')
  return Array.isArray(scope) ? scope : []
}

/**
 * Whether a provider may use this user id. Only we assign ids that begin with `owner:` or `user:`
 * (docs/decisions/08.md).
 */
export const isForeignUser = (name: string): boolean =>
  name !== '' && name === name.trim() && isReadable(name) && !/^(owner|user):/.test(name)

/** Accepted difference between a provider's clock and ours. */
export const toleranceSeconds = 60

// The end of the year 9999. No later instant can be written as a date, and a time in milliseconds
// exceeds it.
const instantEnd = 253_402_300_800

/** Whether a claim is an instant in Unix seconds (RFC 7519 section 2). */
const isInstant = (claim: unknown): claim is number =>
  typeof claim === 'number' && Math.abs(claim) < instantEnd

/**
 * The fault in the token's times at `at` (Unix seconds); null if they are valid. `exp` is required.
 */
export function timeFault({ claims }: Pick<UnprovedToken, 'claims'>, at: number): string | null {
  const { exp, nbf, iat } = claims
  if (!isInstant(exp)) return 'has no exp in seconds'
  if (typeof iat === 'number' && !isInstant(iat)) return 'has an iat that is not in seconds'
  if (exp + toleranceSeconds <= at) return 'has expired'
  if (nbf !== undefined && typeof nbf !== 'number') return 'has an nbf that is not a number'
  return typeof nbf === 'number' && nbf - toleranceSeconds > at ? 'is not valid yet' : null
}
