import type { Credential, HeaderMap } from '../../authorize/request.ts'
import type { Refusal } from '../../authorize/refusals.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'

/** What the end user presented to the signer. */
export interface Presented {
  readonly credential: Credential
  readonly headers: HeaderMap | null
}

/**
 * `source` says which part answered, for metrics. A `no` is remembered for seconds only when it
 * cannot change.
 */
export type Verdict =
  | { readonly kind: 'yes'; readonly identity: VerifiedIdentity; readonly source: Source }
  | { readonly kind: 'no'; readonly refusal: Refusal; readonly remember: boolean }

export type Source = 'memory' | 'cache' | 'core' | 'local' | 'none'

/**
 * Answers yes, no, or null for "not mine". A fault of its own is thrown and becomes 503: it never
 * falls through to a weaker verifier (decision 29).
 */
export type Verifier = (presented: Presented) => Promise<Verdict | null>
