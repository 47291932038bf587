import { DomainError } from '../../../proto/errors.ts'
import type { ClientCaller } from '../../rpc/callers.ts'
import type { Actor } from '../../platform/audit.ts'
import type { AppId } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import { endFamily } from '../login/store.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { type TokenFamilies, refreshPrefix } from '../login/token-families.ts'
import { type SignerSessions, sessionPrefix } from '../sessions/signer-sessions.ts'
import { revokeJwt } from './store.ts'

export interface RevocationDeps {
  readonly pool: Pool
  readonly jwts: Jwts
  readonly clients: Pick<Clients, 'findPublic'>
  readonly sessions: SignerSessions
  readonly families: Pick<TokenFamilies, 'findRefreshToken'>
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly now: Now
}

/** The client that revokes, with the ids of both clients of its app when it authenticated. */
interface Revoker {
  readonly appId: AppId
  readonly clientIds: readonly string[]
  readonly actor: Actor
}

/** RFC 7009. The answer is the same for every token; only tokens of the client's own app end. */
export function createRevocation(deps: RevocationDeps) {
  const { pool, jwts, clients, sessions, families, invalidations, now } = deps

  async function revoke(
    request: { token: string; clientId: string | undefined },
    credentials: ClientCaller,
    context: Context,
  ): Promise<void> {
    const revoker = await identify(request.clientId, credentials, context)
    if (request.token.startsWith(sessionPrefix)) return endSession(revoker, request.token)
    if (request.token.startsWith(refreshPrefix)) return endLogin(revoker, request.token)
    return endJwt(revoker, request.token)
  }

  async function identify(
    clientId: string | undefined,
    credentials: ClientCaller,
    context: Context,
  ): Promise<Revoker> {
    const caller = await credentials.authenticate()
    if (caller) {
      return {
        appId: caller.appId,
        clientIds: [caller.clientId, caller.m2mClientId],
        actor: { name: caller.m2mClientId, context },
      }
    }
    const client = clientId === undefined ? null : await clients.findPublic(clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'client authentication failed')
    return {
      appId: client.appId,
      clientIds: [client.clientId],
      actor: { name: client.clientId, context },
    }
  }

  async function endSession({ appId, actor }: Revoker, token: string): Promise<void> {
    const session = await sessions.verify(token)
    if (session?.appId === appId)
      await sessions.end({ appId, id: session.userId }, session.id, actor)
  }

  async function endLogin({ appId }: Revoker, token: string): Promise<void> {
    const row = await families.findRefreshToken(token)
    if (row?.app_id !== appId) return
    await endFamily(pool, row.family_id, now())
    await invalidations.publish({ kind: 'token', id: row.family_id })
  }

  async function endJwt({ clientIds }: Revoker, token: string): Promise<void> {
    const claims = await jwts
      .verify(token, ['user', 'signer', 'machine'])
      .catch((error: unknown) => {
        if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
        throw error
      })
    if (!claims || !clientIds.includes(claims.clientId)) return
    await revokeJwt(pool, { jti: claims.jti, expiresAt: new Date(claims.exp * 1000) })
    await invalidations.publish({ kind: 'token', id: claims.jti })
  }

  return { revoke }
}

export type Revocation = ReturnType<typeof createRevocation>
