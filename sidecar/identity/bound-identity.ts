import { type Refusal, refusals } from '../decision/refusals.ts'

/** A verifier's answer: the user of a credential, and how long the answer is valid. */
export interface VerifiedIdentity {
  readonly issuer: string
  readonly clientId: string
  readonly externalUserId: string
  /** The id of the key, session or token; null for a foreign token. */
  readonly keyId: string | null
  /**
   * Ids whose end also ends this credential: its own, and those that it descends from
   * (docs/revocation.md). `keyId` alone when absent.
   */
  readonly grants?: readonly string[]
  /** Unix seconds of a token's `iat` and `exp`; null for other credentials. */
  readonly issuedAt: number | null
  readonly expiresAt: number | null
  /** Unix milliseconds until which this may be cached in memory; 0 to not cache it. */
  readonly keepUntil: number
  /** Unix milliseconds of the verification; the current time when absent. */
  readonly verifiedAt?: number
}

/** An identity with its `auth_id`. */
export interface BoundIdentity extends VerifiedIdentity {
  readonly grants: readonly string[]
  readonly verifiedAt: number
  readonly authId: string
  /** The API key that is the credential, or that it was exchanged for; "" without one. */
  readonly apiKeyId: string
}

const maxAuthIdBytes = 256
const unprintable = /\p{Cc}|\p{Zl}|\p{Zp}|\p{Cs}/u

/**
 * Binds an identity to its `auth_id`, at `at` (Unix milliseconds). Returns a refusal if the
 * `auth_id` would not survive the signer's round trip.
 */
export function bindIdentity(identity: VerifiedIdentity, at: number): BoundIdentity | Refusal {
  const { clientId, externalUserId } = identity
  // A colon in a client id would let two tenants share one auth_id; provisioning never creates one.
  if (clientId.includes(':')) return refusals.authorizationUnavailable
  const authId = `${clientId}:${externalUserId}`
  if (clientId === '' || externalUserId === '' || unprintable.test(authId))
    return refusals.invalidIdentity
  if (Buffer.byteLength(authId) > maxAuthIdBytes) return refusals.invalidIdentity
  // An operator's own verifier may not return grants.
  const grants = identity.grants ?? (identity.keyId === null ? [] : [identity.keyId])
  return {
    ...identity,
    verifiedAt: identity.verifiedAt ?? at,
    authId,
    grants,
    apiKeyId: apiKeyIdOf(grants),
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
