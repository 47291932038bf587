import { type JWTPayload, type JWTVerifyGetKey, decodeJwt, errors, jwtVerify } from 'jose'
import type { Now } from '../../../core/lib/time.ts'
import { type Refusal, refusals } from '../../authorize/refusals.ts'
import { textOf } from '../../http/json.ts'
import type { RevokedTokens } from '../revoked-tokens.ts'
import type { Verdict, Verifier } from './types.ts'

/** An issuer whose tokens are believed, and where its keys come from. */
export interface TrustedIssuer {
  readonly issuer: string
  readonly audience: string
  readonly keys: JWTVerifyGetKey
  /** True for our own: only its `user` and `signer` tokens stand for a user (decision 9). */
  readonly own: boolean
}

export interface OidcOptions {
  readonly issuers: readonly TrustedIssuer[]
  readonly clientIdClaim: string
  readonly subjectClaim: string
  /** Of our own issuer. */
  readonly revokedTokens: Pick<RevokedTokens, 'isRevoked'>
  readonly now: Now
}

const jwtShape = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/
const algorithms = ['RS256', 'ES256'] as const
const toleranceSeconds = 60
const cacheSeconds = 60
const scopeNeeded = 'sign:job'

export const trimSlashes = (url: string): string => url.replace(/\/+$/, '')
const no = (refusal: Refusal): Verdict => ({ kind: 'no', refusal, remember: false })

/**
 * Verifies JWT access tokens (RFC 9068) of our own issuer and, when configured, of a foreign
 * one.
 */
export function oidcVerifier(options: OidcOptions): Verifier {
  return async ({ credential }) => {
    if (credential.kind !== 'given' || !jwtShape.test(credential.text)) return null
    const trusted = issuerOf(credential.text, options.issuers)
    if (!trusted) return no(refusals.invalidToken)
    const claims = await verified(credential.text, trusted, options.now())
    if (!claims) return no(refusals.invalidToken)
    const verdict = judge(claims, trusted, options)
    const revoked = trusted.own && verdict.kind === 'yes' && (await isRevoked(claims, options))
    return revoked ? no(refusals.invalidToken) : verdict
  }
}

function issuerOf(token: string, issuers: readonly TrustedIssuer[]): TrustedIssuer | undefined {
  try {
    const named = trimSlashes(textOf(decodeJwt(token).iss))
    return issuers.find(({ issuer }) => trimSlashes(issuer) === named)
  } catch {
    return undefined
  }
}

const loginOf = (claims: JWTPayload): string | null => textOf(claims['sid']) || null

const isRevoked = (claims: JWTPayload, { revokedTokens }: OidcOptions): Promise<boolean> =>
  revokedTokens.isRevoked({
    jti: textOf(claims.jti),
    loginId: loginOf(claims),
    issuedAt: claims.iat ?? 0,
  })

const aboutTheToken = [
  errors.JWTExpired,
  errors.JWTClaimValidationFailed,
  errors.JWTInvalid,
  errors.JWSInvalid,
  errors.JOSEAlgNotAllowed,
  errors.JWSSignatureVerificationFailed,
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
  errors.JOSENotSupported,
]

// Null when the token is at fault; whatever keeps us from judging it is thrown.
async function verified(
  token: string,
  { keys, audience }: TrustedIssuer,
  now: Date,
): Promise<JWTPayload | null> {
  try {
    const { payload } = await jwtVerify(token, keys, {
      algorithms: [...algorithms],
      typ: 'at+jwt',
      audience: [audience, trimSlashes(audience), `${trimSlashes(audience)}/`],
      requiredClaims: ['exp'],
      clockTolerance: toleranceSeconds,
      currentDate: now,
    })
    return payload
  } catch (error) {
    if (aboutTheToken.some((kind) => error instanceof kind)) return null
    throw error
  }
}

function judge(
  claims: JWTPayload,
  trusted: TrustedIssuer,
  { clientIdClaim, subjectClaim, now }: OidcOptions,
): Verdict {
  const use = claims['token_use']
  if (trusted.own && use !== 'user' && use !== 'signer') return no(refusals.invalidToken)
  if (!scopesOf(claims).includes(scopeNeeded)) return no(refusals.insufficientScope)
  // Never the audience: it would let one tenant's token speak for another.
  const clientId = textOf(claims[clientIdClaim]) || textOf(claims['client_id'])
  const externalUserId = textOf(claims[subjectClaim])
  if (!clientId || !externalUserId) return no(refusals.invalidIdentity)
  const expiresAt = Math.floor(claims.exp ?? 0)
  const identity = {
    issuer: trimSlashes(trusted.issuer),
    clientId,
    externalUserId,
    userId: trusted.own ? loginOf(claims) : null,
    keyId: trusted.own ? textOf(claims.jti) || null : null,
    // A token that does not say when it was issued is older than any revocation.
    issuedAt: typeof claims.iat === 'number' ? Math.floor(claims.iat) : 0,
    expiresAt,
    keepUntil: Math.min(expiresAt * 1000, now().getTime() + cacheSeconds * 1000),
  }
  return { kind: 'yes', identity, source: 'local' }
}

function scopesOf(claims: JWTPayload): readonly unknown[] {
  const scope = claims['scope']
  if (typeof scope === 'string') return scope.split(' ')
  return Array.isArray(scope) ? scope : []
}
