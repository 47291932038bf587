import type { Cursor } from '../shared/cursor.ts'
import {
  type AppId,
  type ClientId,
  type ExternalUserId,
  type KeyId,
  type UserId,
  appId,
  externalUserId,
  isClientId,
  keyId,
  userId,
} from '../shared/ids.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../lib/sql.ts'

/** active -> revoked; revocation is permanent. */
export type KeyState = 'active' | 'revoked'

/** A key of a user or, without a user, of an app. */
export interface Key {
  readonly id: KeyId
  readonly label: string | null
  /** Start of the secret, by which people recognise the key. */
  readonly prefix: string
  readonly status: KeyState
  readonly subscriptionId: string | null
  readonly createdAt: Date
  readonly lastUsedAt: Date | null
  readonly revokedAt: Date | null
}

/** An active key with its app, and the subscription and ids that it depends on. */
interface ActiveKey {
  readonly keyId: KeyId
  readonly appId: AppId
  readonly clientId: ClientId
  readonly publicScopes: readonly string[]
  /** Subscription that an app-level key was created for. */
  readonly subscriptionId: string | null
  /** Ids that the key descends from. */
  readonly grants: string[]
}

interface KeyUser {
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
}

/** A key with the user that it acts for. */
export type KeyOwner = ActiveKey & KeyUser

/** A key as it is stored. `user` is null for an app's key. */
export type StoredKey = ActiveKey & { readonly user: KeyUser | null }

export interface NewKey {
  readonly appId: AppId
  /** Null for an app's key. */
  readonly userId: UserId | null
  readonly subscriptionId: string | null
  readonly id: KeyId
  readonly hash: Buffer
  readonly pepperId: string
  readonly label: string | null
  readonly prefix: string
  readonly grants: readonly string[]
  readonly at: Date
}

export async function insertKeys(db: Db, keys: readonly NewKey[]): Promise<void> {
  if (keys.length === 0) return
  const column = <T>(value: (key: NewKey) => T): T[] => keys.map(value)
  await db.query(
    prepared('insert-keys')`
    insert into api_keys (app_id, id, user_id, subscription_id, secret_hash, pepper_id, label, prefix, status, grants,
                          created_at)
    select app_id, id, user_id, subscription_id, secret_hash, pepper_id, label, prefix, 'active',
           string_to_array(grants, ' '), created_at
    from unnest(
      ${column((key) => key.appId)}::uuid[], ${column((key) => key.id)}::uuid[], ${column((key) => key.userId)}::uuid[],
      ${column((key) => key.subscriptionId)}::uuid[], ${column((key) => key.hash)}::bytea[],
      ${column((key) => key.pepperId)}::text[], ${column((key) => key.label)}::text[],
      ${column((key) => key.prefix)}::text[], ${column((key) => key.grants.join(' '))}::text[],
      ${column((key) => key.at.toISOString())}::timestamptz[])
      as k (app_id, id, user_id, subscription_id, secret_hash, pepper_id, label, prefix, grants, created_at)`,
  )
}

/**
 * Counts active keys per user; users without a key are absent. Exact only while the users' rows are
 * locked.
 */
export async function countUserKeys(
  db: Db,
  users: readonly { appId: AppId; id: UserId }[],
): Promise<Map<UserId, number>> {
  const rows = await many<{ user_id: string; count: number }>(
    db,
    prepared('count-user-keys')`
    select k.user_id, count(*)::int as count
    from (select distinct app_id, id
          from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.id)}::uuid[]) as w (app_id, id)) u
    join api_keys k on k.app_id = u.app_id and k.user_id = u.id and k.status = 'active'
    group by k.user_id`,
  )
  return new Map(rows.map((row) => [userId(row.user_id), row.count]))
}

/**
 * Returns the users who have an active key that begins with `prefix`. Exact only while the users'
 * rows are locked.
 */
export async function findPrefixHolders(
  db: Db,
  users: readonly { appId: AppId; id: UserId }[],
  prefix: string,
): Promise<Set<UserId>> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared('key-prefix-holders')`
    select distinct k.user_id
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.id)}::uuid[]) as w (app_id, id)
    join api_keys k on k.app_id = w.app_id and k.user_id = w.id
    where k.status = 'active' and starts_with(k.prefix, ${prefix}) and ended_grants(k.grants, k.created_at) = '{}'`,
  )
  return new Set(rows.map((row) => userId(row.user_id)))
}

/**
 * Takes the app's advisory lock until commit, so that no other transaction counts and adds app
 * keys.
 */
export async function lockAppKeys(db: Db, app: AppId): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtextextended(${`app keys ${app}`}, 0))`)
}

/** Counts the app's own active keys. Exact only after `lockAppKeys`. */
export async function countAppKeys(db: Db, app: AppId): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from api_keys where app_id = ${app} and user_id is null and status = 'active'`,
  )
  return count
}

