import { DomainError } from '../../../proto/errors.ts'
import type { ClientCaller } from '../../rpc/callers.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { tx } from '../../lib/sql.ts'
import type { Context } from '../../rpc/serve.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import type { Keys } from '../../keys/keys.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { type TokenFamilies, refreshPrefix } from '../login/token-families.ts'
import { type SignerSessions, sessionPrefix } from '../sessions/signer-sessions.ts'

type Deps = Shared & {
  readonly jwts: Jwts
  readonly clients: Pick<Clients, 'findPublic'>
  readonly sessions: SignerSessions
  readonly families: Pick<TokenFamilies, 'findRefreshToken' | 'end'>
  readonly keys: Pick<Keys, 'endOfGrants'>
}

/** The revoking client. */
interface Revoker {
  readonly appId: AppId
  /** The client's own id; after authentication, the ids of both clients of its app. */
  readonly clientIds: readonly string[]
  /** Id of the app's own client, which may also end tokens of clients registered with the app. */
  readonly publicClientId: string
  readonly actor: Actor
}

/**
 * RFC 7009. The response is the same for every token. A client ends only tokens of its own app; a
 * registered client ends only its own tokens.
 */
export function createRevocation(deps: Deps) {
  const { pool, jwts, clients, sessions, families, keys, grants, now } = deps

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
        publicClientId: caller.clientId,
        actor: { name: caller.m2mClientId, context },
      }
    }
    const client = clientId === undefined ? null : await clients.findPublic(clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'client authentication failed')
    return {
      appId: client.appId,
      clientIds: [client.clientId],
      publicClientId: client.publicClientId,
      actor: { name: client.clientId, context },
    }
  }

  async function endSession(revoker: Revoker, token: string): Promise<void> {
    const session = await sessions.verify(token)
    if (!session || !mayEnd(revoker, session)) return
    const { id, appId, userId } = session
    await sessions.end({ appId, id: userId }, id, revoker.actor)
  }

  async function endLogin(revoker: Revoker, token: string): Promise<void> {
    const row = await families.findRefreshToken(token)
    if (!row || !mayEnd(revoker, { appId: row.app_id, clientId: row.client_id })) return
    const { name: actor } = revoker.actor
    const end = { id: row.family_id, cause: 'refresh_token_revoked', actor } as const
    await tx(pool, (db) => families.end(db, end))
  }

  /**
   * Ends a JWT and all credentials obtained with it. For a machine token, also revokes the keys
   * created with it.
   */
  async function endJwt({ appId, clientIds, actor }: Revoker, token: string): Promise<void> {
    const claims = await jwts
      .verify(token, ['user', 'signer', 'machine'])
      .catch((error: unknown) => {
        if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
        throw error
      })
    // A registered client's token names the app, and descends from the registered client.
    const owners = claims ? [claims.clientId, ...claims.grants] : []
    if (!claims || !owners.some((id) => clientIds.includes(id))) return
    const { jti, use } = claims
    const at = now()
    await tx(pool, async (db) => {
      await grants.end(db, [{ id: jti, cause: 'token_revoked', at, forever: use === 'machine' }])
      const revokedKeys =
        use === 'machine' ? await keys.endOfGrants(db, { appId, grants: [jti], at }) : 0
      await auditSuccess(db, {
        appId,
        actor,
        action: 'token_revoked',
        at,
        details: { jti, use, revokedKeys },
      })
    })
  }

  return { revoke }
}

/** Whether the token was issued to this client, or the revoker is the app's own client. */
const mayEnd = (
  { appId, clientIds, publicClientId }: Revoker,
  token: { readonly appId: string; readonly clientId: string },
): boolean =>
  token.appId === appId && [token.clientId, publicClientId].some((id) => clientIds.includes(id))

export type Revocation = ReturnType<typeof createRevocation>
