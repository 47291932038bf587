import type { Cursor } from '../../platform/cursor.ts'
import type { AccountId, AppId } from '../../platform/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'

/** An app's own row, as its people see it. */
export interface AppRow {
  id: string
  name: string
  status: string
  color: string
  developer_name: string
  website_url: string
  dmz_url: string
  metering_mode: string
  created_at: Date
}

export interface ClientRow {
  client_id: string
  kind: 'public' | 'm2m'
  scopes: string[]
  grant_types: string[]
  redirect_uris: string[]
  post_logout_redirect_uris: string[]
  initiate_login_uri: string | null
  device_third_party_initiate_login: boolean
  has_secret: boolean
}

export const findApp = (db: Db, app: AppId): Promise<AppRow | null> =>
  maybeOne<AppRow>(
    db,
    sql`
    select id, name, status, color, developer_name, website_url, dmz_url, metering_mode, created_at
    from apps
    where id = ${app} and status <> 'deleted'`,
  )

/** As `findApp`, and holds the row until the transaction ends: what depends on a count is done one after another. */
export const lockApp = (db: Db, app: AppId): Promise<AppRow | null> =>
  maybeOne<AppRow>(
    db,
    sql`
    select id, name, status, color, developer_name, website_url, dmz_url, metering_mode, created_at
    from apps
    where id = ${app} and status <> 'deleted'
    for no key update`,
  )

export const findClients = (db: Db, app: AppId, at: Date): Promise<ClientRow[]> =>
  many<ClientRow>(
    db,
    sql`
    select c.client_id, c.kind, c.scopes, c.grant_types, c.redirect_uris, c.post_logout_redirect_uris,
           c.initiate_login_uri, c.device_third_party_initiate_login,
           exists (select from client_secrets s
                   where s.client_id = c.client_id and (s.expires_at is null or s.expires_at > ${at})) as has_secret
    from clients c
    where c.app_id = ${app}`,
  )

export async function updateApp(db: Db, app: AppRow, at: Date): Promise<void> {
  await db.query(sql`
    update apps
    set name = ${app.name}, color = ${app.color}, developer_name = ${app.developer_name}, website_url = ${app.website_url},
        dmz_url = ${app.dmz_url}, metering_mode = ${app.metering_mode}, updated_at = ${at}
    where id = ${app.id}`)
}

export async function updateClient(db: Db, client: ClientRow): Promise<void> {
  await db.query(sql`
    update clients
    set scopes = ${client.scopes}, grant_types = ${client.grant_types}, redirect_uris = ${client.redirect_uris},
        post_logout_redirect_uris = ${client.post_logout_redirect_uris}, initiate_login_uri = ${client.initiate_login_uri},
        device_third_party_initiate_login = ${client.device_third_party_initiate_login}
    where client_id = ${client.client_id}`)
}

/** Ends the app and every credential of it; the rows stay. The ids of the keys that worked until now. */
export async function endApp(db: Db, app: AppId, at: Date): Promise<string[]> {
  await db.query(
    sql`update apps set status = 'deleted', deleted_at = ${at}, updated_at = ${at} where id = ${app}`,
  )
  await db.query(sql`
    update client_secrets set expires_at = ${at}
    where client_id in (select client_id from clients where app_id = ${app}) and (expires_at is null or expires_at > ${at})`)
  await db.query(
    sql`update signer_sessions set revoked_at = ${at} where app_id = ${app} and revoked_at is null`,
  )
  await db.query(
    sql`update token_families set ended_at = ${at} where app_id = ${app} and ended_at is null`,
  )
  await db.query(sql`
    delete from device_codes where client_id in (select client_id from clients where app_id = ${app})`)
  const rows = await many<{ id: string }>(
    db,
    sql`
    update api_keys set status = 'revoked', revoked_at = ${at}, revoked_reason = 'app_deleted'
    where app_id = ${app} and status = 'active'
    returning id`,
  )
  return rows.map((row) => row.id)
}

