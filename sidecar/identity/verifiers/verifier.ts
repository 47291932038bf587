import type { Credential, HeaderMap } from '../../authorize/request.ts'
import type { Refusal } from '../../authorize/refusals.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'

/** What the end user presented to the signer. */
export interface Presentation {
  readonly credential: Credential
  readonly headers: HeaderMap | null
}

/** What more is known of a refused credential, for its explanation. */
export interface RefusalDetail {
  /** Which of the rules behind the refusal (core/signer/decisions/explanation.ts). */
  readonly rule: string
  /** Whom it names, when that is signed; null when it is not. */
  readonly identity: VerifiedIdentity | null
}

/**
 * A verifier's answer. It holds for its credential; with `byHeaders` for these headers only, so it is remembered for nobody. `source` is the part that answered, for metrics. A `no` with `remember` is
 * cached for seconds; without it, it is never cached.
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
 * Answers yes, no, or null for a credential of another kind. It throws its own faults, which
 * become 503: a fault never falls through to a weaker verifier (decision 29).
 */
export type Verifier = (presentation: Presentation) => Promise<Verdict | null>

/** The first verifier that does not answer null decides; a fault in one is a fault of all. */
export function compositeVerifier(verifiers: readonly Verifier[]): Verifier {
  return async (presentation) => {
    for (const verify of verifiers) {
      const verdict = await verify(presentation)
      if (verdict) return verdict
    }
    return null
  }
}
