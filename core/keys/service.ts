import { DomainError } from '../../proto/errors.ts'
import { audit } from '../platform/audit.ts'
import type { M2mCaller } from '../rpc/callers.ts'
import { type Cursor, page } from '../platform/cursor.ts'
import type { Idempotency } from '../platform/idempotency.ts'
import type { Users } from '../identity/users/users.ts'
import type { Actor } from '../platform/audit.ts'
import { isUuid, newKeyId } from '../platform/ids.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import { isSecret, newSecret } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import { type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { createBatchLoader } from '../lib/batch-loader.ts'
import type { Secrets } from '../platform/secrets.ts'
import * as store from './store.ts'
import type { KeyOwner } from './types.ts'

export const keyPrefix = 'svc_ak_'
const activeKeysMax = 100
const labelMax = 100
const shownDigits = 6

export interface KeysDeps {
  readonly pool: Pool
  readonly users: Users
  readonly secrets: Secrets
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  readonly log: Log
  readonly now: Now
}

/** Per-user API keys: stored by hash, shown once, revoked for good. */
export function createKeys({
  pool,
  users,
  secrets,
  idempotency,
  invalidations,
  log,
  now,
}: KeysDeps) {
  /** A key for an active user, presented as `app_<24hex>_svc_ak_…` so that it names its app (decision 7). */
  async function create(
    caller: M2mCaller,
    request: { externalUserId: string; label: string | null; idempotencyKey: string | undefined },
    actor: Actor,
  ) {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const label = request.label === null ? null : cleanLabel(request.label)
    return idempotency.once(
      {
        scope: `${caller.m2mClientId}:keys`,
        key: request.idempotencyKey,
        body: { user: user.id, label },
      },
      async (db) => {
        // Held until the commit: the count is exact, and a deactivation that comes now finds this key.
        await users.holdActive(db, caller.appId, user.externalUserId)
        if ((await store.countActive(db, caller.appId, user.id)) >= activeKeysMax) {
          throw new DomainError(
            'CONFLICT',
            `a user may have ${activeKeysMax} active keys; revoke one first`,
          )
        }
        const at = now()
        const secret = newSecret(keyPrefix)
        const key = { id: newKeyId(), prefix: secret.slice(0, keyPrefix.length + shownDigits) }
        await store.insertKey(db, {
          ...key,
          appId: caller.appId,
          userId: user.id,
          ...secrets.store(secret),
          label,
          at,
        })
        await audit(db, {
          appId: caller.appId,
          actor: actor.name,
          action: 'api_key_created',
          status: 'success',
          at,
          correlationId: actor.context?.correlationId,
          details: { keyId: key.id, userId: user.id },
        })
        return {
          keyId: key.id,
          apiKey: `${caller.clientId}_${secret}`,
          createdAt: at.toISOString(),
          label: label ?? undefined,
          externalUserId: user.externalUserId,
          clientId: caller.clientId,
        }
      },
    )
  }

  async function list(
    caller: M2mCaller,
    request: { externalUserId: string; after: Cursor | null; limit: number },
  ) {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const rows = await store.listKeys(pool, {
      appId: caller.appId,
      userId: user.id,
      after: request.after,
      limit: request.limit,
    })
    return page(rows, request.limit)
  }

  /** Ends a key at once. NOT_FOUND for a key that is not this user's. Returns the first instant of its end. */
  async function revoke(
    caller: M2mCaller,
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
      await audit(db, {
        appId: caller.appId,
        actor: actor.name,
        action: 'api_key_revoked',
        status: 'success',
        at,
        correlationId: actor.context?.correlationId,
        details: { keyId: request.keyId, userId: user.id },
      })
      return instant
    })
    log.info({ appId: caller.appId, userId: user.id, keyId: request.keyId }, 'key revoked')
    await invalidations.publish({ kind: 'key', id: request.keyId })
    return revokedAt
  }

  const findOwner = createBatchLoader(async (asked: readonly (readonly Buffer[])[]) => {
    const rows = await store.findOwners(pool, asked.flat(), now())
    const found = new Map(rows.map(({ hash, owner }) => [hash.toString('latin1'), owner]))
    return (hashes) =>
      hashes
        .map((hash) => found.get(hash.toString('latin1')))
        .find((owner) => owner !== undefined) ?? null
  })

  /** Whose key this is, in any of its three forms; null for one that does not work. A wrong checksum costs no look-up. */
  async function verify(presented: string): Promise<KeyOwner | null> {
    const parsed = parseKey(presented)
    if (!parsed) return null
    const owner = await findOwner(secrets.candidates(parsed.secret))
    return owner && (parsed.clientId === null || parsed.clientId === owner.clientId) ? owner : null
  }

  return { create, list, revoke, verify }
}

export type Keys = ReturnType<typeof createKeys>

// A label is for people; what is wrong with it is no reason to refuse a key (and Postgres takes no NUL).
export const cleanLabel = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, ' ')
    .slice(0, labelMax)
    .toWellFormed()

const composite = /^(app_[0-9a-f]{24})_(.+)$/

/** `app_<24hex>_svc_ak_…`, `svc_ak_…`, `app_<24hex>_<secret>` or `<secret>`; null for anything else. */
export function parseKey(presented: string): { clientId: string | null; secret: string } | null {
  const match = composite.exec(presented)
  const rest = match?.[2] ?? presented
  const secret = rest.startsWith(keyPrefix) ? rest : keyPrefix + rest
  return isSecret(secret, keyPrefix) ? { clientId: match?.[1] ?? null, secret } : null
}
