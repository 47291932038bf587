import { type JWTPayload, type JWTVerifyGetKey, decodeJwt, errors, jwtVerify } from 'jose'
import { textOf } from '../../../core/lib/json.ts'
import type { Now } from '../../../core/lib/time.ts'
import { Scope } from '../../../proto/scopes.ts'
import { type Refusal, refusals } from '../../authorize/refusals.ts'
import type { RevokedTokens } from '../revoked-tokens.ts'
import type { Verdict, Verifier } from './verifier.ts'

/** An issuer whose tokens are accepted, and its keys. */
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
    const claims = await verifyToken(credential.text, trusted, options.now())
    if (!claims) return no(refusals.invalidToken)
    const verdict = judgeClaims(claims, trusted, options)
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

const tokenErrors = [
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

// Null when the token is at fault; throws when the fault is elsewhere.
async function verifyToken(
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
    if (tokenErrors.some((kind) => error instanceof kind)) return null
    throw error
  }
}

function judgeClaims(claims: JWTPayload, trusted: TrustedIssuer, options: OidcOptions): Verdict {
  const { clientIdClaim, subjectClaim } = options
  const use = claims['token_use']
  if (trusted.own && use !== 'user' && use !== 'signer') return no(refusals.invalidToken)
  if (!scopesOf(claims).includes(Scope.signJob)) return no(refusals.insufficientScope)
  // Never the audience: it would let one tenant's token speak for another.
  const clientId = textOf(claims[clientIdClaim]) || textOf(claims['client_id'])
  const externalUserId = textOf(claims[subjectClaim])
  if (!clientId || !externalUserId) return no(refusals.invalidIdentity)
  const identity = {
    issuer: trimSlashes(trusted.issuer),
    clientId,
    externalUserId,
    ...endsOf(claims, trusted, options),
  }
  return { kind: 'yes', identity, source: 'token' }
}

/** The ids and times that end the identity of a token. */
function endsOf(claims: JWTPayload, trusted: TrustedIssuer, { now }: OidcOptions) {
  const expiresAt = Math.floor(claims.exp ?? 0)
  return {
    userId: trusted.own ? loginOf(claims) : null,
    keyId: trusted.own ? textOf(claims.jti) || null : null,
    // A token that does not say when it was issued is older than any revocation.
    issuedAt: typeof claims.iat === 'number' ? Math.floor(claims.iat) : 0,
    expiresAt,
    keepUntil: Math.min(expiresAt * 1000, now().getTime() + cacheSeconds * 1000),
  }
}

function scopesOf(claims: JWTPayload): readonly unknown[] {
  const scope = claims['scope']
  if (typeof scope === 'string') return scope.split(' ')
  return Array.isArray(scope) ? scope : []
}
