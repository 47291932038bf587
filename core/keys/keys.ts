import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import { type Actor, type AuditEntry, auditAll, auditSuccess } from '../platform/audit.ts'
import { type Reply, createBatchWriter } from '../platform/batch-writer.ts'
import type { M2mCaller, UserCaller } from '../rpc/callers.ts'
import { type Cursor, page } from '../platform/cursor.ts'
import { type Grants, keyGrant } from '../platform/grants/grants.ts'
import type { Idempotency, Repeatable } from '../platform/idempotency.ts'
import type { User } from '../identity/types.ts'
import type { Owners } from '../identity/users/owners.ts'
import type { Users } from '../identity/users/users.ts'
import { type ClientId, appId, isUuid, newKeyId } from '../platform/ids.ts'
import { toReadable } from '../lib/text/readable.ts'
import { isSecret, newSecret } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
import type { Secrets } from '../platform/secrets.ts'
import * as store from './store.ts'

export type { KeyOwner, StoredKey } from './store.ts'

const activeKeysMax = 100
const keyPrefix = 'svc_ak_'
/** Prefix of keys that the builder API issues (docs/decisions/07.md). */
export const builderKeyPrefix = 'sk_'
const prefixDigits = 6
const labelMax = 100

export interface KeysDeps {
  readonly pool: Pool
  readonly users: Users
  readonly owners: Owners
  readonly secrets: Secrets
  readonly idempotency: Idempotency
  readonly grants: Pick<Grants, 'end'>
  readonly log: Log
  readonly now: Now
}

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
export function createKeys({
  pool,
  users,
  owners,
  secrets,
  idempotency,
  grants,
  log,
  now,
}: KeysDeps) {
  const createInBatch = createBatchWriter<NewKeyRequest, IssuedKey>(pool, (db, requests) =>
    idempotency.each(db, requests, (fresh) => createAll(db, fresh)),
  )

  /**
   * Creates a key for an active user. Its secret has the form `app_<24hex>_svc_ak_…`, which names
   * the app (decision 7). Throws NOT_FOUND for an inactive user, CONFLICT when the user has too
   * many keys.
   */
  async function create(
    caller: M2mCaller,
    request: { externalUserId: string; label: string | null; idempotencyKey: string | undefined },
    actor: Actor,
  ): Promise<IssuedKey> {
    const user = await users.getActive(caller.appId, request.externalUserId)
    const label = request.label === null ? null : cleanLabel(request.label)
    return createInBatch({
      idempotency: {
        scope: `${caller.m2mClientId}:keys`,
        key: request.idempotencyKey,
        body: { user: user.id, label },
        holdsSecret: true,
      },
      user,
      label,
      clientId: caller.clientId,
      grants: caller.grants,
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
    await store.insertKeys(db, rows)
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

  /**
   * Revokes a key and returns the time of its first revocation. Throws NOT_FOUND for another user's
   * key.
   */
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
      await grants.end(db, [{ id: keyGrant(request.keyId), cause: 'key_revoked', at }])
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

  const findActiveKey = createBatchLoader(async (candidates: readonly (readonly Buffer[])[]) => {
    const rows = await store.findActiveKeys(pool, candidates.flat(), now())
    const keys = new Map(rows.map(({ hash, key }) => [hash.toString('latin1'), key]))
    return (hashes) =>
      hashes.map((hash) => keys.get(hash.toString('latin1'))).find((key) => key !== undefined) ??
      null
  })

  const noteRefusedUse = createBatchLoader(async (candidates: readonly (readonly Buffer[])[]) => {
    const at = now()
    const keys = await store.noteRefusedUses(pool, candidates.flat(), at)
    await auditAll(
      pool,
      keys.map((key) => ({
        appId: appId(key.app_id),
        actor: key.id,
        action: 'api_key_refused',
        status: 'refused' as const,
        at,
        details: { keyId: key.id, userId: key.user_id },
      })),
    )
    return () => undefined
  })

  /**
   * Finds a key in any form that `parseKey` reads. Returns null for an invalid key. Callers must
   * check app and scopes before `ownerOf`, so that a refused request creates no user.
   */
  async function find(credential: string): Promise<store.StoredKey | null> {
    const parsed = parseKey(credential)
    const candidates = parsed ? secrets.candidates(parsed.secret) : []
    const stored = parsed && (await findActiveKey(candidates))
    if (parsed && !stored) await noteRefusedUse(candidates)
    if (!stored || (parsed.clientId !== null && parsed.clientId !== stored.clientId)) return null
    return parsed.user === null || parsed.user === userPartOf(stored) ? stored : null
  }

  /** Returns the user of a builder API key. Throws TOKEN_INVALID for any other credential. */
  async function builderUser(credential: string): Promise<UserCaller> {
    const key = credential.startsWith(builderKeyPrefix) ? await find(credential) : null
    const owner = key && (await ownerOf(key))
    if (!owner) throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    const { appId: app, clientId, userId, externalUserId, publicScopes: scopes } = owner
    return { kind: 'user', appId: app, clientId, userId, externalUserId, scopes }
  }

  /**
   * Adds the user that the key acts for. An app-level key acts for the app's owner (decision 38),
   * who becomes an end user on first use. Returns null if the app has no owner or has ended that
   * user.
   */
  async function ownerOf({ user, ...key }: store.StoredKey): Promise<store.KeyOwner | null> {
    const actsFor = user ?? (await owners.find(key))
    return actsFor && { ...actsFor, ...key }
  }

  /**
   * Returns a key that may sign, with the user that it acts for. Returns null for an invalid key,
   * or when the app no longer grants sign:job.
   */
  async function verifySigning(credential: string): Promise<store.KeyOwner | null> {
    const key = await find(credential)
    return key?.publicScopes.includes(Scope.signJob) ? ownerOf(key) : null
  }

  /** Whether the credential has the form of a key. Does not check its validity. */
  const isKey = (credential: string): boolean => parseKey(credential) !== null

  const { revokeKeysOfGrants: endOfGrants } = store
  return { create, list, revoke, find, ownerOf, builderUser, verifySigning, isKey, endOfGrants }
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

/**
 * Creates the id and the secret of a key, and the start of the secret, by which people recognise
 * the key.
 */
export function newKey(start = keyPrefix) {
  const secret = newSecret(start)
  return { id: newKeyId(), secret, prefix: secret.slice(0, start.length + prefixDigits) }
}

/** Removes what Postgres or a page cannot show, so that a bad label never causes a rejection. */
export const cleanLabel = (text: string): string =>
  toReadable(text).slice(0, labelMax).toWellFormed()

const composite = /^(app_[0-9a-f]{24})_(.+)$/
// The part before the last "_" may itself contain "_".
const builderKey = /^sk_(?:(.+)_)?([^_]+)$/

interface ParsedKey {
  readonly clientId: string | null
  /** The external user id in base64url; null when the credential does not name it. */
  readonly user: string | null
  readonly secret: string
}

/**
 * Parses `app_<24hex>_svc_ak_…`, `svc_ak_…`, `app_<24hex>_<secret>`, `<secret>` (decision 7),
 * `sk_…` or `sk_<user>_<secret>`. Returns null for anything else. Rejects a wrong checksum without
 * a look-up.
 */
export function parseKey(credential: string): ParsedKey | null {
  const [, user = null, digits] = builderKey.exec(credential) ?? []
  if (digits !== undefined) {
    const secret = builderKeyPrefix + digits
    return isSecret(secret, builderKeyPrefix) ? { clientId: null, user, secret } : null
  }
  const match = composite.exec(credential)
  const rest = match?.[2] ?? credential
  const secret = rest.startsWith(keyPrefix) ? rest : keyPrefix + rest
  return isSecret(secret, keyPrefix) ? { clientId: match?.[1] ?? null, user: null, secret } : null
}

const userPartOf = ({ user }: store.StoredKey): string | null =>
  user && Buffer.from(user.externalUserId).toString('base64url')