export async function hasSubscription(db: Db, app: AppId, id: string): Promise<boolean> {
  return (
    (await maybeOne(db, sql`select id from subscriptions where app_id = ${app} and id = ${id}`)) !==
    null
  )
}

interface KeyRow {
  id: string
  label: string | null
  prefix: string
  status: KeyState
  subscription_id: string | null
  created_at: Date
  last_used_at: Date | null
  revoked_at: Date | null
}

const fromRow = (row: KeyRow): Key => ({
  id: keyId(row.id),
  label: row.label,
  prefix: row.prefix,
  status: row.status,
  subscriptionId: row.subscription_id,
  createdAt: row.created_at,
  lastUsedAt: row.last_used_at,
  revokedAt: row.revoked_at,
})

export interface KeyFilter {
  readonly appId: AppId
  readonly after: Cursor | null
  readonly limit: number
}

/**
 * Lists a user's keys in order of creation. Returns up to `limit + 1` rows; the extra row shows
 * that there are more.
 */
export async function listUserKeys(
  db: Db,
  filter: KeyFilter & { readonly userId: UserId },
): Promise<Key[]> {
  const rows = await many<KeyRow>(
    db,
    sql`
    select id, label, prefix, status, subscription_id, created_at, last_used_at, revoked_at
    from api_keys
    where app_id = ${filter.appId} and user_id = ${filter.userId}
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${filter.limit + 1}`,
  )
  return rows.map(fromRow)
}

/**
 * Lists the app's own keys in order of creation. Returns up to `limit + 1` rows; the extra row
 * shows that there are more.
 */
export async function listAppKeys(db: Db, filter: KeyFilter): Promise<Key[]> {
  const rows = await many<KeyRow>(
    db,
    sql`
    select id, label, prefix, status, subscription_id, created_at, last_used_at, revoked_at
    from api_keys
    where app_id = ${filter.appId} and user_id is null
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${filter.limit + 1}`,
  )
  return rows.map(fromRow)
}

/**
 * Revokes a key of the user or, if `userId` is null, of the app. Returns the time of its first
 * revocation; null if there is no such key.
 */
export async function revokeKey(
  db: Db,
  key: { appId: AppId; userId: UserId | null; id: string; at: Date },
): Promise<Date | null> {
  const row = await maybeOne<{ revoked_at: Date }>(
    db,
    sql`
    update api_keys
    set status = 'revoked', revoked_at = coalesce(revoked_at, ${key.at}),
        revoked_reason = coalesce(revoked_reason, 'requested')
    where app_id = ${key.appId} and user_id is not distinct from ${key.userId}::uuid and id = ${key.id}
    returning revoked_at`,
  )
  return row?.revoked_at ?? null
}

/** Revokes all active keys of a deactivated user and returns their ids. */
export async function revokeKeysOfUser(
  db: Db,
  user: { appId: AppId; id: UserId },
  at: Date,
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update api_keys
    set status = 'revoked', revoked_at = ${at}, revoked_reason = 'user_deactivated'
    where app_id = ${user.appId} and user_id = ${user.id} and status = 'active'
    returning id`,
  )
  return rows.map((row) => row.id)
}

/** Revokes all active keys of a deleted app and its users, and returns their ids. */
export async function revokeKeysOfApp(db: Db, app: AppId, at: Date): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update api_keys
    set status = 'revoked', revoked_at = ${at}, revoked_reason = 'app_deleted'
    where app_id = ${app} and status = 'active'
    returning id`,
  )
  return rows.map((row) => row.id)
}

/**
 * Revokes the app's active keys that descend from `grants` and returns their number. With `keep`,
 * removes `grants` from the keys' lineage instead and returns 0.
 */
export async function revokeKeysOfGrants(
  db: Db,
  ends: { appId: AppId; grants: readonly string[]; at: Date; keep?: boolean },
): Promise<number> {
  const { rowCount } = await db.query(
    ends.keep === true
      ? sql`
    update api_keys
    set grants = array(select unnest(grants) except select unnest(${ends.grants}::text[]))
    where app_id = ${ends.appId} and grants && ${ends.grants}::text[] and status = 'active'`
      : sql`
    update api_keys
    set status = 'revoked', revoked_at = ${ends.at}, revoked_reason = 'grant_ended'
    where app_id = ${ends.appId} and grants && ${ends.grants}::text[] and status = 'active'`,
  )
  return ends.keep === true ? 0 : (rowCount ?? 0)
}

