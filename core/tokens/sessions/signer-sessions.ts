import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Actor } from '../../platform/audit.ts'
import type { User } from '../../identity/types.ts'
import { isUuid } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { isSecret, newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Secrets } from '../../platform/secrets.ts'
import * as store from './store.ts'

export const sessionPrefix = 'svc_ss_'
const scope = 'sign:job'

export interface SignerSessionsDeps {
  readonly pool: Pool
  readonly users: Users
  readonly secrets: Secrets
  readonly invalidations: Invalidations
  readonly ttlSeconds: number
  readonly now: Now
}

/** Opaque signer sessions: what an app's backend gets for a user's token and gives to the signer's caller. */
export function createSignerSessions({
  pool,
  users,
  secrets,
  invalidations,
  ttlSeconds,
  now,
}: SignerSessionsDeps) {
  /** A session for an active user; a deactivation that comes at the same time finds it. */
  async function open(user: User, label: string, actor: Actor) {
    const token = newSecret(sessionPrefix)
    const at = now()
    await tx(pool, async (db) => {
      await users.holdActive(db, user.appId, user.externalUserId)
      const id = uuidV7(at.getTime())
      await store.insertSession(db, {
        appId: user.appId,
        userId: user.id,
        id,
        ...secrets.store(token),
        scope,
        label,
        at,
        expiresAt: addSeconds(at, ttlSeconds),
      })
      await audit(db, {
        appId: user.appId,
        actor: actor.name,
        action: 'signer_session_token_exchange',
        status: 'success',
        at,
        correlationId: actor.context?.correlationId,
        details: { sessionId: id, userId: user.id },
      })
    })
    return { token, expiresIn: ttlSeconds, scope }
  }

  async function list(
    caller: M2mCaller,
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

  /** Ends a session at once. NOT_FOUND when it is not this user's. Returns the first instant of its end. */
  async function revoke(
    caller: M2mCaller,
    request: { externalUserId: string; id: string },
    actor: Actor,
  ): Promise<Date> {
    const user = await users.get(caller.appId, request.externalUserId)
    const revokedAt = await end(user, request.id, actor)
    if (!revokedAt) throw new DomainError('NOT_FOUND', 'the user has no such signer session')
    return revokedAt
  }

  async function end(
    user: Pick<User, 'appId' | 'id'>,
    id: string,
    actor: Actor,
  ): Promise<Date | null> {
    if (!isUuid(id)) return null
    const at = now()
    const revokedAt = await tx(pool, async (db) => {
      const instant = await store.revokeSession(db, { appId: user.appId, userId: user.id, id, at })
      if (instant) {
        await audit(db, {
          appId: user.appId,
          actor: actor.name,
          action: 'signer_session_revoked',
          status: 'success',
          at,
          correlationId: actor.context?.correlationId,
          details: { sessionId: id, userId: user.id },
        })
      }
      return instant
    })
    // Caches know a session as they know a key: by the id of what proved the identity.
    if (revokedAt) await invalidations.publish({ kind: 'key', id })
    return revokedAt
  }

  /** Whose session this is; null for one that does not work. A wrong checksum costs no look-up. */
  const verify = async (token: string) =>
    isSecret(token, sessionPrefix)
      ? store.findSession(pool, secrets.candidates(token), now())
      : null

  return { open, list, revoke, end, verify }
}

export type SignerSessions = ReturnType<typeof createSignerSessions>
