import { hash } from 'node:crypto'
import type { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { User } from '../../identity/types.ts'
import { isSecret, newSecret } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { audit } from '../../shared/audit.ts'
import type { EndCause } from '../../shared/lineage/grants.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { splitScopes } from '../scopes.ts'
import * as store from './store.ts'

export const refreshPrefix = 'svc_rt_'
const refreshHash = (token: string): Buffer => hash('sha256', token, 'buffer')

type Deps = Shared & {
  readonly jwts: Jwts
  readonly findAccount: (id: string) => Promise<{ email: string; name: string } | null>
  readonly ttlSeconds: number
  readonly refreshTtlSeconds: number
}

/** One login, with the data that all its tokens share. */
export interface TokenFamily {
  readonly id: string
  readonly user: User
  readonly clientId: string
  /**
   * Id of the app's own client, which identifies the app in the access token; `clientId` may be a
   * registered client.
   */
  readonly publicClientId: string
  /** The account that logged in; null if the app's backend approved the login. */
  readonly accountId: string | null
  readonly scope: string
  readonly authTime: Date
  readonly nonce: string | null
  /** Ids that the login descends from. */
  readonly grants: readonly string[]
}

type NewLogin = Pick<TokenFamily, 'id' | 'user' | 'authTime' | 'grants'>

/**
 * The outcome of redeeming a code or a refresh token: tokens, or a refusal that may also end a
 * login.
 */
export type Redemption =
  | { readonly family: TokenFamily; readonly refreshToken: string | undefined }
  | { readonly refusal: DomainError }

/**
 * Tokens of interactive logins. The tokens of one login form a family, which ends as a whole
 * (RFC 9700 section 4.14.2).
 */
export function createTokenFamilies(deps: Deps) {
  const { pool, jwts, grants, findAccount, ttlSeconds, refreshTtlSeconds, now } = deps

  /**
   * Redeems in one transaction, then signs the tokens. Throws a refusal only after the commit,
   * because it may have changed rows.
   */
  async function redeem(step: (db: Db) => Promise<Redemption>) {
    const redemption = await tx(pool, step)
    if ('family' in redemption) return signTokens(redemption.family, redemption.refreshToken)
    throw redemption.refusal
  }

  /**
   * Ends a login with everything that descends from it, and adds an audit entry. Does nothing if it
   * has already ended.
   */
  async function end(
    db: Db,
    { id, cause, actor }: { id: string; cause: EndCause; actor: string },
  ): Promise<void> {
    const at = now()
    const appId = await store.endFamily(db, id, at)
    if (appId === null) return
    await grants.end(db, [{ id, cause, at }])
    const entry = { appId, actor, action: 'login_ended', status: 'success', at } as const
    await audit(db, { ...entry, details: { loginId: id, cause } })
  }

  /**
   * Same as `end`, for a code or a refresh token that was used a second time. Returns `refusal`.
   */
  async function endReused(
    db: Db,
    reuse: { id: string; cause: 'code_reused' | 'refresh_token_reused'; actor: string },
    refusal: DomainError,
  ): Promise<Redemption> {
    await end(db, reuse)
    return { refusal }
  }

  /**
   * Begins a family in the transaction that consumes its code, and returns its expiry. The family
   * starts at the time of the person's login or decision, not now: a revocation of everything
   * before some time may be committed later than that time.
   */
  async function begin(db: Db, login: NewLogin): Promise<Date> {
    const { id, user, authTime: at, grants: lineage } = login
    const expiresAt = addSeconds(now(), refreshTtlSeconds)
    const { appId, id: userId } = user
    await store.insertFamily(db, { id, appId, userId, grants: lineage, at, expiresAt })
    return expiresAt
  }

  /** Adds a refresh token, which expires with the family. */
  async function addRefreshToken(
    db: Db,
    family: TokenFamily & { accountId: string },
    expiresAt: Date,
  ): Promise<string> {
    const token = newSecret(refreshPrefix)
    await store.insertRefreshToken(db, {
      hash: refreshHash(token),
      familyId: family.id,
      clientId: family.clientId,
      accountId: family.accountId,
      scope: family.scope,
      authTime: family.authTime,
      at: now(),
      expiresAt,
    })
    return token
  }

  /**
   * Finds a refresh token with its family; null for an unknown token. Rejects a wrong checksum
   * without a look-up.
   */
  const findRefreshToken = async (token: string): Promise<store.RefreshTokenRow | null> =>
    isSecret(token, refreshPrefix) ? store.findRefreshToken(pool, refreshHash(token)) : null

  /** Same as `findRefreshToken`, but locks both rows until the transaction ends. */
  const lockRefreshToken = (db: Db, token: string): Promise<store.RefreshTokenRow | null> =>
    store.lockRefreshToken(db, refreshHash(token))

  /** Marks a refresh token as used. */
  const rotateRefreshToken = (db: Db, token: string): Promise<void> =>
    store.rotateRefreshToken(db, refreshHash(token), now())

  async function signTokens(family: TokenFamily, refreshToken: string | undefined) {
    const { user, clientId, publicClientId, scope } = family
    const access = await jwts.sign({
      sub: user.id,
      clientId: publicClientId,
      authorizedParty: clientId,
      externalUserId: user.externalUserId,
      scope,
      use: 'user',
      ttlSeconds,
      familyId: family.id,
      grants: family.grants,
      voidedBefore: user.tokensValidAfter,
    })
    const scopes = splitScopes(scope)
    const idToken = scopes.includes(Scope.openid)
      ? await jwts.signIdToken({
          sub: user.id,
          clientId,
          ttlSeconds,
          authTime: family.authTime,
          nonce: family.nonce,
          claims: await personalClaims(family.accountId, scopes),
        })
      : undefined
    return { ...access, idToken, refreshToken }
  }

  /**
   * Returns the claims about the person that the scopes allow (OpenID Connect Core section 5.4).
   */
  async function personalClaims(
    accountId: string | null,
    scopes: readonly string[],
  ): Promise<Record<string, string | boolean>> {
    const account = accountId === null ? null : await findAccount(accountId)
    return {
      ...(account && scopes.includes(Scope.email)
        ? { email: account.email, email_verified: false }
        : {}),
      ...(account && scopes.includes(Scope.profile) && account.name !== ''
        ? { name: account.name }
        : {}),
    }
  }

  return {
    redeem,
    end,
    endReused,
    begin,
    addRefreshToken,
    findRefreshToken,
    lockRefreshToken,
    rotateRefreshToken,
    personalClaims,
  }
}

export type TokenFamilies = ReturnType<typeof createTokenFamilies>