export interface OwnAppRow {
  id: string
  name: string
  role: string | null
  client_id: string
  created_at: Date
}

/** The apps of an account, or with `all` every app; one row more than `limit` when there is more. */
export const listOwnApps = (
  db: Db,
  filter: { account: AccountId; all: boolean; after: Cursor | null; limit: number },
): Promise<OwnAppRow[]> =>
  many<OwnAppRow>(
    db,
    sql`
    select a.id, a.name, m.role, c.client_id, a.created_at
    from apps a
    join clients c on c.app_id = a.id and c.kind = 'public'
    left join members m on m.app_id = a.id and m.account_id = ${filter.account}
    where a.status <> 'deleted' and (m.role is not null or ${filter.all})
      and (${filter.after?.id ?? null}::uuid is null
           or (a.created_at, a.id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by a.created_at, a.id
    limit ${filter.limit + 1}`,
  )

export async function countLiveSecrets(db: Db, clientId: string, at: Date): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from client_secrets
    where client_id = ${clientId} and (expires_at is null or expires_at > ${at})`,
  )
  return count
}

/** Lets the secrets that work at `at` end at `end`, those that end sooner as they were. */
export async function endSecrets(
  db: Db,
  clientId: string,
  { at, end }: { at: Date; end: Date },
): Promise<void> {
  await db.query(sql`
    update client_secrets set expires_at = least(coalesce(expires_at, ${end}), ${end})
    where client_id = ${clientId} and (expires_at is null or expires_at > ${at})`)
}

export interface DomainRow {
  id: string
  origin: string
  created_at: Date
}

export const listDomains = (db: Db, app: AppId): Promise<DomainRow[]> =>
  many<DomainRow>(
    db,
    sql`select id, origin, created_at from domains where app_id = ${app} order by created_at, id`,
  )

/** Null when the app has that origin already. */
export const insertDomain = (
  db: Db,
  app: AppId,
  domain: { id: string; origin: string; at: Date },
): Promise<DomainRow | null> =>
  maybeOne<DomainRow>(
    db,
    sql`
    insert into domains (app_id, id, origin, created_at) values (${app}, ${domain.id}, ${domain.origin}, ${domain.at})
    on conflict (app_id, origin) do nothing
    returning id, origin, created_at`,
  )

export const deleteDomain = (db: Db, app: AppId, id: string): Promise<DomainRow | null> =>
  maybeOne<DomainRow>(
    db,
    sql`
    delete from domains where app_id = ${app} and id = ${id} returning id, origin, created_at`,
  )

/** Whether a living app has that origin: the named one by its domains, any one also by its redirect URIs. */
export async function knowsOrigin(
  db: Db,
  origin: string,
  clientId: string | null,
): Promise<boolean> {
  const { known } = await one<{ known: boolean }>(
    db,
    sql`
    select exists (
      select from domains d
      join clients c on c.app_id = d.app_id and c.kind = 'public'
      join apps a on a.id = d.app_id and a.status = 'active'
      where d.origin = ${origin} and (${clientId}::text is null or c.client_id = ${clientId})
    ) or (${clientId}::text is null and exists (
      select from clients c
      join apps a on a.id = c.app_id and a.status = 'active'
      cross join unnest(c.redirect_uris) as uri
      where uri = ${origin} or starts_with(uri, ${`${origin}/`})
    )) as known`,
  )
  return known
}

export interface AuditRow {
  id: string
  actor: string
  action: string
  status: string
  correlation_id: string | null
  details: object
  created_at: Date
}

/** Newest first; one row more than `limit` when there is more. */
export const listAudit = (
  db: Db,
  filter: { app: AppId; action: string | null; after: Cursor | null; limit: number },
): Promise<AuditRow[]> =>
  many<AuditRow>(
    db,
    sql`
    select id, actor, action, status, correlation_id, details, created_at
    from audit_log
    where app_id = ${filter.app} and (${filter.action}::text is null or action = ${filter.action})
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) < (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at desc, id desc
    limit ${filter.limit + 1}`,
  )
