import { type BasicPair, basicPairs } from '../../core/lib/http.ts'
import { DomainError } from '../../proto/errors.ts'

const maxCredentialBytes = 8192
// A scheme and one token68 (RFC 9110 section 11.4). Blanks and commas are rejected, so a second
// credential cannot follow.
const oneCredential = /^[A-Za-z]+ +[\x21-\x2b\x2d-\x7e]+ *$/

/**
 * Returns the request's Authorization value, undefined if there is no such header. Reads the raw
 * headers because node keeps only the first value. Throws CREDENTIAL_INVALID if there are several
 * or the value is not one credential.
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

/** Returns the Bearer credential, undefined for another scheme. */
export const bearerToken = (authorization: string | undefined): string | undefined =>
  /^bearer +(\S+) *$/i.exec(authorization ?? '')?.[1]

/**
 * Returns the pair in a Basic value, form-decoded (RFC 6749 section 2.3.1); null if there is no
 * pair.
 */
export function parseBasic(authorization: string): BasicPair | null {
  const [, encoded] = /^basic +([A-Za-z0-9+/_=-]+) *$/i.exec(authorization) ?? []
  return encoded === undefined
    ? null
    : (basicPairs(Buffer.from(encoded, 'base64').toString('utf8')).at(-1) ?? null)
}

const basicOf = ({ id, secret }: BasicPair): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`

/** How a client authenticates at a token route (RFC 6749 section 2.3). */
export type ClientAuth =
  | { readonly kind: 'secret'; readonly pair: BasicPair }
  | { readonly kind: 'public'; readonly clientId: string }
  /** An id without a secret, a secret without an id, or a Basic value without a pair. */
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'none' }

/** The form fields with which a client authenticates. */
export interface ClientFields {
  readonly client_id?: string
  readonly client_secret?: string
}

/** The app's own client, or a dynamically registered one. */
const publicId = /^(?:app|dyn)_[0-9a-f]{24}$/
const incomplete = { kind: 'incomplete' } as const

/** Reads client authentication from Basic or the form. Throws REQUEST_INVALID if they differ. */
export function readClientAuth(rawHeaders: readonly string[], fields: ClientFields): ClientAuth {
  const authorization = readAuthorization(rawHeaders)
  return authorization === undefined ? formAuth(fields) : basicAuth(authorization, fields)
}

function basicAuth(authorization: string, fields: ClientFields): ClientAuth {
  const pair = parseBasic(authorization)
  if (pair === null) return incomplete
  const { client_id: id = pair.id, client_secret: secret = pair.secret } = fields
  if (id === pair.id && secret === pair.secret) return { kind: 'secret', pair }
  throw new DomainError('REQUEST_INVALID', 'the credentials in the header and in the form differ')
}

function formAuth({ client_id: id, client_secret: secret }: ClientFields): ClientAuth {
  if (id === undefined) return secret === undefined ? { kind: 'none' } : incomplete
  if (secret === undefined) return publicId.test(id) ? { kind: 'public', clientId: id } : incomplete
  // A Basic value is split at its first colon, so a colon in the id would change the pair.
  return id.includes(':') ? incomplete : { kind: 'secret', pair: { id, secret } }
}

const invalidClient = (message: string) => new DomainError('CREDENTIAL_INVALID', message)

/**
 * Returns the Authorization value of a client with a secret. Throws CREDENTIAL_INVALID otherwise.
 */
export function requireClientSecret(auth: ClientAuth): string {
  if (auth.kind === 'secret') return basicOf(auth.pair)
  throw invalidClient('send client_id and client_secret, as HTTP Basic or in the form')
}

/** Returns the id of a public client. Throws CREDENTIAL_INVALID otherwise. */
export function requirePublicClient(auth: ClientAuth): string {
  if (auth.kind === 'public') return auth.clientId
  throw invalidClient('send client_id, the public id of the app (app_…), without a secret')
}

/**
 * Returns the Authorization value where client authentication is optional, undefined if there is
 * none. Forwards incomplete authentication as a pair that core rejects, because a failed attempt
 * must not pass as unauthenticated.
 */
export function optionalClientSecret(auth: ClientAuth): string | undefined {
  if (auth.kind === 'none') return undefined
  return auth.kind === 'secret' ? basicOf(auth.pair) : 'Basic Og=='
}
