import { DomainError } from '../proto/errors.ts'

const maxCredentialBytes = 8192
// A scheme and one token68 (RFC 9110 section 11.4): no blank and no comma, so no second credential.
const oneCredential = /^[A-Za-z]+ +[\x21-\x2b\x2d-\x7e]+ *$/

/**
 * The request's one Authorization value, undefined when there is none. It is read from the raw lines because
 * node keeps only the first. CREDENTIAL_INVALID when there are several or the value is not one credential.
 */
export function readAuthorization(rawHeaders: readonly string[]): string | undefined {
  const values = rawHeaders.filter(
    (_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'authorization')
  const [value] = values
  if (value === undefined) return undefined
  if (values.length > 1) throw new DomainError('CREDENTIAL_INVALID', 'send one Authorization header')
  if (value.length > maxCredentialBytes || !oneCredential.test(value)) {
    throw new DomainError('CREDENTIAL_INVALID', 'the Authorization header must hold one credential')
  }
  return value
}

export const isBearer = (authorization: string): boolean => /^bearer /i.test(authorization)

export interface ClientSecret {
  readonly id: string
  readonly secret: string
}

/** The pair in a Basic value, raw or form-encoded (RFC 6749 section 2.3.1); null when it holds none. */
export function parseBasic(authorization: string): ClientSecret | null {
  const [, encoded] = /^basic +([A-Za-z0-9+/_=-]+) *$/i.exec(authorization) ?? []
  if (encoded === undefined) return null
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  const colon = text.indexOf(':')
  if (colon <= 0 || colon === text.length - 1) return null
  return { id: formDecoded(text.slice(0, colon)), secret: formDecoded(text.slice(colon + 1)) }
}

export const basicOf = ({ id, secret }: ClientSecret): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`

function formDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    return text
  }
}
