import { DomainError } from '../../../proto/errors.ts'
import type { IntrospectTokenResponse } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import { isSecret } from '../../lib/crypto.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, secondsOf } from '../../lib/time.ts'
import { findActiveUser } from '../login/client-store.ts'
import { findRefreshToken } from '../login/family-store.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { refreshHash, refreshPrefix } from '../login/login.ts'
import { type SignerSessions, sessionPrefix } from '../sessions/signer-sessions.ts'
import type { Subjects } from '../subjects.ts'

export interface IntrospectionDeps {
  readonly pool: Pool
  readonly jwts: Jwts
  readonly subjects: Subjects
  readonly sessions: SignerSessions
  readonly now: Now
}

const inactive: IntrospectTokenResponse = {
  active: false,
  clientId: '',
  sub: '',
  scope: '',
  tokenType: '',
  exp: 0n,
  iat: 0n,
  iss: '',
  aud: '',
  jti: '',
  externalUserId: '',
}

/** RFC 7662. What is not the asking app's own is not active, whatever it is. */
export function createIntrospection({ pool, jwts, subjects, sessions, now }: IntrospectionDeps) {
  async function introspect(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    try {
      if (token.startsWith(sessionPrefix)) return await session(caller, token)
      if (token.startsWith(refreshPrefix)) return await refresh(caller, token)
      return await jwt(caller, token)
    } catch (error) {
      if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return inactive
      throw error
    }
  }

  async function jwt(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const found = await jwts.verify(token, ['user', 'signer', 'machine'])
    const own =
      found.use === 'machine'
        ? found.clientId === caller.m2mClientId
        : found.clientId === caller.clientId
    if (!own) return inactive
    if (found.use !== 'machine') await subjects.ofUser(found)
    return {
      active: true,
      clientId: found.clientId,
      sub: found.sub,
      scope: found.scopes.join(' '),
      tokenType: 'Bearer',
      exp: BigInt(found.exp),
      iat: BigInt(found.iat),
      iss: jwts.issuer,
      aud: jwts.issuer,
      jti: found.jti,
      externalUserId: found.externalUserId ?? '',
    }
  }

  async function session(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const found = await sessions.verify(token)
    if (!found || found.appId !== caller.appId) return inactive
    return {
      active: true,
      clientId: found.clientId,
      sub: found.userId,
      scope: found.scope,
      tokenType: 'Bearer',
      exp: BigInt(secondsOf(found.expiresAt)),
      iat: BigInt(secondsOf(found.createdAt)),
      iss: jwts.issuer,
      aud: '',
      jti: found.id,
      externalUserId: found.externalUserId,
    }
  }

  async function refresh(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const found = isSecret(token, refreshPrefix)
      ? await findRefreshToken(pool, refreshHash(token))
      : null
    const live =
      found &&
      found.app_id === caller.appId &&
      found.rotated_at === null &&
      found.ended_at === null &&
      found.expires_at > now()
    const user = live
      ? await findActiveUser(pool, { appId: found.app_id, id: found.user_id })
      : null
    if (
      !found ||
      !user ||
      (user.tokensValidAfter !== null && user.tokensValidAfter > found.created_at)
    )
      return inactive
    return {
      active: true,
      clientId: found.client_id,
      sub: user.id,
      scope: found.scope,
      tokenType: 'refresh_token',
      exp: BigInt(secondsOf(found.expires_at)),
      iat: BigInt(secondsOf(found.created_at)),
      iss: jwts.issuer,
      aud: '',
      jti: '',
      externalUserId: user.externalUserId,
    }
  }

  return { introspect }
}

export type Introspection = ReturnType<typeof createIntrospection>
