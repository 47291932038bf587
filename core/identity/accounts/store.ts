import { type AccountId, type AppId, accountId, appId } from '../../platform/ids.ts'
import { type Db, maybeOne, one, sql } from '../../lib/sql.ts'

export interface Account {
  readonly id: AccountId
  readonly email: string
  readonly name: string
  readonly isPlatformAdmin: boolean
}

interface AccountRow {
  id: string
  email: string
  name: string
  is_platform_admin: boolean
}

const fromRow = (row: AccountRow): Account => ({
  id: accountId(row.id),
  email: row.email,
  name: row.name,
  isPlatformAdmin: row.is_platform_admin,
})

export interface NewAccount extends Account {
  /** Null when it signs in through an outside provider only. */
  readonly passwordHash: string | null
  readonly at: Date
}

/** The new account, or null when another one has the address. */
export async function insertAccount(db: Db, account: NewAccount): Promise<Account | null> {
  const row = await maybeOne<AccountRow>(
    db,
    sql`
    insert into accounts (id, email, name, is_platform_admin, password_hash, created_at)
    values (${account.id}, ${account.email}, ${account.name}, ${account.isPlatformAdmin}, ${account.passwordHash}, ${account.at})
    on conflict (lower(email)) do nothing
    returning id, email, name, is_platform_admin`,
  )
  return row && fromRow(row)
}

/** The id of the account with that e-mail address, which is created when there is none. */
export async function getOrInsertAccount(
  db: Db,
  account: { id: AccountId; email: string; passwordHash: string; at: Date },
): Promise<{ id: AccountId; created: boolean }> {
  const inserted = await insertAccount(db, { ...account, name: '', isPlatformAdmin: false })
  if (inserted) return { id: inserted.id, created: true }
  const { id } = await one<{ id: string }>(
    db,
    sql`select id from accounts where lower(email) = lower(${account.email})`,
  )
  return { id: accountId(id), created: false }
}

export async function findById(db: Db, id: string): Promise<Account | null> {
  const row = await maybeOne<AccountRow>(
    db,
    sql`select id, email, name, is_platform_admin from accounts where id = ${id}`,
  )
  return row && fromRow(row)
}

export async function findByEmail(
  db: Db,
  email: string,
): Promise<(Account & { passwordHash: string | null }) | null> {
  const row = await maybeOne<AccountRow & { password_hash: string | null }>(
    db,
    sql`
    select id, email, name, is_platform_admin, password_hash from accounts where lower(email) = lower(${email})`,
  )
  return row && { ...fromRow(row), passwordHash: row.password_hash }
}

export async function findByIdentity(
  db: Db,
  issuer: string,
  subject: string,
): Promise<Account | null> {
  const row = await maybeOne<AccountRow>(
    db,
    sql`
    select a.id, a.email, a.name, a.is_platform_admin
    from account_identities i
    join accounts a on a.id = i.account_id
    where i.issuer = ${issuer} and i.subject = ${subject}`,
  )
  return row && fromRow(row)
}

/** Links an identity to an account. Returns the account that the identity has afterwards: of two concurrent links the first stays. */
export async function linkIdentity(
  db: Db,
  link: { issuer: string; subject: string; accountId: AccountId; at: Date },
): Promise<AccountId> {
  const row = await one<{ account_id: string }>(
    db,
    sql`
    insert into account_identities (issuer, subject, account_id, created_at)
    values (${link.issuer}, ${link.subject}, ${link.accountId}, ${link.at})
    on conflict (issuer, subject) do update set issuer = excluded.issuer
    returning account_id`,
  )
  return accountId(row.account_id)
}

export async function setPassword(db: Db, account: AccountId, passwordHash: string): Promise<void> {
  await db.query(sql`update accounts set password_hash = ${passwordHash} where id = ${account}`)
}

