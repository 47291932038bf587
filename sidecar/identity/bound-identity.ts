import { type Refusal, refusals } from '../authorize/refusals.ts'

/** What a verifier found out: whom a credential stands for, and until when that may be believed. */
export interface VerifiedIdentity {
  readonly issuer: string
  readonly clientId: string
  readonly externalUserId: string
  /** Our own id of the user, or of the login that a token came from, when it is known: it ends with them. */
  readonly userId: string | null
  /** The key, session or token that proved it: it ends with it. Null when a foreign issuer's token did. */
  readonly keyId: string | null
  /** Unix seconds of a token's `iat` and `exp`; null for what has none. */
  readonly issuedAt: number | null
  readonly expiresAt: number | null
  /** Unix milliseconds until which this may be answered from memory; 0 for never. */
  readonly keepUntil: number
}

/** An identity that may be answered, with the parts of its answer that never change. */
export interface Who extends VerifiedIdentity {
  readonly authId: string
  readonly head: string
  readonly tail: string
  /** Length of both in UTF-8. */
  readonly bytes: number
}

const maxAuthIdBytes = 256
const unprintable = /\p{Cc}|\p{Zl}|\p{Zp}|\p{Cs}/u

/**
 * Binds an identity to its `auth_id`; a refusal when none can be made that survives the signer's
 * round trip.
 */
export function createWho(identity: VerifiedIdentity): Who | Refusal {
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
  const head = inOnePiece(
    `{"status":200,"auth_id":${JSON.stringify(authId)},"externalUserId":${user},"expiry":`,
  )
  const tail = inOnePiece(`,"identity":${JSON.stringify(parts)}`)
  return { ...identity, authId, head, tail, bytes: Buffer.byteLength(head + tail) }
}

// What is put together from strings stays in pieces, which every answer would have to collect anew.
const inOnePiece = (text: string): string => Buffer.from(text).toString()
