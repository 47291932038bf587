import { randomUUID } from 'node:crypto'
import { errors, jwtVerify } from 'jose'
import { DomainError } from '../../../proto/errors.ts'
import { isUuid } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, secondsOf } from '../../lib/time.ts'
import { isVoid } from '../login/family-store.ts'
import { signJws } from './jws.ts'
import { splitScopes } from '../scopes.ts'
import type { SigningKeys } from './signing-keys.ts'
import { type IssuedToken, type TokenUse, signingAlgorithms } from '../types.ts'

export interface JwtsDeps {
  readonly issuer: string
  readonly signingKeys: SigningKeys
  readonly pool: Pool
  readonly now: Now
}

export interface NewToken {
  readonly sub: string
  readonly clientId: string
  readonly externalUserId?: string
  readonly scope: string
  readonly use: 'machine' | 'user' | 'signer'
  readonly ttlSeconds: number
  /** Unix seconds; the token ends no later. */
  readonly notAfter?: number
  /** A token must not seem older than what its user's deactivation voided. */
  readonly voidedBefore?: Date | null
  /** The login that it came from. */
  readonly familyId?: string
}

export interface NewIdToken {
  readonly sub: string
  readonly clientId: string
  readonly ttlSeconds: number
  readonly authTime: Date
  readonly nonce: string | null
  readonly claims: Readonly<Record<string, string | boolean>>
}

/** What a live JWT of ours says. */
export interface VerifiedJwt {
  readonly use: TokenUse
  readonly sub: string
  readonly clientId: string
  readonly externalUserId: string | null
  readonly scopes: readonly string[]
  readonly jti: string
  readonly iat: number
  readonly exp: number
  readonly familyId: string | null
}

/** Signs and verifies the issuer's JWTs (decision 9, RFC 9068). */
export function createJwts({ issuer, signingKeys, pool, now }: JwtsDeps) {
  async function sign(token: NewToken): Promise<IssuedToken> {
    const at = secondsOf(now())
    const exp = Math.min(at + token.ttlSeconds, token.notAfter ?? Infinity)
    const claims = {
      client_id: token.clientId,
      azp: token.clientId,
      scope: token.scope,
      token_use: token.use,
      ...(token.externalUserId === undefined ? {} : { external_user_id: token.externalUserId }),
      ...(token.familyId === undefined ? {} : { sid: token.familyId }),
    }
    const accessToken = await signJws(await signingKeys.active(), 'at+jwt', {
      ...claims,
      iss: issuer,
      aud: issuer,
      sub: token.sub,
      jti: randomUUID(),
      iat: Math.max(at, token.voidedBefore ? secondsOf(token.voidedBefore) : 0),
      nbf: at,
      exp,
    })
    return { accessToken, tokenType: 'Bearer', expiresIn: exp - at, scope: token.scope }
  }

  /** OpenID Connect Core section 2. */
  async function signIdToken(token: NewIdToken): Promise<string> {
    const at = secondsOf(now())
    const claims = {
      azp: token.clientId,
      token_use: 'id',
      auth_time: secondsOf(token.authTime),
      ...token.claims,
      ...(token.nonce === null ? {} : { nonce: token.nonce }),
    }
    return signJws(await signingKeys.active(), 'JWT', {
      ...claims,
      iss: issuer,
      aud: token.clientId,
      sub: token.sub,
      jti: randomUUID(),
      iat: at,
      exp: at + token.ttlSeconds,
    })
  }

  /** What a live token of ours with one of those uses says. TOKEN_INVALID for anything else, without saying why. */
  async function verify(token: string, uses: readonly TokenUse[]): Promise<VerifiedJwt> {
    try {
      const { payload } = await jwtVerify(
        token,
        async (header) => {
          const found = header.kid === undefined ? null : await signingKeys.publicKey(header.kid)
          if (!found || found.alg !== header.alg) throw new errors.JWKSNoMatchingKey()
          return found.key
        },
        {
          issuer,
          audience: issuer,
          typ: 'at+jwt',
          algorithms: [...signingAlgorithms],
          currentDate: now(),
          requiredClaims: ['exp', 'iat', 'jti', 'sub', 'client_id', 'token_use'],
        },
      )
      const use = uses.find((known) => known === payload['token_use'])
      const sid = payload['sid']
      const external = payload['external_user_id']
      const familyId = typeof sid === 'string' && isUuid(sid) ? sid : null
      if (use === undefined || (await isVoid(pool, { jti: String(payload.jti), familyId })))
        throw invalidToken()
      return {
        use,
        familyId,
        sub: String(payload.sub),
        clientId: String(payload['client_id']),
        jti: String(payload.jti),
        externalUserId: typeof external === 'string' ? external : null,
        scopes: splitScopes(String(payload['scope'] ?? '')),
        iat: payload.iat ?? 0,
        exp: payload.exp ?? 0,
      }
    } catch (error) {
      if (error instanceof errors.JOSEError) throw invalidToken(error)
      throw error
    }
  }

  /** True for a JWT that was revoked, or whose login has ended. */
  const isVoidToken = (token: { jti: string; familyId: string | null }): Promise<boolean> =>
    isVoid(pool, token)

  return { issuer, sign, signIdToken, verify, isVoidToken }
}

export type Jwts = ReturnType<typeof createJwts>

export const invalidToken = (cause?: unknown): DomainError =>
  new DomainError('TOKEN_INVALID', 'the token is not valid, or has expired', { cause })
