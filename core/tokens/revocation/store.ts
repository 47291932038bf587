import { type Db, maybeOne, sql } from '../../lib/sql.ts'

/** Whether a JWT was revoked, or its login has ended. */
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

/** Revokes a JWT. The row is needed until the JWT expires. */
export async function revokeJwt(db: Db, token: { jti: string; expiresAt: Date }): Promise<void> {
  await db.query(sql`
    insert into revoked_tokens (jti, expires_at) values (${token.jti}, ${token.expiresAt}) on conflict do nothing`)
}

/** Deletes a bounded number of rows that expired before that time. */
export async function deleteExpiredRevocations(db: Db, before: Date): Promise<void> {
  await db.query(sql`delete from revoked_tokens where jti in
    (select jti from revoked_tokens where expires_at < ${before} limit 1000)`)
}
