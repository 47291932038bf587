import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import type { Users } from '../../identity/users/users.ts'
import type { User } from '../../identity/types.ts'
import { isUuid } from '../../shared/ids.ts'
import { isSecret, newSecret, uuidV7 } from '../../lib/crypto.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './store.ts'

export const sessionPrefix = 'svc_ss_'
const scope = Scope.signJob

type Deps = Shared & {
  readonly users: Users
  readonly ttlSeconds: number
}

/**
 * Opaque signer sessions. An app's backend gets one for a user's token and passes it to the
 * signer's caller.
 */
export function createSignerSessions({ pool, users, secrets, grants, ttlSeconds, now }: Deps) {
  /**
   * Opens a session for an active user. Locks the user's row, so that a concurrent deactivation
   * also ends this session.
   */
  async function open(
    user: User,
    { label, grants: lineage }: { label: string; grants: readonly string[] },
    actor: Actor,
  ) {
    const token = newSecret(sessionPrefix)
    const at = now()
    await tx(pool, async (db) => {
      await users.lockActive(db, user.appId, user.externalUserId)
      const id = uuidV7(at.getTime())
      await store.insertSession(db, {
        appId: user.appId,
        userId: user.id,
        id,
        ...secrets.store(token),
        scope,
        label,
        grants: lineage,
        at,
        expiresAt: addSeconds(at, ttlSeconds),
      })
      await auditSuccess(db, {
        appId: user.appId,
        actor,
        action: 'signer_session_token_exchange',
        at,
        details: { sessionId: id, userId: user.id },
      })
    })
    return { token, expiresIn: ttlSeconds, scope }
  }

  async function list(
    caller: Pick<M2mCaller, 'appId'>,
    request: { externalUserId: string; after: Cursor | null; limit: number },
  ) {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const rows = await store.listSessions(pool, {
      appId: caller.appId,
      userId: user.id,
      ...request,
    })
    return {
      user,
      ...page(
        rows.map(({ created_at, ...row }) => ({ ...row, createdAt: created_at })),
        request.limit,
      ),
    }
  }

  /**
   * Revokes a session and returns the time of its first revocation. Throws NOT_FOUND for another
   * user's session.
   */
  async function revoke(
    caller: Pick<M2mCaller, 'appId'>,
    request: { externalUserId: string; id: string },
    actor: Actor,
  ): Promise<Date> {
    const user = await users.get(caller.appId, request.externalUserId)
    const revokedAt = await end(user, request.id, actor)
    if (!revokedAt) throw new DomainError('NOT_FOUND', 'the user has no such signer session')
    return revokedAt
  }

  /** Same as `revoke`, but returns null instead of throwing NOT_FOUND. */
  async function end(
    user: Pick<User, 'appId' | 'id'>,
    id: string,
    actor: Actor,
  ): Promise<Date | null> {
    if (!isUuid(id)) return null
    const at = now()
    return tx(pool, async (db) => {
      const instant = await store.revokeSession(db, { appId: user.appId, userId: user.id, id, at })
      if (instant) {
        await grants.end(db, [{ id, cause: 'session_revoked', at }])
        await auditSuccess(db, {
          appId: user.appId,
          actor,
          action: 'signer_session_revoked',
          at,
          details: { sessionId: id, userId: user.id },
        })
      }
      return instant
    })
  }

  /**
   * Returns the session of the token with its user; null for an invalid token. Rejects a wrong
   * checksum without a look-up.
   */
  const verify = async (token: string) =>
    isSecret(token, sessionPrefix)
      ? store.findSession(pool, secrets.candidates(token), now())
      : null

  return { open, list, revoke, end, verify }
}

export type SignerSessions = ReturnType<typeof createSignerSessions>
