import { type JWTPayload, type JWTVerifyGetKey, decodeJwt, errors, jwtVerify } from 'jose'
import {
  foreignAlgorithms,
  isForeignType,
  isUnderstood,
  looksLikeToken,
  readScopes,
  timeFault,
  toleranceSeconds,
} from '../../../core/lib/foreign-tokens/form.ts'
import { namedUser } from '../../../core/lib/foreign-tokens/user-claim.ts'
import { readText } from '../../../core/lib/json.ts'
import { slashForms, withoutFinalSlashes } from '../../../core/lib/text/urls.ts'
import { type Now, toSeconds } from '../../../core/lib/time.ts'
import { Scope } from '../../../proto/scopes.ts'
import { type Refusal, refusals } from '../../decision/refusals.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'
import type { ForeignTokens } from '../foreign-tokens.ts'
import type { RevokedTokens } from '../revoked-tokens.ts'
import type { Verdict, Verifier } from './verifier.ts'

/** An issuer whose tokens are accepted, and its keys. */
export interface TrustedIssuer {
  readonly issuer: string
  readonly audience: string
  readonly keys: JWTVerifyGetKey
  /** True for our own issuer. Only its `user` and `signer` tokens identify a user (decision 9). */
  readonly isOurs: boolean
}

export interface OidcOptions {
  readonly issuers: readonly TrustedIssuer[]
  /** Verifies tokens of all other issuers, which an app may trust. */
  readonly foreign: ForeignTokens
  readonly clientIdClaim: string
  readonly subjectClaim: string
  /** Revocations of our own issuer's tokens. */
  readonly revokedTokens: Pick<RevokedTokens, 'isRevoked'>
  /** How long an identity may be cached in memory. */
  readonly rememberSeconds: number
  readonly now: Now
}

const ownType = 'at+jwt'

const no = (refusal: Refusal, rule: string, identity: VerifiedIdentity | null = null): Verdict => ({
  kind: 'no',
  refusal,
  remember: false,
  detail: { rule, identity },
})

/**
 * Verifies JWT access tokens (RFC 9068) of our own issuer and, when configured, of a foreign one.
 * Core verifies tokens of issuers that apps trust. It also verifies tokens of the configured
 * foreign issuer that do not match the deployment's rules, but only with a valid signature, to
 * prevent floods.
 */
export function oidcVerifier(options: OidcOptions): Verifier {
  const verify: Verifier = async ({ credential }) => {
    if (credential.kind !== 'given' || !looksLikeToken(credential.text)) return null
    const trusted = issuerOf(credential.text, options.issuers)
    if (!trusted) return options.foreign(credential.text)
    const { claims, fault } = await verifyToken(credential.text, trusted, options.now())
    const identity = claims && identityOf(claims, trusted, options)
    // An app may trust that issuer with other claims than the deployment does.
    const isUnclaimed = fault === 'token_audience' || (fault === null && !identity)
    if (isUnclaimed && !trusted.isOurs) return options.foreign(credential.text)
    return checkRevocation({ claims, fault }, identity, trusted)
  }

  async function checkRevocation(
    { claims, fault }: CheckedToken,
    identity: VerifiedIdentity | null,
    trusted: TrustedIssuer,
  ): Promise<Verdict> {
    if (fault !== null || !claims) return no(refusals.invalidToken, fault ?? 'token_form', identity)
    const verdict = checkClaims(claims, identity, trusted)
    if (!trusted.isOurs || verdict.kind === 'no') return verdict
    const revoked = await isRevoked(claims, verdict.identity, options)
    return revoked ? no(refusals.invalidToken, 'token_revoked', identity) : verdict
  }

  return verify
}

function issuerOf(token: string, issuers: readonly TrustedIssuer[]): TrustedIssuer | undefined {
  try {
    const named = withoutFinalSlashes(readText(decodeJwt(token).iss))
    return issuers.find(({ issuer }) => withoutFinalSlashes(issuer) === named)
  } catch {
    return undefined
  }
}

const loginOf = (claims: JWTPayload): string | null => readText(claims['sid']) || null

const isRevoked = (
  claims: JWTPayload,
  { grants = [] }: VerifiedIdentity,
  { revokedTokens }: OidcOptions,
): Promise<boolean> =>
  revokedTokens.isRevoked({
    jti: readText(claims.jti),
    loginId: loginOf(claims),
    grants,
    issuedAt: Math.floor(claims.iat ?? 0),
  })

