import type { Cursor } from '../../shared/cursor.ts'
import {
  type AppId,
  type UserId,
  appId,
  externalUserId,
  isClientId,
  userId,
} from '../../shared/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'

export interface NewSignerSession {
  readonly appId: AppId
  readonly userId: UserId
  readonly id: string
  readonly hash: Buffer
  readonly pepperId: string
  readonly scope: string
  readonly label: string
  /** Ids that the session descends from. */
  readonly grants: readonly string[]
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertSession(db: Db, session: NewSignerSession): Promise<void> {
  await db.query(sql`
    insert into signer_sessions (app_id, id, user_id, token_hash, pepper_id, scope, label, grants, created_at, expires_at)
    values (${session.appId}, ${session.id}, ${session.userId}, ${session.hash}, ${session.pepperId}, ${session.scope},
            ${session.label}, ${session.grants}, ${session.at}, ${session.expiresAt})`)
}

export interface SessionRow {
  id: string
  label: string
  scope: string
  created_at: Date
  expires_at: Date
  last_used_at: Date | null
  revoked_at: Date | null
}

export interface SessionFilter {
  readonly appId: AppId
  readonly userId: UserId
  readonly after: Cursor | null
  readonly limit: number
}

/**
 * Lists sessions, the newest first. Returns up to `limit + 1` rows; the extra row shows that
 * there are more.
 */
export const listSessions = (db: Db, filter: SessionFilter): Promise<SessionRow[]> =>
  many<SessionRow>(
    db,
    sql`
    select id, label, scope, created_at, expires_at, last_used_at,
           coalesce(revoked_at, (select min(ended_at) from grant_ends
                                 where id = any(ended_grants(signer_sessions.grants, created_at)))) as revoked_at
    from signer_sessions
    where app_id = ${filter.appId} and user_id = ${filter.userId}
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) < (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at desc, id desc
    limit ${filter.limit + 1}`,
  )

/**
 * Revokes a session. Returns the time of its first revocation; null when the user has no such
 * session.
 */
export async function revokeSession(
  db: Db,
  session: { appId: AppId; userId: UserId; id: string; at: Date },
): Promise<Date | null> {
  const row = await maybeOne<{ revoked_at: Date }>(
    db,
    sql`
    update signer_sessions
    set revoked_at = coalesce(revoked_at, ${session.at})
    where app_id = ${session.appId} and user_id = ${session.userId} and id = ${session.id}
    returning revoked_at`,
  )
  return row?.revoked_at ?? null
}

/** Revokes all sessions of a deactivated user. Returns their ids. */
export async function revokeSessionsOfUser(
  db: Db,
  user: { appId: AppId; id: UserId },
  at: Date,
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update signer_sessions set revoked_at = ${at}
    where app_id = ${user.appId} and user_id = ${user.id} and revoked_at is null
    returning id`,
  )
  return rows.map((row) => row.id)
}

/** Revokes all sessions of a deleted app. */
export async function revokeSessionsOfApp(db: Db, app: AppId, at: Date): Promise<void> {
  await db.query(
    sql`update signer_sessions set revoked_at = ${at} where app_id = ${app} and revoked_at is null`,
  )
}

/** Deletes at most `limit` sessions that expired before `before`. Returns their number. */
export async function deleteExpiredSessions(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`delete from signer_sessions where (app_id, id) in
    (select app_id, id from signer_sessions where expires_at < ${before} limit ${limit})`)
  return rowCount ?? 0
}

/**
 * Finds a session by hash. Returns null if it has ended, if its user or app is inactive, or if the
 * app lost its scope. Records the use at most once a minute.
 */
export async function findSession(db: Db, hashes: readonly Buffer[], at: Date) {
  const row = await maybeOne<{
    id: string
    app_id: string
    client_id: string
    user_id: string
    external_user_id: string
    scope: string
    grants: string[]
    created_at: Date
    expires_at: Date
    stale: boolean
  }>(
    db,
    sql`
    select s.id, s.app_id, c.client_id, s.user_id, u.external_user_id, s.scope, s.grants, s.created_at, s.expires_at,
           s.last_used_at is null or s.last_used_at < ${new Date(at.getTime() - 60_000)} as stale
    from signer_sessions s
    join end_users u on u.app_id = s.app_id and u.id = s.user_id and u.status = 'active'
    join apps a on a.id = s.app_id and a.status = 'active'
    join clients c on c.app_id = s.app_id and c.kind = 'public' and s.scope = any(c.scopes)
    where s.token_hash = any(${hashes}::bytea[]) and s.revoked_at is null and s.expires_at > ${at}
      and ended_grants(s.grants || s.id::text, s.created_at) = '{}'`,
  )
  if (!row || !isClientId(row.client_id)) return null
  if (row.stale) {
    await db.query(
      sql`update signer_sessions set last_used_at = ${at} where app_id = ${row.app_id} and id = ${row.id}`,
    )
  }
  return {
    id: row.id,
    appId: appId(row.app_id),
    clientId: row.client_id,
    userId: userId(row.user_id),
    externalUserId: externalUserId(row.external_user_id),
    scope: row.scope,
    grants: row.grants,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
  }
}
