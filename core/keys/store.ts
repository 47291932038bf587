import type { Cursor } from '../platform/cursor.ts'
import {
  type AppId,
  type ClientId,
  type KeyId,
  type UserId,
  appId,
  externalUserId,
  isClientId,
  keyId,
  userId,
} from '../platform/ids.ts'
import { type Db, many, maybeOne, prepared, sql } from '../lib/sql.ts'
import type { Key, KeyOwner, KeyState } from './types.ts'

interface KeyRow {
  id: string
  label: string | null
  prefix: string
  status: KeyState
  created_at: Date
  last_used_at: Date | null
  revoked_at: Date | null
}

const fromRow = (row: KeyRow): Key => ({
  id: keyId(row.id),
  label: row.label,
  prefix: row.prefix,
  status: row.status,
  createdAt: row.created_at,
  lastUsedAt: row.last_used_at,
  revokedAt: row.revoked_at,
})

export interface NewKey {
  readonly appId: AppId
  readonly userId: UserId
  readonly id: KeyId
  readonly hash: Buffer
  readonly pepperId: string
  readonly label: string | null
  readonly prefix: string
  readonly at: Date
}

export async function insertKey(db: Db, key: NewKey): Promise<void> {
  await db.query(sql`
    insert into api_keys (app_id, id, user_id, secret_hash, pepper_id, label, prefix, status, created_at)
    values (${key.appId}, ${key.id}, ${key.userId}, ${key.hash}, ${key.pepperId}, ${key.label}, ${key.prefix},
            'active', ${key.at})`)
}

/** How many keys a user has that still work. The user's row must be locked for the count to hold. */
export async function countActive(db: Db, app: AppId, user: UserId): Promise<number> {
  const row = await maybeOne<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from api_keys where app_id = ${app} and user_id = ${user} and status = 'active'`,
  )
  return row?.count ?? 0
}

export interface KeyFilter {
  readonly appId: AppId
  readonly userId: UserId
  readonly after: Cursor | null
  readonly limit: number
}

/** One row more than `limit` when there is more. */
export async function listKeys(db: Db, filter: KeyFilter): Promise<Key[]> {
  const rows = await many<KeyRow>(
    db,
    sql`
    select id, label, prefix, status, created_at, last_used_at, revoked_at
    from api_keys
    where app_id = ${filter.appId} and user_id = ${filter.userId}
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${filter.limit + 1}`,
  )
  return rows.map(fromRow)
}

/** The instant of the revocation, the first one when it was revoked before; null when there is no such key. */
export async function revokeKey(
  db: Db,
  key: { appId: AppId; userId: UserId; id: string; at: Date },
): Promise<Date | null> {
  const row = await maybeOne<{ revoked_at: Date }>(
    db,
    sql`
    update api_keys
    set status = 'revoked', revoked_at = coalesce(revoked_at, ${key.at}),
        revoked_reason = coalesce(revoked_reason, 'requested')
    where app_id = ${key.appId} and user_id = ${key.userId} and id = ${key.id}
    returning revoked_at`,
  )
  return row?.revoked_at ?? null
}

interface OwnerRow {
  secret_hash: Buffer
  id: string
  app_id: string
  client_id: string
  scopes: string[]
  user_id: string
  external_user_id: string
  tokens_valid_after: Date | null
  stale: boolean
}

/** The owners of the working keys with these hashes, whose users are active. Notes each use at most once a minute. */
export async function findOwners(
  db: Db,
  hashes: readonly Buffer[],
  at: Date,
): Promise<{ hash: Buffer; owner: KeyOwner }[]> {
  const rows = await many<OwnerRow>(
    db,
    prepared(
      'key-owners',
      sql`
    select k.secret_hash, k.id, k.app_id, c.client_id, c.scopes, k.user_id, u.external_user_id, u.tokens_valid_after,
           k.last_used_at is null or k.last_used_at < ${new Date(at.getTime() - 60_000)} as stale
    from api_keys k
    join end_users u on u.app_id = k.app_id and u.id = k.user_id and u.status = 'active'
    join clients c on c.app_id = k.app_id and c.kind = 'public'
    join apps a on a.id = k.app_id and a.status = 'active'
    where k.secret_hash = any(${hashes}::bytea[]) and k.status = 'active'`,
    ),
  )
  await noteUses(
    db,
    rows.filter((row) => row.stale),
    at,
  )
  return rows.flatMap((row) =>
    isClientId(row.client_id)
      ? [{ hash: row.secret_hash, owner: toOwner(row, row.client_id) }]
      : [],
  )
}

const toOwner = (row: OwnerRow, clientId: ClientId): KeyOwner => ({
  keyId: keyId(row.id),
  appId: appId(row.app_id),
  clientId,
  userId: userId(row.user_id),
  externalUserId: externalUserId(row.external_user_id),
  tokensValidAfter: row.tokens_valid_after,
  publicScopes: row.scopes,
})

// In the order of ids: two batches that note the same keys never wait for each other in a circle.
async function noteUses(
  db: Db,
  keys: readonly { app_id: string; id: string }[],
  at: Date,
): Promise<void> {
  if (keys.length === 0) return
  await db.query(
    prepared(
      'key-uses',
      sql`
    update api_keys k set last_used_at = ${at}
    from (select k.app_id, k.id
          from unnest(${keys.map((key) => key.app_id)}::uuid[], ${keys.map((key) => key.id)}::uuid[]) as used (app_id, id)
          join api_keys k on k.app_id = used.app_id and k.id = used.id
          order by k.id
          for no key update of k) noted
    where k.app_id = noted.app_id and k.id = noted.id`,
    ),
  )
}