/**
 * Ids whose end also ends a token: those that our own token descends from; the app of a foreign
 * token.
 */
function grantsOf(claims: JWTPayload, clientId: string, trusted: TrustedIssuer): string[] {
  if (!trusted.isOurs) return [clientId]
  const lineage = claims['descends_from']
  const ids = [claims.jti, claims['sid'], ...(Array.isArray(lineage) ? lineage : [])]
  return [...ids.map(readText).filter(Boolean), clientId, `${clientId}:${Scope.signJob}`]
}

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

/** The claims of a token with a valid signature, and its fault; null without one. */
interface CheckedToken {
  readonly claims: JWTPayload | null
  readonly fault: string | null
}

// Throws faults that are not the token's.
async function verifyToken(
  token: string,
  { keys, audience, isOurs }: TrustedIssuer,
  now: Date,
): Promise<CheckedToken> {
  try {
    const { payload, protectedHeader } = await jwtVerify(token, keys, {
      algorithms: [...foreignAlgorithms],
      ...(isOurs ? { typ: ownType } : {}),
      audience: slashForms(audience),
      requiredClaims: ['exp'],
      clockTolerance: toleranceSeconds,
      currentDate: now,
    })
    const isAccessToken = isOurs || isForeignType(protectedHeader.typ)
    const hasForm = isAccessToken && isUnderstood({ header: protectedHeader })
    if (!hasForm) return { claims: payload, fault: 'token_form' }
    const time = timeFault({ claims: payload }, toSeconds(now))
    return { claims: payload, fault: time === null ? null : 'token_expired' }
  } catch (error) {
    if (tokenErrors.some((kind) => error instanceof kind)) return checkedToken(error)
    throw error
  }
}

// jose checks claims after the signature, so these two errors contain signed claims.
function checkedToken(error: unknown): CheckedToken {
  if (error instanceof errors.JWTExpired) return { claims: error.payload, fault: 'token_expired' }
  if (error instanceof errors.JWTClaimValidationFailed)
    return {
      claims: error.payload,
      fault: error.claim === 'aud' ? 'token_audience' : 'token_claim',
    }
  const isUnsigned =
    error instanceof errors.JWSSignatureVerificationFailed ||
    error instanceof errors.JWKSNoMatchingKey
  return { claims: null, fault: isUnsigned ? 'token_signature' : 'token_form' }
}

function checkClaims(
  claims: JWTPayload,
  identity: VerifiedIdentity | null,
  trusted: TrustedIssuer,
): Verdict {
  const use = claims['token_use']
  if (trusted.isOurs && use !== 'user' && use !== 'signer')
    return no(refusals.invalidToken, 'token_use', identity)
  if (!readScopes(claims).includes(Scope.signJob))
    return no(refusals.insufficientScope, 'insufficient_scope', identity)
  if (!identity) return no(refusals.invalidIdentity, 'invalid_identity')
  return { kind: 'yes', identity, source: 'token' }
}

/** The identity in the claims; null without one. */
function identityOf(
  claims: JWTPayload,
  trusted: TrustedIssuer,
  options: OidcOptions,
): VerifiedIdentity | null {
  const { clientIdClaim, subjectClaim } = options
  // In our own tokens, azp is the client of the app's person, which may have registered itself.
  // Never use the audience: it would let one tenant's token act for another.
  const clientId =
    (trusted.isOurs ? '' : readText(claims[clientIdClaim])) || readText(claims['client_id'])
  const externalUserId = trusted.isOurs
    ? readText(claims[subjectClaim])
    : namedUser(claims, { userClaim: subjectClaim, userPrefix: '' })
  if (!clientId || !externalUserId) return null
  return {
    issuer: withoutFinalSlashes(trusted.issuer),
    clientId,
    externalUserId,
    grants: grantsOf(claims, clientId, trusted),
    ...endsOf(claims, trusted, options),
  }
}

/** The id and the times of a token. */
function endsOf(claims: JWTPayload, trusted: TrustedIssuer, { rememberSeconds, now }: OidcOptions) {
  const expiresAt = Math.floor(claims.exp ?? 0)
  return {
    keyId: trusted.isOurs ? readText(claims.jti) || null : null,
    // Treat a token without an issue time as older than any revocation.
    issuedAt: typeof claims.iat === 'number' ? Math.floor(claims.iat) : 0,
    expiresAt,
    keepUntil: Math.min(expiresAt * 1000, now().getTime() + rememberSeconds * 1000),
  }
}
