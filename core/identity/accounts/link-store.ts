import { type AccountId, accountId } from '../../shared/ids.ts'
import type { Email } from '../../lib/text/email.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'

/** Links that work once: they set a new password, or create the account of an address. */

interface NewLink {
  readonly tokenHash: Buffer
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertReset(
  db: Db,
  reset: NewLink & { readonly accountId: AccountId },
): Promise<void> {
  await db.query(sql`
    insert into password_resets (token_hash, account_id, created_at, expires_at)
    values (${reset.tokenHash}, ${reset.accountId}, ${reset.at}, ${reset.expiresAt})`)
}

/** Whether the token can still set a password. */
export async function isResetOpen(db: Db, tokenHash: Buffer, at: Date): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    select account_id from password_resets
    where token_hash = ${tokenHash} and account_id is not null and used_at is null and expires_at > ${at}`,
  )
  return row !== null
}

/**
 * Marks the token as used. Returns null when it is unknown, used or expired: only one of two
 * concurrent calls gets the account.
 */
export async function useReset(db: Db, tokenHash: Buffer, at: Date): Promise<AccountId | null> {
  const row = await maybeOne<{ account_id: string }>(
    db,
    sql`
    update password_resets
    set used_at = ${at}
    where token_hash = ${tokenHash} and account_id is not null and used_at is null and expires_at > ${at}
    returning account_id`,
  )
  return row && accountId(row.account_id)
}

/** Ends all unused reset tokens of the account. */
export async function endResets(db: Db, account: AccountId, at: Date): Promise<void> {
  await db.query(
    sql`update password_resets set used_at = ${at} where account_id = ${account} and used_at is null`,
  )
}

export async function insertSignUp(
  db: Db,
  link: NewLink & { readonly email: Email },
): Promise<void> {
  await db.query(sql`
    insert into password_resets (token_hash, email, created_at, expires_at)
    values (${link.tokenHash}, ${link.email}, ${link.at}, ${link.expiresAt})`)
}

/** Returns the address for which the token can still create an account, otherwise null. */
export async function findSignUp(db: Db, tokenHash: Buffer, at: Date): Promise<string | null> {
  const row = await maybeOne<{ email: string }>(
    db,
    sql`
    select email from password_resets
    where token_hash = ${tokenHash} and email is not null and used_at is null and expires_at > ${at}`,
  )
  return row && row.email
}

/**
 * Marks all unused sign-up tokens of the address as used. Returns false unless the token was one of
 * them and has not expired: only one of two concurrent calls gets the address. Locks in one order,
 * because two tokens of an address may be used at the same time.
 */
export async function useSignUp(
  db: Db,
  {
    tokenHash,
    email,
    at,
  }: { readonly tokenHash: Buffer; readonly email: Email; readonly at: Date },
): Promise<boolean> {
  const used = await many<{ is_open: boolean }>(
    db,
    sql`
    with unused as (
      select token_hash from password_resets where email = ${email} and used_at is null
      order by token_hash
      for update
    )
    update password_resets r
    set used_at = ${at}
    from unused
    where r.token_hash = unused.token_hash
    returning r.token_hash = ${tokenHash} and r.expires_at > ${at} as is_open`,
  )
  return used.some(({ is_open: isOpen }) => isOpen)
}

/** Deletes at most `limit` expired links and returns their number. */
export async function deleteExpiredLinks(db: Db, at: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from password_resets where ctid in
      (select ctid from password_resets where expires_at <= ${at} limit ${limit} for update skip locked)`)
  return rowCount ?? 0
}
