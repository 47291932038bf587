import { DomainError } from '../../../proto/errors.ts'
import type { IntrospectTokenResponse } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import { toSeconds } from '../../lib/time.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { type TokenFamilies, refreshPrefix } from '../login/token-families.ts'
import { type SignerSessions, sessionPrefix } from '../sessions/signer-sessions.ts'
import { stillAllowed } from '../scopes.ts'
import type { Subjects } from '../subjects.ts'
import type { Shared } from '../../shared/shared.ts'

type Deps = Shared & {
  readonly jwts: Jwts
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Subjects
  readonly sessions: SignerSessions
  readonly families: Pick<TokenFamilies, 'findRefreshToken'>
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

/** RFC 7662. Another app's token is reported as inactive, like an unknown token. */
export function createIntrospection(deps: Deps) {
  const { pool, jwts, clients, subjects, sessions, families, now } = deps

  async function introspect(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    try {
      if (token.startsWith(sessionPrefix)) return await signerSession(caller, token)
      if (token.startsWith(refreshPrefix)) return await refreshToken(caller, token)
      return await jwt(caller, token)
    } catch (error) {
      if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return inactive
      throw error
    }
  }

  async function jwt(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const claims = await jwts.verify(token, ['user', 'signer', 'machine'])
    const isOwn =
      claims.use === 'machine'
        ? claims.clientId === caller.m2mClientId
        : claims.clientId === caller.clientId
    if (!isOwn) return inactive
    if (claims.use !== 'machine') await subjects.ofJwt(claims)
    return {
      active: true,
      clientId: claims.clientId,
      sub: claims.sub,
      scope: claims.scopes.join(' '),
      tokenType: 'Bearer',
      exp: BigInt(claims.exp),
      iat: BigInt(claims.iat),
      iss: jwts.issuer,
      aud: jwts.issuer,
      jti: claims.jti,
      externalUserId: claims.externalUserId ?? '',
    }
  }

  async function signerSession(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const session = await sessions.verify(token)
    if (!session || session.appId !== caller.appId) return inactive
    return {
      active: true,
      clientId: session.clientId,
      sub: session.userId,
      scope: session.scope,
      tokenType: 'Bearer',
      exp: BigInt(toSeconds(session.expiresAt)),
      iat: BigInt(toSeconds(session.createdAt)),
      iss: jwts.issuer,
      aud: '',
      jti: session.id,
      externalUserId: session.externalUserId,
    }
  }

  async function refreshToken(caller: M2mCaller, token: string): Promise<IntrospectTokenResponse> {
    const row = await families.findRefreshToken(token)
    const isValid =
      row !== null &&
      row.app_id === caller.appId &&
      row.rotated_at === null &&
      row.ended_at === null &&
      row.expires_at > now()
    if (!isValid) return inactive
    const user = await subjects.findUser(pool, {
      appId: row.app_id,
      userId: row.user_id,
      issuedAt: row.begun_at,
      grants: row.grants,
    })
    const client = await clients.findPublic(row.client_id)
    if (!user || !client) return inactive
    return {
      active: true,
      clientId: row.client_id,
      sub: user.id,
      scope: stillAllowed(row.scope, client.scopes),
      tokenType: 'refresh_token',
      exp: BigInt(toSeconds(row.expires_at)),
      iat: BigInt(toSeconds(row.created_at)),
      iss: jwts.issuer,
      aud: '',
      jti: '',
      externalUserId: user.externalUserId,
    }
  }

  return { introspect }
}

export type Introspection = ReturnType<typeof createIntrospection>
