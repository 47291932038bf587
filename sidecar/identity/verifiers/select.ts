import { type Reloadable, currentValue } from '../../../core/lib/settings/reloadable.ts'
import type { Now } from '../../../core/lib/time.ts'
import type { HeaderMap } from '../../decision/request.ts'
import type { CoreClient } from '../../core/client.ts'
import { type IdentityConfig, rememberTokensSeconds } from '../config.ts'
import type { ForeignTokens } from '../foreign-tokens.ts'
import type { RevokedTokens } from '../revoked-tokens.ts'
import { createForeignKeys, createOwnKeys } from '../jwks.ts'
import { type KeyLookup, type KeyShape, apiKeyVerifier } from './api-key.ts'
import { loadCustomVerifier } from './custom.ts'
import { type TrustedIssuer, oidcVerifier } from './oidc.ts'
import { hasProxySecret, trustedHeadersVerifier } from './trusted-headers.ts'
import { type Verifier, compositeVerifier } from './verifier.ts'

export interface SelectOptions {
  readonly config: IdentityConfig
  readonly core: Pick<CoreClient, 'getJwks'>
  readonly lookup: KeyLookup
  readonly foreign: ForeignTokens
  readonly shape: KeyShape
  readonly revokedTokens: RevokedTokens
  /** Maximum wrong proxy secrets per minute. */
  readonly guessesMax: Reloadable<number>
  readonly now: Now
}

export interface Selection {
  readonly verify: Verifier
  /**
   * Whether headers identify the user instead of the credential; absent if they never do. Such
   * identities are not cached.
   */
  readonly usesHeadersOnly?: (headers: HeaderMap | null) => boolean
  /**
   * Whether it may read headers in addition to the credential. Requests with different headers are
   * then verified separately.
   */
  readonly mayReadHeaders: boolean
}

/** Returns the verifier of IDENTITY_AUTH_MODE (decision 29). */
export async function selectVerifier(options: SelectOptions): Promise<Selection> {
  const { config, core, lookup, foreign, shape, revokedTokens, now } = options
  const apiKey = apiKeyVerifier({ lookup, shape })
  const oidc = oidcVerifier({
    issuers: trustedIssuers(config, createOwnKeys({ load: core.getJwks, now }), now),
    foreign,
    clientIdClaim: config.clientIdClaim,
    subjectClaim: config.subjectClaim,
    revokedTokens,
    rememberSeconds: rememberTokensSeconds(config.ttlSeconds),
    now,
  })
  switch (config.mode) {
    case 'api_key':
      return { verify: apiKey, mayReadHeaders: false }
    case 'oidc':
      return { verify: oidc, mayReadHeaders: false }
    case 'composite':
      return compositeOf(options, [apiKey, oidc])
    case 'trusted_headers':
      return {
        verify: headersVerifierOf(options),
        usesHeadersOnly: () => true,
        mayReadHeaders: true,
      }
    case 'custom':
      return {
        verify: await loadCustomVerifier(config.module ?? '', {
          issuer: config.ownIssuer,
          lookup,
        }),
        mayReadHeaders: true,
      }
  }
}

const headersVerifierOf = ({
  config: { ownIssuer, proxySecret },
  guessesMax,
  now,
}: SelectOptions): Verifier =>
  trustedHeadersVerifier({ issuer: ownIssuer, secret: proxySecret, guessesMax, now })

/**
 * With a proxy secret configured, checks trusted headers before the credential (decision 40). They
 * apply only to a request with a proxy's secret, because the integrators' SDK sends the other
 * headers along with its Bearer.
 */
function compositeOf(options: SelectOptions, byCredential: readonly Verifier[]): Selection {
  const verify = compositeVerifier(byCredential)
  if (currentValue(options.config.proxySecret) === '') return { verify, mayReadHeaders: false }
  const byHeaders = headersVerifierOf(options)
  return {
    verify: (presentation) =>
      hasProxySecret(presentation.headers) ? byHeaders(presentation) : verify(presentation),
    usesHeadersOnly: hasProxySecret,
    mayReadHeaders: false,
  }
}

function trustedIssuers(
  config: IdentityConfig,
  ownKeys: TrustedIssuer['keys'],
  now: Now,
): TrustedIssuer[] {
  const { ownIssuer, issuer, audience, jwksUrl } = config
  if (issuer === undefined)
    return [{ issuer: ownIssuer, audience: audience ?? ownIssuer, keys: ownKeys, isOurs: true }]
  return [
    { issuer: ownIssuer, audience: ownIssuer, keys: ownKeys, isOurs: true },
    {
      issuer,
      audience: audience ?? issuer,
      keys: createForeignKeys({ issuer, jwksUrl, now }),
      isOurs: false,
    },
  ]
}
