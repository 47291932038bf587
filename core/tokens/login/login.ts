import { hash } from 'node:crypto'
import type { DomainError } from '../../../proto/errors.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { newSecret } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type TokenUser, findAccount } from './client-store.ts'
import * as store from './family-store.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { splitScopes } from '../scopes.ts'

export const refreshPrefix = 'svc_rt_'
export const refreshHash = (token: string): Buffer => hash('sha256', token, 'buffer')

export interface LoginsDeps {
  readonly pool: Pool
  readonly jwts: Jwts
  readonly invalidations: Invalidations
  readonly ttlSeconds: number
  readonly refreshTtlSeconds: number
  readonly now: Now
}

export interface Login {
  readonly familyId: string
  readonly user: TokenUser
  readonly clientId: string
  /** Who logged in; null when the app's backend vouched for the user. */
  readonly accountId: string | null
  readonly scope: string
  readonly authTime: Date
  readonly nonce: string | null
}

/** What a grant came to: a login, a refusal, or a refusal with which a login has ended. */
export type Redeemed =
  | { readonly login: Login; readonly refreshToken: string | undefined }
  | { readonly refusal: DomainError; readonly endedFamilyId?: string }

/** What an interactive login ends with: a family of tokens that live and die together. */
export function createLogins({
  pool,
  jwts,
  invalidations,
  ttlSeconds,
  refreshTtlSeconds,
  now,
}: LoginsDeps) {
  /**
   * Redeems in one transaction. A refusal leaves traces too, so it is thrown after the commit; and the end of a login,
   * whose secret was used twice, is told to those who honour its tokens without asking.
   */
  async function redeem(step: (db: Db) => Promise<Redeemed>) {
    const redeemed = await tx(pool, step)
    if ('login' in redeemed) return tokens(redeemed.login, redeemed.refreshToken)
    if (redeemed.endedFamilyId !== undefined)
      await invalidations.publish({ kind: 'token', id: redeemed.endedFamilyId })
    throw redeemed.refusal
  }

  /** Ends the family: its secret was used a second time. */
  async function end(db: Db, familyId: string, refusal: DomainError): Promise<Redeemed> {
    await store.endFamily(db, familyId, now())
    return { refusal, endedFamilyId: familyId }
  }

  /** Begins the family inside the transaction that uses up the code. */
  async function begin(db: Db, family: { id: string; user: TokenUser }): Promise<Date> {
    const at = now()
    const expiresAt = addSeconds(at, refreshTtlSeconds)
    await store.insertFamily(db, {
      id: family.id,
      appId: family.user.appId,
      userId: family.user.id,
      at,
      expiresAt,
    })
    return expiresAt
  }

  /** A new refresh token of the family; it lives as long as the login. */
  async function addRefresh(
    db: Db,
    login: Login & { accountId: string },
    expiresAt: Date,
  ): Promise<string> {
    const token = newSecret(refreshPrefix)
    await store.insertRefreshToken(db, {
      hash: refreshHash(token),
      familyId: login.familyId,
      clientId: login.clientId,
      accountId: login.accountId,
      scope: login.scope,
      authTime: login.authTime,
      at: now(),
      expiresAt,
    })
    return token
  }

  /** The JWTs of a login, and the refresh token that was made with it. */
  async function tokens(login: Login, refreshToken: string | undefined) {
    const { user, clientId, scope, familyId } = login
    const access = await jwts.sign({
      sub: user.id,
      clientId,
      externalUserId: user.externalUserId,
      scope,
      use: 'user',
      ttlSeconds,
      familyId,
      voidedBefore: user.tokensValidAfter,
    })
    const scopes = splitScopes(scope)
    const idToken = scopes.includes('openid')
      ? await jwts.signIdToken({
          sub: user.id,
          clientId,
          ttlSeconds,
          authTime: login.authTime,
          nonce: login.nonce,
          claims: await personal(login.accountId, scopes),
        })
      : undefined
    return { ...access, idToken, refreshToken }
  }

  /** What the granted scopes tell about the person (OpenID Connect Core section 5.4). */
  async function personal(
    accountId: string | null,
    scopes: readonly string[],
  ): Promise<Record<string, string | boolean>> {
    const account = accountId === null ? null : await findAccount(pool, accountId)
    return {
      ...(account && scopes.includes('email')
        ? { email: account.email, email_verified: false }
        : {}),
      ...(account && scopes.includes('profile') && account.name !== ''
        ? { name: account.name }
        : {}),
    }
  }

  return { redeem, end, begin, addRefresh, personal }
}

export type Logins = ReturnType<typeof createLogins>
