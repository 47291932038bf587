import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/members/login-policy.ts'
import { isSecret } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import { type Redemption, type TokenFamilies, refreshPrefix } from '../login/token-families.ts'
import { chooseScopes, splitScopes, stillAllowed } from '../scopes.ts'
import type { Subjects } from '../subjects.ts'
import type { Shared } from '../../shared/shared.ts'

export interface RefreshRequest {
  readonly clientId: string
  readonly refreshToken: string
  readonly scope: string | undefined
}

type Deps = Shared & {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Subjects
  readonly families: TokenFamilies
  readonly loginPolicy: Pick<LoginAdmission, 'admitsStill'>
}

/**
 * RFC 6749 section 6. Each token can be used once; a second use ends the login (RFC 9700 section
 * 4.14.2).
 */
export function createRefreshTokenGrant(deps: Deps) {
  const { clients, subjects, families, loginPolicy, now } = deps

  async function redeem(request: RefreshRequest) {
    const client = await clients.findPublic(request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grantTypes.includes(GrantType.refreshToken))
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not refresh')
    if (!isSecret(request.refreshToken, refreshPrefix)) throw invalidRefresh()
    return families.redeem((db) => step(db, client, request))
  }

  async function step(db: Db, client: PublicClient, request: RefreshRequest): Promise<Redemption> {
    const token = await families.lockRefreshToken(db, request.refreshToken)
    if (!token || token.client_id !== request.clientId) return { refusal: invalidRefresh() }
    if (token.rotated_at !== null) {
      const { family_id: id, client_id: actor } = token
      return families.endReused(db, { id, cause: 'refresh_token_reused', actor }, invalidRefresh())
    }
    if (token.ended_at !== null || token.expires_at <= now()) return { refusal: invalidRefresh() }
    const user = await subjects.findUser(db, {
      appId: token.app_id,
      userId: token.user_id,
      issuedAt: token.begun_at,
      grants: token.grants,
    })
    const grantable = splitScopes(stillAllowed(token.scope, client.scopes))
    const isAdmitted =
      user !== null && (await loginPolicy.admitsStill(db, client, token.account_id))
    if (!isAdmitted || grantable.length === 0) return { refusal: invalidRefresh() }
    const scope = chooseScopes(request.scope, { grantable, fallback: grantable })
    await families.rotateRefreshToken(db, request.refreshToken)
    const family = {
      id: token.family_id,
      user,
      clientId: token.client_id,
      publicClientId: client.publicClientId,
      accountId: token.account_id,
      scope: token.scope,
      authTime: token.auth_time,
      nonce: null,
      grants: token.grants,
    }
    const refreshToken = await families.addRefreshToken(db, family, token.expires_at)
    return { family: { ...family, scope }, refreshToken }
  }

  return { redeem }
}

export type RefreshTokenGrant = ReturnType<typeof createRefreshTokenGrant>

const invalidRefresh = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the refresh token is not valid, or was used before')
