import type { Now } from '../../../core/lib/time.ts'
import type { SidecarConfig } from '../../config.ts'
import type { CoreClient } from '../../core-client.ts'
import { rememberTokensSeconds } from '../config.ts'
import type { RevokedTokens } from '../revoked-tokens.ts'
import { createForeignKeys, createOwnKeys } from '../jwks.ts'
import { type KeyLookup, type KeyShape, apiKeyVerifier } from './api-key.ts'
import { loadCustomVerifier } from './custom.ts'
import { type TrustedIssuer, oidcVerifier } from './oidc.ts'
import { trustedHeadersVerifier } from './trusted-headers.ts'
import { type Verifier, compositeVerifier } from './verifier.ts'

export interface SelectOptions {
  readonly config: SidecarConfig['identity']
  readonly core: Pick<CoreClient, 'getJwks'>
  readonly lookup: KeyLookup
  readonly shape: KeyShape
  readonly revokedTokens: RevokedTokens
  readonly now: Now
}

/**
 * The verifier that IDENTITY_AUTH_MODE names (decision 29). Trusted headers are never part of the
 * composite.
 */
export async function selectVerifier({
  config,
  core,
  lookup,
  shape,
  revokedTokens,
  now,
}: SelectOptions): Promise<Verifier> {
  const apiKey = apiKeyVerifier({ lookup, shape })
  const oidc = oidcVerifier({
    issuers: trustedIssuers(config, createOwnKeys({ load: core.getJwks, now })),
    clientIdClaim: config.clientIdClaim,
    subjectClaim: config.subjectClaim,
    revokedTokens,
    rememberSeconds: rememberTokensSeconds(config.ttlSeconds),
    now,
  })
  switch (config.mode) {
    case 'api_key':
      return apiKey
    case 'oidc':
      return oidc
    case 'composite':
      return compositeVerifier([apiKey, oidc])
    case 'trusted_headers':
      return trustedHeadersVerifier({ issuer: config.ownIssuer, secret: config.proxySecret ?? '' })
    case 'custom':
      return loadCustomVerifier(config.module ?? '', { issuer: config.ownIssuer, lookup })
  }
}

function trustedIssuers(
  config: SidecarConfig['identity'],
  ownKeys: TrustedIssuer['keys'],
): TrustedIssuer[] {
  const { ownIssuer, issuer, audience, jwksUrl } = config
  if (issuer === undefined)
    return [{ issuer: ownIssuer, audience: audience ?? ownIssuer, keys: ownKeys, own: true }]
  return [
    { issuer: ownIssuer, audience: ownIssuer, keys: ownKeys, own: true },
    {
      issuer,
      audience: audience ?? issuer,
      keys: createForeignKeys({ issuer, jwksUrl }),
      own: false,
    },
  ]
}
