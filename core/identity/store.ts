import {
  type AppId,
  type ClientId,
  type ExternalUserId,
  type UserId,
  appId,
  externalUserId,
  userId,
} from '../platform/ids.ts'
import type { Cursor } from '../platform/cursor.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../lib/sql.ts'
import type { User, UserState } from './types.ts'

interface UserRow {
  app_id: string
  id: string
  external_user_id: string
  email: string | null
  status: UserState
  tokens_valid_after: Date | null
  created_at: Date
  updated_at: Date
  deactivated_at: Date | null
}

const fromRow = (row: UserRow): User => ({
  id: userId(row.id),
  appId: appId(row.app_id),
  externalUserId: externalUserId(row.external_user_id),
  email: row.email,
  status: row.status,
  tokensValidAfter: row.tokens_valid_after,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  deactivatedAt: row.deactivated_at,
})

export interface NewUser {
  readonly appId: AppId
  readonly id: UserId
  readonly externalUserId: ExternalUserId
  readonly email: string | null
  readonly at: Date
}

/** The new row, or null when the user is already there: of two concurrent callers one creates. */
export async function insertUser(db: Db, user: NewUser): Promise<User | null> {
  const row = await maybeOne<UserRow>(
    db,
    sql`
    insert into end_users (app_id, id, external_user_id, email, status, created_at, updated_at)
    values (${user.appId}, ${user.id}, ${user.externalUserId}, ${user.email}, 'active', ${user.at}, ${user.at})
    on conflict (app_id, external_user_id) do nothing
    returning app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at`,
  )
  return row && fromRow(row)
}

/** The users behind many (app, external id) pairs; what is not there is absent. */
export async function findUsers(
  db: Db,
  apps: readonly AppId[],
  externals: readonly string[],
): Promise<User[]> {
  const rows = await many<UserRow>(
    db,
    prepared(
      'users-by-external-id',
      sql`
    select u.app_id, u.id, u.external_user_id, u.email, u.status, u.tokens_valid_after, u.created_at, u.updated_at,
           u.deactivated_at
    from unnest(${apps}::uuid[], ${externals}::text[]) as wanted (app_id, external_user_id)
    join end_users u on u.app_id = wanted.app_id and u.external_user_id = wanted.external_user_id`,
    ),
  )
  return rows.map(fromRow)
}

export async function findUserById(db: Db, app: AppId, id: UserId): Promise<User | null> {
  // With the app its users have ended too.
  const row = await maybeOne<UserRow>(
    db,
    sql`
    select u.app_id, u.id, u.external_user_id, u.email, case a.status when 'active' then u.status else 'inactive' end as status,
           u.tokens_valid_after, u.created_at, u.updated_at, u.deactivated_at
    from end_users u
    join apps a on a.id = u.app_id
    where u.app_id = ${app} and u.id = ${id}`,
  )
  return row && fromRow(row)
}

/** The user by the external id; the row is held until the transaction ends. */
export async function lockUser(db: Db, app: AppId, external: string): Promise<User | null> {
  const row = await maybeOne<UserRow>(
    db,
    sql`
    select app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at
    from end_users
    where app_id = ${app} and external_user_id = ${external}
    for no key update`,
  )
  return row && fromRow(row)
}

export async function updateUser(db: Db, user: User): Promise<User> {
  return fromRow(
    await one<UserRow>(
      db,
      sql`
    update end_users
    set email = ${user.email}, status = ${user.status}, tokens_valid_after = ${user.tokensValidAfter},
        deactivated_at = ${user.deactivatedAt}, updated_at = ${user.updatedAt}
    where app_id = ${user.appId} and id = ${user.id}
    returning app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at`,
    ),
  )
}

export interface UserFilter {
  readonly appId: AppId
  readonly status: UserState | null
  readonly externalUserId: string | null
  readonly after: Cursor | null
  readonly limit: number
}

/** One row more than `limit` when there is more. */
export async function listUsers(db: Db, filter: UserFilter): Promise<User[]> {
  const rows = await many<UserRow>(
    db,
    sql`
    select app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at
    from end_users
    where app_id = ${filter.appId}
      and (${filter.status}::text is null or status = ${filter.status})
      and (${filter.externalUserId}::text is null or external_user_id = ${filter.externalUserId})
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${filter.limit + 1}`,
  )
  return rows.map(fromRow)
}

/** The users behind many (client id, external id) pairs; what is not there is absent. */
export async function findSubjects(
  db: Db,
  clients: readonly string[],
  externals: readonly string[],
) {
  return many<{
    client_id: string
    app_id: string
    external_user_id: string
    user_id: string | null
  }>(
    db,
    sql`
    select c.client_id, c.app_id, wanted.external_user_id, u.id as user_id
    from unnest(${clients}::text[], ${externals}::text[]) as wanted (client_id, external_user_id)
    join clients c on c.client_id = wanted.client_id and c.kind = 'public'
    left join end_users u on u.app_id = c.app_id and u.external_user_id = wanted.external_user_id`,
  )
}

