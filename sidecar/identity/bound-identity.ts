import { type Refusal, refusals } from '../authorize/refusals.ts'

/** What a verifier answers: the user a credential stands for, and how long that holds. */
export interface VerifiedIdentity {
  readonly issuer: string
  readonly clientId: string
  readonly externalUserId: string
  /** Our id of the user, or of a token's login, when known: its invalidation ends this identity. */
  readonly userId: string | null
  /** The id of the key, session or token, whose invalidation ends this; null for a foreign token. */
  readonly keyId: string | null
  /** Unix seconds of a token's `iat` and `exp`; null for other credentials. */
  readonly issuedAt: number | null
  readonly expiresAt: number | null
  /** Unix milliseconds until which this may be answered from memory; 0 for never. */
  readonly keepUntil: number
}

/** An identity with its `auth_id`, and the parts of its answer that never change. */
export interface BoundIdentity extends VerifiedIdentity {
  readonly authId: string
  readonly head: string
  readonly tail: string
  /** Length of both in UTF-8. */
  readonly bytes: number
}

const maxAuthIdBytes = 256
const unprintable = /\p{Cc}|\p{Zl}|\p{Zp}|\p{Cs}/u

/**
 * Binds an identity to its `auth_id`. Returns a refusal when no `auth_id` of it would survive the
 * signer's round trip.
 */
export function bindIdentity(identity: VerifiedIdentity): BoundIdentity | Refusal {
  const { clientId, externalUserId, issuer } = identity
  // A colon in a client id would let two tenants share one auth_id; provisioning never gives one.
  if (clientId.includes(':')) return refusals.authorizationUnavailable
  const authId = `${clientId}:${externalUserId}`
  if (clientId === '' || externalUserId === '' || unprintable.test(authId))
    return refusals.invalidIdentity
  if (Buffer.byteLength(authId) > maxAuthIdBytes) return refusals.invalidIdentity
  const parts = {
    issuer,
    client_id: clientId,
    usage_subject: externalUserId,
    usage_subject_type: 'external_user_id',
  }
  const user = JSON.stringify(externalUserId)
  const head = flat(
    `{"status":200,"auth_id":${JSON.stringify(authId)},"externalUserId":${user},"expiry":`,
  )
  const tail = flat(`,"identity":${JSON.stringify(parts)}`)
  return { ...identity, authId, head, tail, bytes: Buffer.byteLength(head + tail) }
}

// A concatenated string stays a tree of pieces in V8, which every answer would have to flatten.
const flat = (text: string): string => Buffer.from(text).toString()