export interface NewSession {
  readonly tokenHash: Buffer
  readonly accountId: AccountId
  readonly csrfToken: string
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertSession(db: Db, session: NewSession): Promise<void> {
  await db.query(sql`
    insert into web_sessions (token_hash, account_id, csrf_token, auth_time, created_at, last_seen_at, expires_at)
    values (${session.tokenHash}, ${session.accountId}, ${session.csrfToken}, ${session.at}, ${session.at}, ${session.at},
            ${session.expiresAt})`)
}

export interface StoredSession {
  readonly account: Account
  readonly csrfToken: string
  readonly authTime: Date
  readonly lastSeenAt: Date
  readonly expiresAt: Date
}

/** The session, unless its absolute end has passed or it was not seen since `idleSince`. */
export async function findSession(
  db: Db,
  tokenHash: Buffer,
  live: { at: Date; idleSince: Date },
): Promise<StoredSession | null> {
  const row = await maybeOne<
    AccountRow & { csrf_token: string; auth_time: Date; last_seen_at: Date; expires_at: Date }
  >(
    db,
    sql`
    select a.id, a.email, a.name, a.is_platform_admin, s.csrf_token, s.auth_time, s.last_seen_at, s.expires_at
    from web_sessions s
    join accounts a on a.id = s.account_id
    where s.token_hash = ${tokenHash} and s.expires_at > ${live.at} and s.last_seen_at > ${live.idleSince}`,
  )
  return (
    row && {
      account: fromRow(row),
      csrfToken: row.csrf_token,
      authTime: row.auth_time,
      lastSeenAt: row.last_seen_at,
      expiresAt: row.expires_at,
    }
  )
}

export async function touchSession(db: Db, tokenHash: Buffer, at: Date): Promise<void> {
  await db.query(
    sql`update web_sessions set last_seen_at = ${at} where token_hash = ${tokenHash} and last_seen_at < ${at}`,
  )
}

export async function deleteSession(db: Db, tokenHash: Buffer): Promise<void> {
  await db.query(sql`delete from web_sessions where token_hash = ${tokenHash}`)
}

export async function deleteSessionsOf(db: Db, account: AccountId): Promise<void> {
  await db.query(sql`delete from web_sessions where account_id = ${account}`)
}

export async function insertReset(
  db: Db,
  reset: { tokenHash: Buffer; accountId: AccountId; at: Date; expiresAt: Date },
): Promise<void> {
  await db.query(sql`
    insert into password_resets (token_hash, account_id, created_at, expires_at)
    values (${reset.tokenHash}, ${reset.accountId}, ${reset.at}, ${reset.expiresAt})`)
}

/** Marks the token as used. Null when it is unknown, used or too old: of two concurrent calls one gets the account. */
export async function useReset(db: Db, tokenHash: Buffer, at: Date): Promise<AccountId | null> {
  const row = await maybeOne<{ account_id: string }>(
    db,
    sql`
    update password_resets
    set used_at = ${at}
    where token_hash = ${tokenHash} and used_at is null and expires_at > ${at}
    returning account_id`,
  )
  return row && accountId(row.account_id)
}

/** Ends every reset token of the account that was not used. */
export async function endResets(db: Db, account: AccountId, at: Date): Promise<void> {
  await db.query(
    sql`update password_resets set used_at = ${at} where account_id = ${account} and used_at is null`,
  )
}

/** Deletes expired sessions and reset tokens. */
export async function deleteExpired(db: Db, at: Date): Promise<void> {
  await db.query(sql`delete from web_sessions where expires_at <= ${at}`)
  await db.query(sql`delete from password_resets where expires_at <= ${at}`)
}

/** The app of a public client and the account's role in it. Null when there is no such app; a null role when it is no member. */
export async function findMembership(
  db: Db,
  account: AccountId,
  clientId: string,
): Promise<{ appId: AppId; role: string | null } | null> {
  const row = await maybeOne<{ app_id: string; role: string | null }>(
    db,
    sql`
    select c.app_id, m.role
    from clients c
    join apps a on a.id = c.app_id and a.status <> 'deleted'
    left join members m on m.app_id = c.app_id and m.account_id = ${account}
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )
  return row && { appId: appId(row.app_id), role: row.role }
}
