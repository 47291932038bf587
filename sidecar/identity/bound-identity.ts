import { type Refusal, refusals } from '../authorize/refusals.ts'

/** What a verifier answers: the user a credential stands for, and how long that holds. */
export interface VerifiedIdentity {
  readonly issuer: string
  readonly clientId: string
  readonly externalUserId: string
  /** The id of the key, session or token; null for a foreign token. */
  readonly keyId: string | null
  /** The ids of all that can end it: itself, and what it descends from (docs/identity.md). `keyId` alone when absent. */
  readonly grants?: readonly string[]
  /** Unix seconds of a token's `iat` and `exp`; null for other credentials. */
  readonly issuedAt: number | null
  readonly expiresAt: number | null
  /** Unix milliseconds until which this may be answered from memory; 0 for never. */
  readonly keepUntil: number
  /** Unix milliseconds at which it was verified; just now when absent. */
  readonly verifiedAt?: number
}

/** An identity with its `auth_id`, and what every call of it repeats. */
export interface BoundIdentity extends VerifiedIdentity {
  readonly grants: readonly string[]
  readonly verifiedAt: number
  readonly authId: string
  /** The API key that is the credential, or that it was got with; "" for none. */
  readonly apiKeyId: string
  /** The answer that allows a call and promises nothing: expiry 0, no `maxPrice`. */
  readonly answer: string
  /** Where the expiry stands in it. */
  readonly expiryAt: number
  /** Its length in UTF-8. */
  readonly bytes: number
}

const maxAuthIdBytes = 256
const unprintable = /\p{Cc}|\p{Zl}|\p{Zp}|\p{Cs}/u

/**
 * Binds an identity to its `auth_id`, at `at` in Unix milliseconds. Returns a refusal when no
 * `auth_id` of it would survive the signer's round trip.
 */
export function bindIdentity(identity: VerifiedIdentity, at: number): BoundIdentity | Refusal {
  const { clientId, externalUserId, issuer } = identity
  // A colon in a client id would let two tenants share one auth_id; provisioning never gives one.
  if (clientId.includes(':')) return refusals.authorizationUnavailable
  const authId = `${clientId}:${externalUserId}`
  if (clientId === '' || externalUserId === '' || unprintable.test(authId))
    return refusals.invalidIdentity
  if (Buffer.byteLength(authId) > maxAuthIdBytes) return refusals.invalidIdentity
  // An operator's own verifier may know nothing of descent.
  const grants = identity.grants ?? (identity.keyId === null ? [] : [identity.keyId])
  const parts = {
    issuer,
    client_id: clientId,
    usage_subject: externalUserId,
    usage_subject_type: 'external_user_id',
  }
  const user = JSON.stringify(externalUserId)
  const head = `{"status":200,"auth_id":${JSON.stringify(authId)},"externalUserId":${user},"expiry":`
  const bytes = Buffer.from(`${head}0,"identity":${JSON.stringify(parts)}}`)
  return {
    ...identity,
    verifiedAt: identity.verifiedAt ?? at,
    authId,
    grants,
    apiKeyId: apiKeyIdOf(grants),
    // A concatenated string stays a tree of pieces in V8, which every answer would have to flatten.
    answer: bytes.toString(),
    expiryAt: head.length,
    bytes: bytes.length,
  }
}

const keyGrant = /^key:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/

function apiKeyIdOf(grants: readonly string[]): string {
  for (const grant of grants) {
    const id = keyGrant.exec(grant)?.[1]
    if (id !== undefined) return id
  }
  return ''
}

/** The answer that allows a call until `expiry`, with the `maxPrice` member and its leading comma. */
export function answerOf(identity: BoundIdentity, expiry: number, maxPrice: string) {
  const { answer, expiryAt, bytes } = identity
  if (expiry === 0 && maxPrice === '') return { body: answer, bytes }
  const text = String(expiry)
  const body = `${answer.slice(0, expiryAt)}${text}${answer.slice(expiryAt + 1, -1)}${maxPrice}}`
  return { body, bytes: bytes - 1 + text.length + maxPrice.length }
}
