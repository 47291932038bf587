import { DomainError } from '../../../proto/errors.ts'
import type { ClientCaller } from '../../rpc/callers.ts'
import type { Actor } from '../../platform/audit.ts'
import { type AppId, appId, isClientId } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { isSecret } from '../../lib/crypto.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import { findPublicClient } from '../login/client-store.ts'
import { endFamily, findRefreshToken, revokeJwt } from '../login/family-store.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { refreshHash, refreshPrefix } from '../login/login.ts'
import { type SignerSessions, sessionPrefix } from '../sessions/signer-sessions.ts'

export interface RevocationDeps {
  readonly pool: Pool
  readonly jwts: Jwts
  readonly sessions: SignerSessions
  readonly invalidations: Invalidations
  readonly now: Now
}

interface Asking {
  readonly appId: AppId
  readonly clientIds: readonly string[]
  readonly actor: Actor
}

/** RFC 7009. Whatever the token is, the answer is the same; only the asking app's own tokens end. */
export function createRevocation({ pool, jwts, sessions, invalidations, now }: RevocationDeps) {
  async function revoke(
    request: { token: string; clientId: string | undefined },
    client: ClientCaller,
    context: Context,
  ): Promise<void> {
    const asking = await whoAsks(request.clientId, client, context)
    if (request.token.startsWith(sessionPrefix)) return session(asking, request.token)
    if (request.token.startsWith(refreshPrefix)) return refresh(asking, request.token)
    return jwt(asking, request.token)
  }

  async function whoAsks(
    clientId: string | undefined,
    client: ClientCaller,
    context: Context,
  ): Promise<Asking> {
    const caller = await client.authenticate()
    if (caller) {
      return {
        appId: caller.appId,
        clientIds: [caller.clientId, caller.m2mClientId],
        actor: { name: caller.m2mClientId, context },
      }
    }
    const found =
      clientId !== undefined && isClientId(clientId) ? await findPublicClient(pool, clientId) : null
    if (!found) throw new DomainError('CREDENTIAL_INVALID', 'client authentication failed')
    return {
      appId: appId(found.app_id),
      clientIds: [found.client_id],
      actor: { name: found.client_id, context },
    }
  }

  async function session({ appId, actor }: Asking, token: string): Promise<void> {
    const found = await sessions.verify(token)
    if (found?.appId === appId) await sessions.end({ appId, id: found.userId }, found.id, actor)
  }

  async function refresh({ appId }: Asking, token: string): Promise<void> {
    const found = isSecret(token, refreshPrefix)
      ? await findRefreshToken(pool, refreshHash(token))
      : null
    if (found?.app_id !== appId) return
    await endFamily(pool, found.family_id, now())
    await invalidations.publish({ kind: 'token', id: found.family_id })
  }

  async function jwt({ clientIds }: Asking, token: string): Promise<void> {
    const found = await jwts
      .verify(token, ['user', 'signer', 'machine'])
      .catch((error: unknown) => {
        if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
        throw error
      })
    if (!found || !clientIds.includes(found.clientId)) return
    await revokeJwt(pool, { jti: found.jti, expiresAt: new Date(found.exp * 1000) })
    await invalidations.publish({ kind: 'token', id: found.jti })
  }

  return { revoke }
}

export type Revocation = ReturnType<typeof createRevocation>
