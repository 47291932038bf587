import type { Credential, HeaderMap } from '../../decision/request.ts'
import type { Refusal } from '../../decision/refusals.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'

/** The credential and headers that the end user sent to the signer. */
export interface Presentation {
  readonly credential: Credential
  readonly headers: HeaderMap | null
}

/** Further details of a refused credential, for its explanation. */
export interface RefusalDetail {
  /** The rule behind the refusal (core/signer/decisions/explanation.ts). */
  readonly rule: string
  /** The identity in the credential, if signed; otherwise null. */
  readonly identity: VerifiedIdentity | null
}

/**
 * A verifier's answer for a credential; with `byHeaders` for these headers only, so it is not
 * cached. `source` is the part that answered, for metrics. A `no` with `remember` is cached for
 * seconds; without it, it is never cached.
 */
export type Verdict =
  | {
      readonly kind: 'yes'
      readonly identity: VerifiedIdentity
      readonly source: Source
      readonly byHeaders?: boolean
    }
  | {
      readonly kind: 'no'
      readonly refusal: Refusal
      readonly remember: boolean
      readonly byHeaders?: boolean
      readonly detail?: RefusalDetail
    }

/** `token`: from the credential itself, verified here. */
export type Source = 'memory' | 'redis' | 'core' | 'token' | 'none'

/**
 * Returns yes, no, or null for a credential of another kind. Throws its own faults, which become
 * 503: a fault never falls through to a weaker verifier (decision 29).
 */
export type Verifier = (presentation: Presentation) => Promise<Verdict | null>

/** Returns the first verdict that is not null. A fault in one verifier is thrown. */
export function compositeVerifier(verifiers: readonly Verifier[]): Verifier {
  return async (presentation) => {
    for (const verify of verifiers) {
      const verdict = await verify(presentation)
      if (verdict) return verdict
    }
    return null
  }
}
