import { type BasicPair, basicPairs } from '../../core/lib/basic.ts'
import { DomainError } from '../../proto/errors.ts'

const maxCredentialBytes = 8192
// A scheme and one token68 (RFC 9110 section 11.4): no blank and no comma, so no second credential.
const oneCredential = /^[A-Za-z]+ +[\x21-\x2b\x2d-\x7e]+ *$/

/**
 * The request's one Authorization value, undefined when there is none. It is read from the raw lines because
 * node keeps only the first. CREDENTIAL_INVALID when there are several or the value is not one credential.
 */
export function readAuthorization(rawHeaders: readonly string[]): string | undefined {
  const values = rawHeaders.filter(
    (_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'authorization',
  )
  const [value] = values
  if (value === undefined) return undefined
  if (values.length > 1)
    throw new DomainError('CREDENTIAL_INVALID', 'send one Authorization header')
  if (value.length > maxCredentialBytes || !oneCredential.test(value)) {
    throw new DomainError('CREDENTIAL_INVALID', 'the Authorization header must hold one credential')
  }
  return value
}

export const isBearer = (authorization: string): boolean => /^bearer /i.test(authorization)

/** The pair in a Basic value, form-decoded (RFC 6749 section 2.3.1); null when it holds none. */
export function parseBasic(authorization: string): BasicPair | null {
  const [, encoded] = /^basic +([A-Za-z0-9+/_=-]+) *$/i.exec(authorization) ?? []
  return encoded === undefined
    ? null
    : (basicPairs(Buffer.from(encoded, 'base64').toString('utf8')).at(-1) ?? null)
}

export const basicOf = ({ id, secret }: BasicPair): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`
