import type { Cursor } from '../platform/cursor.ts'
import { type AppId, type KeyId, keyId } from '../platform/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import type { Key, KeyState } from './types.ts'

/** Keys that belong to an app and to no user of it. */

export interface NewAppKeyRow {
  readonly appId: AppId
  readonly id: KeyId
  readonly hash: Buffer
  readonly pepperId: string
  readonly label: string | null
  readonly subscriptionId: string | null
  readonly prefix: string
  readonly at: Date
}

export async function insertKey(db: Db, key: NewAppKeyRow): Promise<void> {
  await db.query(sql`
    insert into api_keys (app_id, id, user_id, subscription_id, secret_hash, pepper_id, label, prefix, status, created_at)
    values (${key.appId}, ${key.id}, null, ${key.subscriptionId}, ${key.hash}, ${key.pepperId}, ${key.label}, ${key.prefix},
            'active', ${key.at})`)
}

/** Held until the transaction ends, so that a count holds. */
export async function lockAppKeys(db: Db, app: AppId): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtextextended(${`app keys ${app}`}, 0))`)
}

export async function countActive(db: Db, app: AppId): Promise<number> {
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

export interface AppKey extends Key {
  readonly subscriptionId: string | null
}

interface AppKeyRow {
  id: string
  label: string | null
  prefix: string
  status: KeyState
  subscription_id: string | null
  created_at: Date
  last_used_at: Date | null
  revoked_at: Date | null
}

/** One row more than `limit` when there is more. */
export async function listKeys(
  db: Db,
  filter: { appId: AppId; after: Cursor | null; limit: number },
): Promise<AppKey[]> {
  const rows = await many<AppKeyRow>(
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
  return rows.map((row) => ({
    id: keyId(row.id),
    label: row.label,
    prefix: row.prefix,
    status: row.status,
    subscriptionId: row.subscription_id,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
    revokedAt: row.revoked_at,
  }))
}

/** The instant of the revocation, the first one when it was revoked before; null when there is no such key. */
export async function revokeKey(
  db: Db,
  key: { appId: AppId; id: string; at: Date },
): Promise<Date | null> {
  const row = await maybeOne<{ revoked_at: Date }>(
    db,
    sql`
    update api_keys
    set status = 'revoked', revoked_at = coalesce(revoked_at, ${key.at}),
        revoked_reason = coalesce(revoked_reason, 'requested')
    where app_id = ${key.appId} and user_id is null and id = ${key.id}
    returning revoked_at`,
  )
  return row?.revoked_at ?? null
}

export interface ValidKeyRow {
  client_id: string
  user_id: string | null
  external_user_id: string | null
  plan_id: string | null
  subscription_id: string | null
}

/** The working key with one of these hashes, with its subscription: its user's, or the one it was made for. */
export async function findValid(
  db: Db,
  hashes: readonly Buffer[],
  at: Date,
): Promise<ValidKeyRow | null> {
  const row = await maybeOne<ValidKeyRow & { app_id: string; id: string; stale: boolean }>(
    db,
    sql`
    select k.app_id, k.id, c.client_id, k.user_id, u.external_user_id, s.plan_id, s.id as subscription_id,
           k.last_used_at is null or k.last_used_at < ${new Date(at.getTime() - 60_000)} as stale
    from api_keys k
    join apps a on a.id = k.app_id and a.status = 'active'
    join clients c on c.app_id = k.app_id and c.kind = 'public'
    left join end_users u on u.app_id = k.app_id and u.id = k.user_id
    left join subscriptions s on s.app_id = k.app_id and s.status = 'active'
      and (s.user_id = k.user_id or (k.user_id is null and s.id = k.subscription_id))
    where k.secret_hash = any(${hashes}::bytea[]) and k.status = 'active' and (k.user_id is null or u.status = 'active')`,
  )
  if (row?.stale) {
    await db.query(
      sql`update api_keys set last_used_at = ${at} where app_id = ${row.app_id} and id = ${row.id}`,
    )
  }
  return row
}
