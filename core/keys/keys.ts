import { DomainError } from '../../proto/errors.ts'
import { type Actor, type AuditEntry, auditAll, auditSuccess } from '../shared/audit.ts'
import { type Reply, createBatchWriter } from '../shared/batch-writer.ts'
import { type M2mCaller, type MemberCaller, idempotencyScope } from '../rpc/callers.ts'
import { type Cursor, page } from '../shared/cursor.ts'
import { keyGrant } from '../shared/lineage/grants.ts'
import type { Repeatable } from '../shared/idempotency.ts'
import type { User } from '../identity/types.ts'
import type { Users } from '../identity/users/users.ts'
import { type ClientId, isUuid } from '../shared/ids.ts'
import { type Db, tx } from '../lib/sql.ts'
import { addKeys, emitRevoked } from './events.ts'
import { cleanLabel, newKey } from './secret.ts'
import * as store from './store.ts'
import { type KeyVerificationDeps, createKeyVerification } from './verify.ts'

export type { KeyOwner, StoredKey } from './store.ts'

const activeKeysMax = 100

type Deps = KeyVerificationDeps & { readonly users: Users }

interface NewKeyRequest extends Repeatable {
  readonly user: User
  readonly label: string | null
  readonly clientId: ClientId
  /** Ids that the key descends from. */
  readonly grants: readonly string[]
  readonly actor: Actor
}

/** A new key with its secret, which is returned only once. */
export interface IssuedKey {
  readonly keyId: string
  readonly apiKey: string
  readonly createdAt: string
  readonly label: string | undefined
  readonly externalUserId: string
  readonly clientId: string
}

/** API keys of end users: stored as hashes, shown once, revoked permanently. */
export function createKeys(deps: Deps) {
  const { pool, users, secrets, idempotency, grants, log, now } = deps
  const createInBatch = createBatchWriter<NewKeyRequest, IssuedKey>(pool, (db, requests) =>
    idempotency.each(db, requests, (fresh) => createAll(db, fresh)),
  )

  /**
   * Creates a key for an active user. Its secret has the form `app_<24hex>_svc_ak_…`, which names
   * the app (decision 7). Throws NOT_FOUND for an inactive user, CONFLICT when the user has too
   * many keys.
   */
  async function create(
    caller: M2mCaller | MemberCaller,
    request: { externalUserId: string; label: string | null; idempotencyKey: string | undefined },
    actor: Actor,
  ): Promise<IssuedKey> {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const label = request.label === null ? null : cleanLabel(request.label)
    return createInBatch({
      idempotency: {
        scope: idempotencyScope(caller, 'keys'),
        key: request.idempotencyKey,
        body: { user: user.id, label },
        holdsSecret: true,
      },
      user,
      label,
      clientId: caller.clientId,
      // A person's key outlives the session in which it was made.
      grants: caller.kind === 'm2m' ? caller.grants : [],
      actor,
    })
  }

  async function createAll(
    db: Db,
    requests: readonly NewKeyRequest[],
  ): Promise<Reply<IssuedKey>[]> {
    const keyUsers = requests.map(({ user }) => user)
    // The locks make the counts exact and let a concurrent deactivation revoke these keys, too.
    const lockedUser = await users.lockEachActive(db, keyUsers)
    const counts = await store.countUserKeys(db, keyUsers)
    const at = now()
    const rows: store.NewKey[] = []
    const entries: AuditEntry[] = []
    const issue = (request: NewKeyRequest): Reply<IssuedKey> => {
      const user = lockedUser(request.user)
      if (user instanceof Error) return user
      const count = counts.get(user.id) ?? 0
      if (count >= activeKeysMax) return tooManyKeys()
      counts.set(user.id, count + 1)
      const { row, issued } = newUserKey(request, at)
      rows.push(row)
      entries.push(toEntry(request, row.id, at))
      return issued
    }
    const replies = requests.map(issue)
    await addKeys(db, rows)
    await auditAll(db, entries)
    return replies
  }

  function newUserKey({ user, label, clientId, grants: lineage }: NewKeyRequest, at: Date) {
    const { secret, ...key } = newKey()
    const row: store.NewKey = {
      ...key,
      ...secrets.store(secret),
      appId: user.appId,
      userId: user.id,
      subscriptionId: null,
      label,
      grants: lineage,
      at,
    }
    const issued: IssuedKey = {
      keyId: key.id,
      apiKey: `${clientId}_${secret}`,
      createdAt: at.toISOString(),
      label: label ?? undefined,
      externalUserId: user.externalUserId,
      clientId,
    }
    return { row, issued }
  }

  async function list(
    caller: Pick<M2mCaller, 'appId'>,
    request: { externalUserId: string; after: Cursor | null; limit: number },
  ) {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const rows = await store.listUserKeys(pool, {
      appId: caller.appId,
      userId: user.id,
      after: request.after,
      limit: request.limit,
    })
    return page(rows, request.limit)
  }

  /**
   * Revokes a key and returns the time of its first revocation. Throws NOT_FOUND for another user's
   * key.
   */
  async function revoke(
    caller: Pick<M2mCaller, 'appId'>,
    request: { externalUserId: string; keyId: string },
    actor: Actor,
  ): Promise<Date> {
    const user = await users.get(caller.appId, request.externalUserId)
    const revokedAt = await tx(pool, async (db) => {
      const at = now()
      const instant = isUuid(request.keyId)
        ? await store.revokeKey(db, { appId: caller.appId, userId: user.id, id: request.keyId, at })
        : null
      if (!instant) throw new DomainError('NOT_FOUND', 'the user has no such key')
      await grants.end(db, [{ id: keyGrant(request.keyId), cause: 'key_revoked', at }])
      const owner = { appId: caller.appId, userId: user.id }
      if (instant.getTime() === at.getTime())
        await emitRevoked(db, { ...owner, keyId: request.keyId, at })
      await auditSuccess(db, {
        appId: caller.appId,
        actor,
        action: 'api_key_revoked',
        at,
        details: { keyId: request.keyId, userId: user.id },
      })
      return instant
    })
    log.info({ appId: caller.appId, userId: user.id, keyId: request.keyId }, 'key revoked')
    return revokedAt
  }

  return {
    create,
    list,
    revoke,
    ...createKeyVerification(deps),
    endOfGrants: store.revokeKeysOfGrants,
  }
}

export type Keys = ReturnType<typeof createKeys>

const tooManyKeys = (): DomainError =>
  new DomainError('CONFLICT', `a user may have ${activeKeysMax} active keys; revoke one first`)

/** Builds the audit entry of a new key. */
export const toEntry = (
  { user, actor }: Pick<NewKeyRequest, 'user' | 'actor'>,
  keyId: string,
  at: Date,
): AuditEntry => ({
  appId: user.appId,
  actor: actor.name,
  action: 'api_key_created',
  status: 'success',
  at,
  correlationId: actor.context?.correlationId,
  details: { keyId, userId: user.id },
})
