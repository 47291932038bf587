import { type AccountId, type AppId, accountId, appId } from '../../shared/ids.ts'
import type { Cursor } from '../../shared/cursor.ts'
import type { Email } from '../../lib/text/email.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'

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
  readonly email: Email
  /** Null for an account that signs in only through an external provider. */
  readonly passwordHash: string | null
  readonly at: Date
}

/** Returns the new account, or null when another account has the address. */
export async function insertAccount(db: Db, account: NewAccount): Promise<Account | null> {
  const row = await maybeOne<AccountRow>(
    db,
    sql`
    insert into accounts (id, email, name, is_platform_admin, password_hash, created_at)
    values (${account.id}, ${account.email}, ${account.name}, ${account.isPlatformAdmin}, ${account.passwordHash}, ${account.at})
    on conflict (email) do nothing
    returning id, email, name, is_platform_admin`,
  )
  return row && fromRow(row)
}

/** Returns the id of the account with this e-mail address. Creates the account if it is missing. */
export async function getOrInsertAccount(
  db: Db,
  account: { id: AccountId; email: Email; passwordHash: string; at: Date },
): Promise<{ id: AccountId; created: boolean }> {
  const inserted = await insertAccount(db, { ...account, name: '', isPlatformAdmin: false })
  if (inserted) return { id: inserted.id, created: true }
  const { id } = await one<{ id: string }>(
    db,
    sql`select id from accounts where email = ${account.email}`,
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
  email: Email,
): Promise<(Account & { passwordHash: string | null }) | null> {
  const row = await maybeOne<AccountRow & { password_hash: string | null }>(
    db,
    sql`
    select id, email, name, is_platform_admin, password_hash from accounts where email = ${email}`,
  )
  return row && { ...fromRow(row), passwordHash: row.password_hash }
}

/**
 * Lists accounts in order of creation (the order of version 7 UUIDs). Returns up to `limit + 1`
 * rows.
 */
export async function listAccounts(
  db: Db,
  after: Cursor | null,
  limit: number,
): Promise<(Account & { createdAt: Date })[]> {
  const rows = await many<AccountRow & { created_at: Date }>(
    db,
    sql`
    select id, email, name, is_platform_admin, created_at
    from accounts
    where ${after?.id ?? null}::uuid is null or id > ${after?.id ?? null}::uuid
    order by id
    limit ${limit + 1}`,
  )
  return rows.map((row) => ({ ...fromRow(row), createdAt: row.created_at }))
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

/**
 * Links an identity to an account. Returns the account that the identity is linked to afterwards:
 * the first of two concurrent links wins.
 */
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

/** Writes the address and the admin role of an account. */
export async function updateAccount(db: Db, account: Account): Promise<void> {
  await db.query(sql`
    update accounts set email = ${account.email}, is_platform_admin = ${account.isPlatformAdmin} where id = ${account.id}`)
}

/** Marks a provider login as used. Returns false when it was used before. */
export async function useProviderLogin(
  db: Db,
  login: { stateHash: Buffer; expiresAt: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into used_provider_logins (state_hash, expires_at) values (${login.stateHash}, ${login.expiresAt})
    on conflict (state_hash) do nothing`)
  return rowCount === 1
}

export interface PendingLink {
  readonly accountId: AccountId
  readonly issuer: string
  readonly subject: string
}

export async function insertLink(
  db: Db,
  link: PendingLink & { tokenHash: Buffer; at: Date; expiresAt: Date },
): Promise<void> {
  await db.query(sql`
    insert into identity_links (token_hash, account_id, issuer, subject, created_at, expires_at)
    values (${link.tokenHash}, ${link.accountId}, ${link.issuer}, ${link.subject}, ${link.at}, ${link.expiresAt})`)
}

/**
 * Counts an attempt to confirm the link. Returns null for an unknown or expired link, and after
 * `attemptsMax` attempts.
 */
export async function tryLink(
  db: Db,
  tokenHash: Buffer,
  { at, attemptsMax }: { at: Date; attemptsMax: number },
): Promise<PendingLink | null> {
  const row = await maybeOne<{ account_id: string; issuer: string; subject: string }>(
    db,
    sql`
    update identity_links
    set attempts = attempts + 1
    where token_hash = ${tokenHash} and expires_at > ${at} and attempts < ${attemptsMax}
    returning account_id, issuer, subject`,
  )
  return row && { accountId: accountId(row.account_id), issuer: row.issuer, subject: row.subject }
}

export async function deleteLink(db: Db, tokenHash: Buffer): Promise<void> {
  await db.query(sql`delete from identity_links where token_hash = ${tokenHash}`)
}

export async function setPassword(db: Db, account: AccountId, passwordHash: string): Promise<void> {
  await db.query(sql`update accounts set password_hash = ${passwordHash} where id = ${account}`)
}

/** Returns the hash of the account's password and locks the row until the transaction ends. */
export async function lockPassword(db: Db, account: AccountId): Promise<string | null> {
  const row = await maybeOne<{ password_hash: string | null }>(
    db,
    sql`select password_hash from accounts where id = ${account} for share`,
  )
  return row?.password_hash ?? null
}

export interface NewSession {
  readonly tokenHash: Buffer
  readonly accountId: AccountId
  readonly csrfHash: string
  readonly at: Date
  readonly expiresAt: Date
}

/** Inserts a session and returns the account's current login generation. */
export async function insertSession(db: Db, session: NewSession): Promise<number> {
  const row = await one<{ login_generation: number }>(
    db,
    sql`
    insert into web_sessions (token_hash, account_id, csrf_token, auth_time, created_at, last_seen_at, expires_at,
                              login_generation)
    select ${session.tokenHash}, id, ${session.csrfHash}, ${session.at}, ${session.at}, ${session.at},
           ${session.expiresAt}, login_generation
    from accounts
    where id = ${session.accountId}
    returning login_generation`,
  )
  return row.login_generation
}

export interface StoredSession {
  readonly account: Account
  readonly authTime: Date
  readonly lastSeenAt: Date
  readonly expiresAt: Date
  readonly loginGeneration: number
}

/**
 * Returns null when the session has expired, was last used before `idleSince`, or belongs to an
 * older login generation.
 */
export async function findSession(
  db: Db,
  tokenHash: Buffer,
  live: { at: Date; idleSince: Date },
): Promise<StoredSession | null> {
  const row = await maybeOne<
    AccountRow & {
      auth_time: Date
      last_seen_at: Date
      expires_at: Date
      login_generation: number
    }
  >(
    db,
    sql`
    select a.id, a.email, a.name, a.is_platform_admin, s.auth_time, s.last_seen_at, s.expires_at,
           a.login_generation
    from web_sessions s
    join accounts a on a.id = s.account_id and a.login_generation = s.login_generation
    where s.token_hash = ${tokenHash} and s.expires_at > ${live.at} and s.last_seen_at > ${live.idleSince}`,
  )
  return (
    row && {
      account: fromRow(row),
      authTime: row.auth_time,
      lastSeenAt: row.last_seen_at,
      expiresAt: row.expires_at,
      loginGeneration: row.login_generation,
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

/** Begins the account's next login generation. Returns the generation that ends. */
export async function endLoginGeneration(db: Db, account: AccountId): Promise<number> {
  const row = await one<{ ended: number }>(
    db,
    sql`
    update accounts set login_generation = login_generation + 1 where id = ${account}
    returning login_generation - 1 as ended`,
  )
  return row.ended
}

export async function deleteAccountSessions(db: Db, account: AccountId): Promise<void> {
  await db.query(sql`delete from web_sessions where account_id = ${account}`)
}

/** Each function deletes at most `limit` expired rows of one table and returns their number. */
export const deletions: readonly ((db: Db, at: Date, limit: number) => Promise<number>)[] = [
  async (db, at, limit) =>
    countOf(
      await db.query(sql`
    delete from web_sessions where ctid in
      (select ctid from web_sessions where expires_at <= ${at} limit ${limit} for update skip locked)`),
    ),
  async (db, at, limit) =>
    countOf(
      await db.query(sql`
    delete from identity_links where ctid in
      (select ctid from identity_links where expires_at <= ${at} limit ${limit} for update skip locked)`),
    ),
  async (db, at, limit) =>
    countOf(
      await db.query(sql`
    delete from used_provider_logins where ctid in
      (select ctid from used_provider_logins where expires_at <= ${at} limit ${limit} for update skip locked)`),
    ),
]

const countOf = ({ rowCount }: { readonly rowCount: number | null }): number => rowCount ?? 0

/**
 * Finds the app of a public client and the account's role in it. Returns null if the app is
 * missing; the role is null if the account is not a member.
 */
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

export interface OwnerRow {
  /** Null for the deployment's quota. */
  max: number | null
  owned: number
}

/** Returns how many apps an account owns, and its own limit. */
export const findOwner = (db: Db, account: AccountId): Promise<OwnerRow> =>
  one<OwnerRow>(
    db,
    sql`
    select a.apps_max as max,
           (select count(*)::int from members m join apps p on p.id = m.app_id and p.status <> 'deleted'
            where m.account_id = a.id and m.role = 'owner') as owned
    from accounts a
    where a.id = ${account}`,
  )

/**
 * Same as `findOwner`, but locks the account's row first, so that the count includes all earlier
 * transactions.
 */
export async function lockOwner(db: Db, account: AccountId): Promise<OwnerRow> {
  await db.query(sql`select from accounts where id = ${account} for no key update`)
  return findOwner(db, account)
}

export async function setAppsMax(db: Db, account: AccountId, max: number | null): Promise<void> {
  await db.query(sql`update accounts set apps_max = ${max} where id = ${account}`)
}
