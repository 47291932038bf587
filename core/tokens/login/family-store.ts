import type { AppId, UserId } from '../../platform/ids.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'

/** True for a token that was revoked, or whose login has ended. */
export async function isVoid(
  db: Db,
  token: { jti: string; familyId: string | null },
): Promise<boolean> {
  const row = await maybeOne<{ void: boolean }>(
    db,
    sql`
    select exists (select 1 from revoked_tokens where jti = ${token.jti})
        or (${token.familyId}::uuid is not null and not exists (
              select 1 from token_families where id = ${token.familyId}::uuid and ended_at is null)) as void`,
  )
  return row?.void ?? true
}

/** Remembers until its end that a JWT is void. */
export async function revokeJwt(db: Db, token: { jti: string; expiresAt: Date }): Promise<void> {
  await db.query(sql`
    insert into revoked_tokens (jti, expires_at) values (${token.jti}, ${token.expiresAt}) on conflict do nothing`)
}

export interface NewFamily {
  readonly id: string
  readonly appId: AppId
  readonly userId: UserId
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertFamily(db: Db, family: NewFamily): Promise<void> {
  await db.query(sql`
    insert into token_families (id, app_id, user_id, created_at, expires_at)
    values (${family.id}, ${family.appId}, ${family.userId}, ${family.at}, ${family.expiresAt})`)
}

/** Ends everything that one login led to; the first instant stays. */
export async function endFamily(db: Db, id: string, at: Date): Promise<void> {
  await db.query(
    sql`update token_families set ended_at = ${at} where id = ${id} and ended_at is null`,
  )
}

export interface NewRefreshToken {
  readonly hash: Buffer
  readonly familyId: string
  readonly clientId: string
  readonly accountId: string
  readonly scope: string
  readonly authTime: Date
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertRefreshToken(db: Db, token: NewRefreshToken): Promise<void> {
  await db.query(sql`
    insert into refresh_tokens (token_hash, family_id, client_id, account_id, scope, auth_time, created_at, expires_at)
    values (${token.hash}, ${token.familyId}, ${token.clientId}, ${token.accountId}, ${token.scope}, ${token.authTime},
            ${token.at}, ${token.expiresAt})`)
}

export interface RefreshTokenRow {
  family_id: string
  client_id: string
  account_id: string
  scope: string
  auth_time: Date
  created_at: Date
  expires_at: Date
  rotated_at: Date | null
  app_id: string
  user_id: string
  ended_at: Date | null
}

/** The token with its family, both held until the transaction ends. */
export const lockRefreshToken = (db: Db, hash: Buffer): Promise<RefreshTokenRow | null> =>
  maybeOne<RefreshTokenRow>(
    db,
    sql`
    select r.family_id, r.client_id, r.account_id, r.scope, r.auth_time, r.created_at, r.expires_at, r.rotated_at,
           f.app_id, f.user_id, f.ended_at
    from refresh_tokens r
    join token_families f on f.id = r.family_id
    where r.token_hash = ${hash}
    for update`,
  )

export const findRefreshToken = (db: Db, hash: Buffer): Promise<RefreshTokenRow | null> =>
  maybeOne<RefreshTokenRow>(
    db,
    sql`
    select r.family_id, r.client_id, r.account_id, r.scope, r.auth_time, r.created_at, r.expires_at, r.rotated_at,
           f.app_id, f.user_id, f.ended_at
    from refresh_tokens r
    join token_families f on f.id = r.family_id
    where r.token_hash = ${hash}`,
  )

export async function rotateRefreshToken(db: Db, hash: Buffer, at: Date): Promise<void> {
  await db.query(
    sql`update refresh_tokens set rotated_at = ${at} where token_hash = ${hash} and rotated_at is null`,
  )
}

export interface CodeRow {
  client_id: string
  account_id: string
  user_id: string
  family_id: string
  redirect_uri: string
  scope: string
  nonce: string | null
  code_challenge: string
  auth_time: Date
  expires_at: Date
  consumed_at: Date | null
}

/** An authorization code, held until the transaction ends. */
export const lockCode = (db: Db, hash: Buffer): Promise<CodeRow | null> =>
  maybeOne<CodeRow>(
    db,
    sql`
    select client_id, account_id, user_id, family_id, redirect_uri, scope, nonce, code_challenge, auth_time,
           expires_at, consumed_at
    from authorization_codes
    where code_hash = ${hash}
    for update`,
  )

export async function consumeCode(db: Db, hash: Buffer, at: Date): Promise<void> {
  await db.query(
    sql`update authorization_codes set consumed_at = ${at} where code_hash = ${hash} and consumed_at is null`,
  )
}

/** Forgets what ended more than a day ago, a bounded number of rows of each kind. */
export async function forgetEnded(db: Db, before: Date): Promise<void> {
  await db.query(sql`delete from device_codes where code_hash in
    (select code_hash from device_codes where expires_at < ${before} limit 1000)`)
  await db.query(sql`delete from authorization_codes where code_hash in
    (select code_hash from authorization_codes where expires_at < ${before} limit 1000)`)
  await db.query(sql`delete from token_families where id in
    (select id from token_families where expires_at < ${before} limit 1000)`)
  await db.query(sql`delete from revoked_tokens where jti in
    (select jti from revoked_tokens where expires_at < ${before} limit 1000)`)
  await db.query(sql`delete from signer_sessions where (app_id, id) in
    (select app_id, id from signer_sessions where expires_at < ${before} limit 1000)`)
}
