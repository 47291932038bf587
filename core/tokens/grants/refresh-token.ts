import { DomainError } from '../../../proto/errors.ts'
import { isSecret } from '../../lib/crypto.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { findActiveUser, findPublicClient } from '../login/client-store.ts'
import * as store from '../login/family-store.ts'
import { type Logins, type Redeemed, refreshHash, refreshPrefix } from '../login/login.ts'
import { chooseScopes, splitScopes } from '../scopes.ts'

export interface RefreshRequest {
  readonly clientId: string
  readonly refreshToken: string
  readonly scope: string | undefined
}

export interface RefreshTokenDeps {
  readonly pool: Pool
  readonly logins: Logins
  readonly now: Now
}

/** RFC 6749 section 6: each token works once; a second use ends the login (RFC 9700 section 4.14.2). */
export function createRefreshTokenGrant({ pool, logins, now }: RefreshTokenDeps) {
  async function redeem(request: RefreshRequest) {
    const client = await findPublicClient(pool, request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grant_types.includes('refresh_token'))
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not refresh')
    if (!isSecret(request.refreshToken, refreshPrefix)) throw invalidRefresh()
    return logins.redeem((db) => step(db, request))
  }

  async function step(db: Db, request: RefreshRequest): Promise<Redeemed> {
    const hash = refreshHash(request.refreshToken)
    const found = await store.lockRefreshToken(db, hash)
    if (!found || found.client_id !== request.clientId) return { refusal: invalidRefresh() }
    if (found.rotated_at !== null) return logins.end(db, found.family_id, invalidRefresh())
    if (found.ended_at !== null || found.expires_at <= now()) return { refusal: invalidRefresh() }
    const user = await findActiveUser(db, { appId: found.app_id, id: found.user_id })
    if (!user || (user.tokensValidAfter !== null && user.tokensValidAfter > found.created_at))
      return { refusal: invalidRefresh() }
    const granted = splitScopes(found.scope)
    const scope = chooseScopes(request.scope, { grantable: granted, fallback: granted })
    await store.rotateRefreshToken(db, hash, now())
    const login = {
      familyId: found.family_id,
      user,
      clientId: found.client_id,
      accountId: found.account_id,
      scope: found.scope,
      authTime: found.auth_time,
      nonce: null,
    }
    const refreshToken = await logins.addRefresh(db, login, found.expires_at)
    return { login: { ...login, scope }, refreshToken }
  }

  return { redeem }
}

export type RefreshTokenGrant = ReturnType<typeof createRefreshTokenGrant>

const invalidRefresh = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the refresh token is not valid, or was used before')
