import { randomUUID } from 'node:crypto'
import { type JWTPayload, SignJWT, errors, jwtVerify } from 'jose'
import { DomainError } from '../../../proto/errors.ts'
import { isUuid } from '../../shared/ids.ts'
import { createCallBatcher } from '../../lib/concurrency.ts'
import { isUnderstood } from '../../lib/foreign-tokens/form.ts'
import { toSeconds } from '../../lib/time.ts'
import { scopeGrant } from '../../shared/lineage/grants.ts'
import type { Shared } from '../../shared/shared.ts'
import { type TokenEnds, findStates } from './state-store.ts'
import { splitScopes } from '../scopes.ts'
import type { SigningKey, SigningKeys } from './signing-keys.ts'
import { type IssuedToken, type TokenUse, signingAlgorithms } from '../types.ts'
import type { PublicJwk } from './store.ts'

type Deps = Pick<Shared, 'pool' | 'now'> & {
  readonly issuer: string
  readonly signingKeys: SigningKeys
}

export interface NewToken {
  readonly sub: string
  readonly clientId: string
  /** Registered client that gets the token. Default is `clientId`. */
  readonly authorizedParty?: string
  readonly externalUserId?: string
  readonly scope: string
  readonly use: 'machine' | 'user' | 'signer'
  readonly ttlSeconds: number
  /** Latest expiry, in Unix seconds. */
  readonly notAfter?: number
  /**
   * The user's `tokensValidAfter`. `iat` is not before it, because an earlier token would count as
   * revoked.
   */
  readonly voidedBefore?: Date | null
  /** The login that the token comes from. */
  readonly familyId?: string
  /** Other ids that the token descends from. The token ends with any of these ids. */
  readonly grants?: readonly string[]
}

export interface NewIdToken {
  readonly sub: string
  readonly clientId: string
  readonly ttlSeconds: number
  readonly authTime: Date
  readonly nonce: string | null
  readonly claims: Readonly<Record<string, string | boolean>>
}

/** The claims of a valid JWT of this issuer. */
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
  /** Ids that the token descends from, without its login. */
  readonly grants: readonly string[]
}

const statementTypes = {
  receipt: 'tollgate-receipt+jwt',
  'receipt-root': 'tollgate-receipt-root+jwt',
  'receipt-provisional-root': 'tollgate-receipt-provisional-root+jwt',
} as const
export type StatementKind = keyof typeof statementTypes

export interface SignedStatement {
  /** Compact serialization (RFC 7515 section 7.1). */
  readonly jws: string
  /** The public key that verifies it. */
  readonly jwk: PublicJwk
}

/** Returns the ids that credentials issued for this JWT descend from. */
export const readLineage = ({ grants, familyId, jti }: VerifiedJwt): readonly string[] => [
  ...grants,
  ...(familyId === null ? [] : [familyId]),
  jti,
]