interface StoredKeyRow {
  secret_hash: Buffer
  id: string
  app_id: string
  client_id: string
  scopes: string[]
  subscription_id: string | null
  user_id: string | null
  external_user_id: string | null
  tokens_valid_after: Date | null
  grants: string[]
  stale: boolean
}

const useNotedMs = 60_000
const refusedNotedMs = 3_600_000

/**
 * Finds active keys by hash. App and user must be active, and everything that the key descends from
 * must still be valid. Records the use of a key at most once a minute.
 */
export async function findActiveKeys(
  db: Db,
  hashes: readonly Buffer[],
  at: Date,
): Promise<{ hash: Buffer; key: StoredKey }[]> {
  const rows = await many<StoredKeyRow>(
    db,
    prepared('active-keys')`
    select k.secret_hash, k.id, k.app_id, c.client_id, c.scopes, k.subscription_id, k.user_id, u.external_user_id,
           u.tokens_valid_after, k.grants,
           k.last_used_at is null or k.last_used_at < ${new Date(at.getTime() - useNotedMs)} as stale
    from api_keys k
    join clients c on c.app_id = k.app_id and c.kind = 'public'
    join apps a on a.id = k.app_id and a.status = 'active'
    left join end_users u on u.app_id = k.app_id and u.id = k.user_id
    where k.secret_hash = any(${hashes}::bytea[]) and k.status = 'active' and (k.user_id is null or u.status = 'active')
      and ended_grants(k.grants, k.created_at) = '{}'`,
  )
  await noteUses(
    db,
    rows.filter((row) => row.stale),
    at,
  )
  return rows.flatMap((row) =>
    isClientId(row.client_id) ? [{ hash: row.secret_hash, key: toKey(row, row.client_id) }] : [],
  )
}

const toKey = (row: StoredKeyRow, clientId: ClientId): StoredKey => ({
  keyId: keyId(row.id),
  appId: appId(row.app_id),
  clientId,
  publicScopes: row.scopes,
  grants: row.grants,
  subscriptionId: row.subscription_id,
  user:
    row.user_id === null || row.external_user_id === null
      ? null
      : {
          userId: userId(row.user_id),
          externalUserId: externalUserId(row.external_user_id),
          tokensValidAfter: row.tokens_valid_after,
        },
})

// Locks in the order of ids, so that two batches with the same keys cannot deadlock.
async function noteUses(
  db: Db,
  keys: readonly { app_id: string; id: string }[],
  at: Date,
): Promise<void> {
  if (keys.length === 0) return
  await db.query(
    prepared('key-uses')`
    update api_keys k set last_used_at = ${at}
    from (select k.app_id, k.id
          from unnest(${keys.map((key) => key.app_id)}::uuid[], ${keys.map((key) => key.id)}::uuid[]) as used (app_id, id)
          join api_keys k on k.app_id = used.app_id and k.id = used.id
          order by k.id
          for no key update of k) noted
    where k.app_id = noted.app_id and k.id = noted.id`,
  )
}

/**
 * Returns the keys with these hashes that no longer work, each at most once an hour. The use of an
 * ended key belongs in the audit log, but not every attempt.
 */
export const noteRefusedUses = (
  db: Db,
  hashes: readonly Buffer[],
  at: Date,
): Promise<{ id: string; app_id: string; user_id: string | null }[]> =>
  many(
    db,
    prepared('refused-keys')`
    with ended as materialized (
      select app_id, id
      from api_keys
      where secret_hash = any(${hashes}::bytea[])
        and (status = 'revoked' or ended_grants(grants, created_at) <> '{}')
    )
    update api_keys k
    set refused_at = ${at}
    from ended
    where k.app_id = ended.app_id and k.id = ended.id
      and (k.refused_at is null or k.refused_at < ${new Date(at.getTime() - refusedNotedMs)})
    returning k.id, k.app_id, k.user_id`,
  )

/**
 * Finds the subscription that the key was created for if it is active at `at`, otherwise the
 * subscription of the key's user; null if both are missing. A scheduled successor is used from
 * `next_at` on, even before the row is updated.
 */
export const findSubscription = (
  db: Db,
  { appId: app, subscriptionId, userId: user }: KeyOwner,
  at: Date,
): Promise<{ id: string; plan_id: string } | null> =>
  maybeOne<{ id: string; plan_id: string }>(
    db,
    sql`
    select id, plan_id
    from (
      select case when next_at <= ${at} then next_id else id end as id, user_id,
             case when next_at <= ${at} then next_plan_id else plan_id end as plan_id
      from subscriptions
      where app_id = ${app} and status = 'active' and (id = ${subscriptionId}::uuid or user_id = ${user})) held
    where id = ${subscriptionId}::uuid or user_id = ${user}
    order by id is not distinct from ${subscriptionId}::uuid desc
    limit 1`,
  )
