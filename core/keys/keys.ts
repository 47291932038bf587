import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import { type Actor, audit } from '../platform/audit.ts'
import type { M2mCaller } from '../rpc/callers.ts'
import { type Cursor, page } from '../platform/cursor.ts'
import type { Idempotency } from '../platform/idempotency.ts'
import type { Owners } from '../identity/users/owners.ts'
import type { Users } from '../identity/users/users.ts'
import { isUuid, newKeyId } from '../platform/ids.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import { isSecret, newSecret } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import { type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
import type { Secrets } from '../platform/secrets.ts'
import * as store from './store.ts'

export type { KeyOwner } from './store.ts'

const activeKeysMax = 100
const keyPrefix = 'svc_ak_'
const prefixDigits = 6
const labelMax = 100

export interface KeysDeps {
  readonly pool: Pool
  readonly users: Users
  readonly owners: Owners
  readonly secrets: Secrets
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  readonly log: Log
  readonly now: Now
}

/** API keys of end users: stored as hashes, shown once, revoked for good. */
export function createKeys({
  pool,
  users,
  owners,
  secrets,
  idempotency,
  invalidations,
  log,
  now,
}: KeysDeps) {
  /**
   * Creates a key for an active user. Its secret has the form `app_<24hex>_svc_ak_…`, which names the app (decision 7).
   * NOT_FOUND for an inactive user, CONFLICT when the user has too many keys.
   */
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
        // The lock makes the count exact, and a concurrent deactivation revokes this key too.
        await users.lockActive(db, caller.appId, user.externalUserId)
        if ((await store.countUserKeys(db, caller.appId, user.id)) >= activeKeysMax) {
          throw new DomainError(
            'CONFLICT',
            `a user may have ${activeKeysMax} active keys; revoke one first`,
          )
        }
        const at = now()
        const { secret, ...key } = newKey()
        await store.insertKey(db, {
          ...key,
          appId: caller.appId,
          userId: user.id,
          subscriptionId: null,
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
    const rows = await store.listUserKeys(pool, {
      appId: caller.appId,
      userId: user.id,
      after: request.after,
      limit: request.limit,
    })
    return page(rows, request.limit)
  }

  /** Revokes a key. NOT_FOUND for a key of another user. Returns the instant of its first revocation. */
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

  const findActiveKey = createBatchLoader(async (candidates: readonly (readonly Buffer[])[]) => {
    const rows = await store.findActiveKeys(pool, candidates.flat(), now())
    const keys = new Map(rows.map(({ hash, key }) => [hash.toString('latin1'), key]))
    return (hashes) =>
      hashes.map((hash) => keys.get(hash.toString('latin1'))).find((key) => key !== undefined) ??
      null
  })

  /**
   * The key in any form that `parseKey` reads, with the user that it acts for: an app-level key acts for the app's owner
   * (decision 38). Null for one that is not valid.
   */
  async function verify(credential: string): Promise<store.KeyOwner | null> {
    const parsed = parseKey(credential)
    const stored = parsed && (await findActiveKey(secrets.candidates(parsed.secret)))
    if (!stored || (parsed.clientId !== null && parsed.clientId !== stored.clientId)) return null
    const { user, ...key } = stored
    const actsFor = user ?? (await owners.find(stored))
    return actsFor && { ...actsFor, ...key }
  }

  /** As `verify`, for a key that is to sign. Null, too, where the app does not grant the scope sign:job any more. */
  async function verifySigning(credential: string): Promise<store.KeyOwner | null> {
    const owner = await verify(credential)
    return owner?.publicScopes.includes(Scope.signJob) ? owner : null
  }

  /** Whether the credential has the form of a key. Says nothing about its validity. */
  const isKey = (credential: string): boolean => parseKey(credential) !== null

  return { create, list, revoke, verify, verifySigning, isKey }
}

export type Keys = ReturnType<typeof createKeys>

/** A new key: its id, its secret, and the start of the secret by which people recognise it. */
export function newKey() {
  const secret = newSecret(keyPrefix)
  return { id: newKeyId(), secret, prefix: secret.slice(0, keyPrefix.length + prefixDigits) }
}

/** The label without what Postgres or a page cannot show. A bad label is no reason to refuse a key. */
export const cleanLabel = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, ' ')
    .slice(0, labelMax)
    .toWellFormed()

const composite = /^(app_[0-9a-f]{24})_(.+)$/

/**
 * Reads the credential `app_<24hex>_svc_ak_…`, `svc_ak_…`, `app_<24hex>_<secret>` or `<secret>` (decision 7). Null for
 * anything else; a wrong checksum is recognised here, without a look-up.
 */
export function parseKey(credential: string): { clientId: string | null; secret: string } | null {
  const match = composite.exec(credential)
  const rest = match?.[2] ?? credential
  const secret = rest.startsWith(keyPrefix) ? rest : keyPrefix + rest
  return isSecret(secret, keyPrefix) ? { clientId: match?.[1] ?? null, secret } : null
}