/** Signs and verifies the issuer's JWTs (decision 9, RFC 9068). */
export function createJwts({ issuer, signingKeys, pool, now }: Deps) {
  const readState = createCallBatcher((tokens: TokenEnds[]) => findStates(pool, tokens))

  async function sign(token: NewToken): Promise<IssuedToken> {
    const at = toSeconds(now())
    const exp = Math.min(at + token.ttlSeconds, token.notAfter ?? Infinity)
    const claims = {
      client_id: token.clientId,
      azp: token.authorizedParty ?? token.clientId,
      scope: token.scope,
      token_use: token.use,
      ...(token.externalUserId === undefined ? {} : { external_user_id: token.externalUserId }),
      ...(token.familyId === undefined ? {} : { sid: token.familyId }),
      ...(token.grants?.length ? { descends_from: token.grants } : {}),
    }
    const accessToken = await signJws(await signingKeys.active(), 'at+jwt', {
      ...claims,
      iss: issuer,
      aud: issuer,
      sub: token.sub,
      jti: randomUUID(),
      iat: Math.max(at, Math.ceil((token.voidedBefore?.getTime() ?? 0) / 1000)),
      nbf: at,
      exp,
    })
    return { accessToken, tokenType: 'Bearer', expiresIn: exp - at, scope: token.scope }
  }

  /** OpenID Connect Core section 2. */
  async function signIdToken(token: NewIdToken): Promise<string> {
    const at = toSeconds(now())
    const claims = {
      azp: token.clientId,
      token_use: 'id',
      auth_time: toSeconds(token.authTime),
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

  /**
   * Signs a statement that is not a token: it has a type that no token has (RFC 8725 section 3.11),
   * and no subject, audience or expiry. Also returns the public key, which is published only until
   * the last token signed with it expires.
   */
  async function signStatement(kind: StatementKind, claims: object): Promise<SignedStatement> {
    const key = await signingKeys.active()
    const jws = await signJws(key, statementTypes[kind], { iss: issuer, ...claims })
    const jwk = (await signingKeys.jwks()).find(({ kid }) => kid === key.kid)
    if (!jwk) throw new Error('the active signing key is not published')
    return { jws, jwk }
  }

  /**
   * Returns the claims of a valid token of this issuer with one of `uses`. Otherwise throws
   * TOKEN_INVALID, without the cause.
   */
  async function verify(token: string, uses: readonly TokenUse[]): Promise<VerifiedJwt> {
    try {
      const { payload, protectedHeader } = await jwtVerify(
        token,
        async (header) => {
          const known =
            header.kid === undefined ? null : await signingKeys.findPublicKey(header.kid)
          if (!known || known.alg !== header.alg) throw new errors.JWKSNoMatchingKey()
          return known.key
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
      if (use === undefined || !isUnderstood({ header: protectedHeader })) throw invalidToken()
      return await withoutEnded(readClaims(payload, use))
    } catch (error) {
      if (error instanceof errors.JOSEError) throw invalidToken(error)
      throw error
    }
  }

  /**
   * Removes scopes that the client has lost. Throws TOKEN_INVALID when something that the token
   * descends from has ended.
   */
  async function withoutEnded(jwt: VerifiedJwt): Promise<VerifiedJwt> {
    const { clientId, familyId } = jwt
    const ofScopes = jwt.scopes.map((scope) => scopeGrant(clientId, scope))
    const { ended, isLoginLive } = await readState({
      ids: [...readLineage(jwt), clientId, ...ofScopes],
      familyId,
      issuedAt: new Date(jwt.iat * 1000),
    })
    const scopes = jwt.scopes.filter((scope) => !ended.includes(scopeGrant(clientId, scope)))
    const lostScopes = jwt.scopes.length - scopes.length
    const isOver = ended.length > lostScopes || (lostScopes > 0 && scopes.length === 0)
    if (isOver || !isLoginLive) throw invalidToken()
    return { ...jwt, scopes }
  }

  /** Whether something that the JWT descends from has ended. */
  async function isVoidToken(token: TokenEnds): Promise<boolean> {
    const { ended, isLoginLive } = await readState(token)
    return ended.length > 0 || !isLoginLive
  }

  return { issuer, sign, signIdToken, signStatement, verify, isVoidToken }
}

export type Jwts = ReturnType<typeof createJwts>

export const invalidToken = (cause?: unknown): DomainError =>
  new DomainError('TOKEN_INVALID', 'the token is not valid, or has expired', { cause })

const readClaims = (payload: JWTPayload, use: TokenUse): VerifiedJwt => ({
  use,
  familyId: typeof payload['sid'] === 'string' && isUuid(payload['sid']) ? payload['sid'] : null,
  grants: textsOf(payload['descends_from']),
  sub: String(payload.sub),
  clientId: String(payload['client_id']),
  jti: String(payload.jti),
  externalUserId:
    typeof payload['external_user_id'] === 'string' ? payload['external_user_id'] : null,
  scopes: splitScopes(String(payload['scope'] ?? '')),
  iat: payload.iat ?? 0,
  exp: payload.exp ?? 0,
})

const textsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []

/** Creates a JWS in compact serialization (RFC 7515 section 3.1). */
const signJws = ({ kid, alg, key }: SigningKey, typ: string, claims: object): Promise<string> =>
  new SignJWT({ ...claims }).setProtectedHeader({ alg, kid, typ }).sign(key)