/** Ends the user's opaque signer sessions and logins. Returns the ids of the sessions. */
export async function endUserSessions(
  db: Db,
  user: { appId: AppId; id: UserId },
  at: Date,
): Promise<string[]> {
  await db.query(sql`
    update token_families set ended_at = ${at} where app_id = ${user.appId} and user_id = ${user.id} and ended_at is null`)
  const rows = await many<{ id: string }>(
    db,
    sql`
    update signer_sessions set revoked_at = ${at}
    where app_id = ${user.appId} and user_id = ${user.id} and revoked_at is null
    returning id`,
  )
  return rows.map((row) => row.id)
}

export async function revokeUserKeys(
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

export interface NewApp {
  readonly id: AppId
  readonly name: string
  readonly starterUsdMicros: bigint
  readonly developerName: string
  readonly websiteUrl: string
  readonly clientId: ClientId
  readonly m2mClientId: string
  readonly publicScopes: readonly string[]
  readonly m2mScopes: readonly string[]
  readonly publicGrants: readonly string[]
  readonly m2mGrants: readonly string[]
  readonly at: Date
}

export async function insertApp(db: Db, app: NewApp): Promise<void> {
  await db.query(sql`
    insert into apps (id, name, starter_usd_micros, developer_name, website_url, created_at)
    values (${app.id}, ${app.name}, ${app.starterUsdMicros}, ${app.developerName}, ${app.websiteUrl}, ${app.at})`)
  await db.query(sql`
    insert into clients (client_id, app_id, kind, scopes, grant_types, created_at)
    values (${app.clientId}, ${app.id}, 'public', ${app.publicScopes}, ${app.publicGrants}, ${app.at}),
           (${app.m2mClientId}, ${app.id}, 'm2m', ${app.m2mScopes}, ${app.m2mGrants}, ${app.at})`)
}

export interface NewClientSecret {
  readonly id: string
  readonly clientId: string
  readonly hash: Buffer
  readonly pepperId: string
  readonly at: Date
}

export async function insertClientSecret(db: Db, secret: NewClientSecret): Promise<void> {
  await db.query(sql`
    insert into client_secrets (id, client_id, secret_hash, pepper_id, created_at)
    values (${secret.id}, ${secret.clientId}, ${secret.hash}, ${secret.pepperId}, ${secret.at})`)
}

export interface M2mClientRow {
  app_id: string
  client_id: string
  public_client_id: string
  scopes: string[]
  public_scopes: string[]
  secret_hash: Buffer | null
  pepper_id: string | null
}

/** M2M clients with their apps' public clients, one row for each secret that is valid at `at`. */
export async function findM2mClients(
  db: Db,
  clientIds: readonly string[],
  at: Date,
): Promise<M2mClientRow[]> {
  return many<M2mClientRow>(
    db,
    prepared(
      'm2m-clients',
      sql`
    select m.app_id, m.client_id, p.client_id as public_client_id, m.scopes, p.scopes as public_scopes,
           s.secret_hash, s.pepper_id
    from clients m
    join clients p on p.app_id = m.app_id and p.kind = 'public'
    join apps a on a.id = m.app_id and a.status = 'active'
    left join client_secrets s on s.client_id = m.client_id and (s.expires_at is null or s.expires_at > ${at})
    where m.client_id = any(${clientIds}::text[]) and m.kind = 'm2m'`,
    ),
  )
}

export interface PublicClientRow {
  app_id: string
  client_id: string
  scopes: string[]
}

export const findPublicClient = (db: Db, clientId: string): Promise<PublicClientRow | null> =>
  maybeOne<PublicClientRow>(
    db,
    sql`
    select c.app_id, c.client_id, c.scopes
    from clients c
    join apps a on a.id = c.app_id and a.status = 'active'
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )

export async function listApps(db: Db, after: Cursor | null, limit: number) {
  return many<{
    id: string
    name: string
    created_at: Date
    client_id: string
    m2m_client_id: string
  }>(
    db,
    sql`
    select a.id, a.name, a.created_at, p.client_id, m.client_id as m2m_client_id
    from apps a
    join clients p on p.app_id = a.id and p.kind = 'public'
    join clients m on m.app_id = a.id and m.kind = 'm2m'
    where a.status <> 'deleted'
      and (${after?.id ?? null}::uuid is null
           or (a.created_at, a.id) > (${after?.createdAt ?? null}::timestamptz, ${after?.id ?? null}::uuid))
    order by a.created_at, a.id
    limit ${limit + 1}`,
  )
}

/** The account of that e-mail address, made when missing. `created` tells which. */
export async function ensureAccount(
  db: Db,
  account: { id: string; email: string; passwordHash: string; at: Date },
) {
  const made = await maybeOne<{ id: string }>(
    db,
    sql`
    insert into accounts (id, email, password_hash, created_at)
    values (${account.id}, ${account.email}, ${account.passwordHash}, ${account.at})
    on conflict (lower(email)) do nothing
    returning id`,
  )
  if (made) return { id: made.id, created: true }
  const found = await one<{ id: string }>(
    db,
    sql`select id from accounts where lower(email) = lower(${account.email})`,
  )
  return { id: found.id, created: false }
}

export async function insertMember(
  db: Db,
  member: { appId: AppId; accountId: string; role: string; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into members (app_id, account_id, role, created_at)
    values (${member.appId}, ${member.accountId}, ${member.role}, ${member.at})
    on conflict do nothing`)
}
