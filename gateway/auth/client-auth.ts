import type { BasicPair } from '../../core/lib/basic.ts'
import { DomainError } from '../../proto/errors.ts'
import { basicOf, parseBasic, readAuthorization } from './credentials.ts'

/** How a client showed itself at a token route (RFC 6749 section 2.3). */
export type ClientAuth =
  | { readonly kind: 'secret'; readonly pair: BasicPair }
  | { readonly kind: 'public'; readonly clientId: string }
  /** Something was sent, but not enough to be anybody. */
  | { readonly kind: 'half' }
  | { readonly kind: 'none' }

export interface PostedClient {
  readonly client_id?: string
  readonly client_secret?: string
}

const publicId = /^app_[0-9a-f]{24}$/

/** Basic or the form, and never two that differ. */
export function readClientAuth(rawHeaders: readonly string[], posted: PostedClient): ClientAuth {
  const authorization = readAuthorization(rawHeaders)
  const { client_id: id, client_secret: secret } = posted
  if (authorization !== undefined) {
    const basic = parseBasic(authorization)
    if (basic === null) return { kind: 'half' }
    if ((id ?? basic.id) !== basic.id || (secret ?? basic.secret) !== basic.secret) {
      throw new DomainError(
        'REQUEST_INVALID',
        'the credentials in the header and in the form differ',
      )
    }
    return { kind: 'secret', pair: basic }
  }
  if (id === undefined && secret === undefined) return { kind: 'none' }
  if (id !== undefined && secret !== undefined)
    return id.includes(':') ? { kind: 'half' } : { kind: 'secret', pair: { id, secret } }
  return id !== undefined && publicId.test(id) ? { kind: 'public', clientId: id } : { kind: 'half' }
}

const wrongClient = (says: string) => new DomainError('CREDENTIAL_INVALID', says)

/** The Authorization of a confidential client. */
export function confidential(auth: ClientAuth): string {
  if (auth.kind === 'secret') return basicOf(auth.pair)
  throw wrongClient('send client_id and client_secret, as HTTP Basic or in the form')
}

/** The id of a public client. */
export function publicClient(auth: ClientAuth): string {
  if (auth.kind === 'public') return auth.clientId
  throw wrongClient('send client_id, the public id of the app (app_…), and no secret')
}

/** What core shall judge where a client may stay away: half a credential is a wrong one (identity facts 6.2). */
export function optional(auth: ClientAuth): string | undefined {
  if (auth.kind === 'none') return undefined
  return auth.kind === 'secret' ? basicOf(auth.pair) : 'Basic Og=='
}
