import {
  type UnprovedToken,
  readAlgorithm,
  isForeignType,
  isUnderstood,
  readIssuer,
  openToken,
  timeFault,
} from '../../core/lib/foreign-tokens/form.ts'
import { type Now, toSeconds } from '../../core/lib/time.ts'
import { Scope } from '../../proto/scopes.ts'
import type { VerifyForeignTokenResponse } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import type { Accounts } from '../wallets/accounts.ts'
import { refusals } from '../decision/refusals.ts'
import type { CoreClient } from '../core/client.ts'
import type { VerifiedIdentity } from './bound-identity.ts'
import type { Versions } from '../cache/cached-state.ts'
import type { Verdict } from './verifiers/verifier.ts'

export interface ForeignTokensOptions {
  readonly core: Pick<CoreClient, 'verifyForeignToken'>
  readonly accounts: Pick<Accounts, 'accountOf' | 'learn'>
  /** Milliseconds of a clock that never jumps. */
  readonly mono: () => number
  readonly versions: Versions
  /** How long an identity may be cached in memory. This bounds the effect of a lost revocation. */
  readonly ttlSeconds: number
  readonly now: Now
}

/** Verifies a JWT of a foreign issuer. Throws the provider's faults. */
export type ForeignTokens = (token: string) => Promise<Verdict>

/**
 * Lets core verify a token of an issuer that an app trusts, once: the verdict is cached until the
 * token or the trust ends, or as long as a key's. Tokens that no issuer could have written are not
 * sent to core.
 */
export function createForeignTokens(options: ForeignTokensOptions): ForeignTokens {
  const { core, accounts, mono, versions, ttlSeconds, now } = options

  function identityOf({
    identity,
    issuer,
    issuedAt,
    expiresAt: exp,
  }: VerifyForeignTokenResponse): VerifiedIdentity | null {
    if (!identity) return null
    const { clientId, externalUserId, userId, grants } = identity
    const [verifiedAt, expiresAt] = [now().getTime(), Number(exp)]
    return {
      issuer,
      clientId,
      externalUserId,
      keyId: null,
      grants: [...grants, userId, clientId, `${clientId}:${Scope.signJob}`],
      issuedAt: Number(issuedAt),
      expiresAt,
      verifiedAt,
      keepUntil: Math.min(verifiedAt + ttlSeconds * 1000, expiresAt * 1000),
    }
  }

  return async (text) => {
    const fault = formFault(text, toSeconds(now()))
    if (fault !== null) return refusal(fault, false)
    const read = { at: mono(), version: versions.current() }
    const response = await core.verifyForeignToken(text)
    const identity = identityOf(response)
    if (!identity || !response.access) return refusal(response.fault, true)
    const { clientId, externalUserId } = identity
    accounts.learn(accounts.accountOf(`${clientId}:${externalUserId}`), response.access, read)
    return { kind: 'yes', identity, source: 'core' }
  }
}

function formFault(text: string, at: number): string | null {
  const token = openToken(text)
  if (!token || !hasForeignForm(token)) return 'token_form'
  if (readIssuer(token) === '') return 'token_issuer'
  return timeFault(token, at) === null ? null : 'token_expired'
}

const hasForeignForm = (token: UnprovedToken): boolean =>
  isForeignType(token.header['typ']) && isUnderstood(token) && readAlgorithm(token) !== null

function refusal(rule: string, remember: boolean): Verdict {
  if (rule === 'issuer_unavailable')
    throw new Error('the keys of a trusted issuer cannot be loaded')
  const refused =
    rule === 'insufficient_scope'
      ? refusals.insufficientScope
      : rule === 'invalid_identity'
        ? refusals.invalidIdentity
        : refusals.invalidToken
  return { kind: 'no', refusal: refused, remember, detail: { rule, identity: null } }
}
