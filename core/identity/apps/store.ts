import type { Cursor } from '../../shared/cursor.ts'
import type { AccountId, AppId, ClientId, RegisteredClientId } from '../../shared/ids.ts'
import type { LoginPolicy } from '../types.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../../lib/sql.ts'

/** A new app with the rows of its two clients. */
export interface NewAppRow {
  readonly id: AppId
  readonly name: string
  readonly starterUsdMicros: bigint
  readonly developerName: string
  readonly websiteUrl: string
  readonly isTest: boolean
  readonly clientId: ClientId
  readonly m2mClientId: string
  readonly publicScopes: readonly string[]
  readonly m2mScopes: readonly string[]
  readonly publicGrantTypes: readonly string[]
  readonly m2mGrantTypes: readonly string[]
  readonly at: Date
}

export async function insertApp(db: Db, app: NewAppRow): Promise<void> {
  await db.query(sql`
    insert into apps (id, name, starter_usd_micros, developer_name, website_url, is_test, created_at)
    values (${app.id}, ${app.name}, ${app.starterUsdMicros}, ${app.developerName}, ${app.websiteUrl}, ${app.isTest}, ${app.at})`)
  await db.query(sql`
    insert into clients (client_id, app_id, kind, scopes, grant_types, created_at)
    values (${app.clientId}, ${app.id}, 'public', ${app.publicScopes}, ${app.publicGrantTypes}, ${app.at}),
           (${app.m2mClientId}, ${app.id}, 'm2m', ${app.m2mScopes}, ${app.m2mGrantTypes}, ${app.at})`)
}

export interface RegisteredClientRow {
  readonly clientId: RegisteredClientId
  readonly appId: AppId
  readonly scopes: readonly string[]
  readonly grantTypes: readonly string[]
  readonly redirectUris: readonly string[]
}

/** Inserts the OAuth client of a registration, in the registration's own transaction. */
export async function insertRegisteredClient(
  db: Db,
  client: RegisteredClientRow & { readonly at: Date },
): Promise<void> {
  await db.query(sql`
    insert into clients (client_id, app_id, kind, scopes, grant_types, redirect_uris, created_at)
    values (${client.clientId}, ${client.appId}, 'registered', ${client.scopes}, ${client.grantTypes},
            ${client.redirectUris}, ${client.at})`)
}

export async function updateRegisteredClient(db: Db, client: RegisteredClientRow): Promise<void> {
  await db.query(sql`
    update clients
    set scopes = ${client.scopes}, grant_types = ${client.grantTypes}, redirect_uris = ${client.redirectUris}
    where client_id = ${client.clientId} and kind = 'registered'`)
}

/** Deletes a registered client with its codes and consents. */
export async function deleteRegisteredClient(db: Db, clientId: RegisteredClientId): Promise<void> {
  await db.query(sql`delete from clients where client_id = ${clientId} and kind = 'registered'`)
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
  secret_id: string | null
  secret_hash: Buffer | null
  pepper_id: string | null
}

/**
 * Returns M2M clients with their apps' public clients, one row per secret that is valid at `at`. A
 * client without a valid secret has one row, with null secret fields.
 */
export async function findM2mClients(
  db: Db,
  clientIds: readonly string[],
  at: Date,
): Promise<M2mClientRow[]> {
  return many<M2mClientRow>(
    db,
    prepared('m2m-clients')`
    select m.app_id, m.client_id, p.client_id as public_client_id, m.scopes, p.scopes as public_scopes,
           s.id as secret_id, s.secret_hash, s.pepper_id
    from clients m
    join clients p on p.app_id = m.app_id and p.kind = 'public'
    join apps a on a.id = m.app_id and a.status = 'active'
    left join client_secrets s on s.client_id = m.client_id and (s.expires_at is null or s.expires_at > ${at})
    where m.client_id = any(${clientIds}::text[]) and m.kind = 'm2m'`,
  )
}

export interface PublicClientRow {
  client_id: string
  app_id: string
  /** Client id of the app's own public client. */
  public_client_id: string
  public_scopes: string[]
  /** Null for the app's own client. */
  registered_name: string | null
  scopes: string[]
  grant_types: string[]
  redirect_uris: string[]
  post_logout_redirect_uris: string[]
  initiate_login_uri: string | null
  device_third_party_initiate_login: boolean
  app_name: string
  app_color: string
  app_status: 'active' | 'disabled'
  login_policy: LoginPolicy
  login_domains: string[]
  dmz_url: string
}

/**
 * Finds public clients of apps and registered clients by id. Leaves out clients of deleted apps.
 */
export const findPublicClients = (
  db: Db,
  clientIds: readonly string[],
): Promise<PublicClientRow[]> =>
  many<PublicClientRow>(
    db,
    prepared('public-clients')`
    select c.client_id, c.app_id, p.client_id as public_client_id, p.scopes as public_scopes, r.name as registered_name,
           c.scopes, c.grant_types, c.redirect_uris, c.post_logout_redirect_uris,
           c.initiate_login_uri, c.device_third_party_initiate_login,
           a.name as app_name, a.color as app_color, a.status as app_status, a.dmz_url, a.login_policy, a.login_domains
    from clients c
    join clients p on p.app_id = c.app_id and p.kind = 'public'
    join apps a on a.id = c.app_id and a.status <> 'deleted'
    left join registered_clients r on r.client_id = c.client_id
    where c.client_id = any(${clientIds}::text[]) and c.kind in ('public', 'registered')`,
  )

export interface AppFilter {
  readonly after: Cursor | null
  readonly limit: number
  /** A client id, or a part of a name in any case; null for all apps. */
  readonly search: string | null
}

/**
 * Lists apps in order of creation. Returns up to `limit + 1` rows; the extra row shows that there
 * are more.
 */
export async function listApps(db: Db, { after, limit, search }: AppFilter) {
  return many<{
    id: string
    name: string
    is_test: boolean
    created_at: Date
    client_id: string
    m2m_client_id: string
    is_platform_app: boolean
    status: string
    owner_emails: string[]
  }>(
    db,
    sql`
    select a.id, a.name, a.is_test, a.created_at, a.status, p.client_id, m.client_id as m2m_client_id,
           exists (select from platform_app where app_id = a.id) as is_platform_app,
           array(select c.email from members o join accounts c on c.id = o.account_id
                 where o.app_id = a.id and o.role = 'owner'
                 order by o.created_at, c.id limit 10) as owner_emails
    from apps a
    join clients p on p.app_id = a.id and p.kind = 'public'
    join clients m on m.app_id = a.id and m.kind = 'm2m'
    where a.status <> 'deleted'
      and (${after?.id ?? null}::uuid is null
           or (a.created_at, a.id) > (${after?.createdAt ?? null}::timestamptz, ${after?.id ?? null}::uuid))
      and (${search}::text is null or p.client_id = ${search} or position(lower(${search}) in lower(a.name)) > 0)
    order by a.created_at, a.id
    limit ${limit + 1}`,
  )
}

/** How tickets reach us: through the event stream, or pushed by the signer. */
export type MeteringMode = 'stream' | 'direct'

export interface AppRow {
  id: string
  name: string
  status: string
  color: string
  developer_name: string
  website_url: string
  dmz_url: string
  /** Mode of the app's own signer; null for the deployment's mode. */
  signer_metering_mode: MeteringMode | null
  login_policy: LoginPolicy
  login_domains: string[]
  login_credit: boolean
  is_test: boolean
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
  /** When the valid secrets were made, and when each ends, in the same order. */
  secret_starts: Date[]
  secret_ends: (Date | null)[]
}

export const findApp = (db: Db, app: AppId): Promise<AppRow | null> =>
  maybeOne<AppRow>(
    db,
    sql`
    select id, name, status, color, developer_name, website_url, dmz_url, signer_metering_mode, login_policy, login_domains,
           login_credit, is_test, created_at
    from apps
    where id = ${app} and status <> 'deleted'`,
  )

/**
 * Same as `findApp`, but locks the row until the transaction ends, so that changes that depend on a
 * count run one after the other.
 */
export const lockApp = (db: Db, app: AppId): Promise<AppRow | null> =>
  maybeOne<AppRow>(
    db,
    sql`
    select id, name, status, color, developer_name, website_url, dmz_url, signer_metering_mode, login_policy, login_domains,
           login_credit, is_test, created_at
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
           array(select s.created_at from client_secrets s
                 where s.client_id = c.client_id and (s.expires_at is null or s.expires_at > ${at})
                 order by s.created_at, s.expires_at nulls last, s.id) as secret_starts,
           array(select s.expires_at from client_secrets s
                 where s.client_id = c.client_id and (s.expires_at is null or s.expires_at > ${at})
                 order by s.created_at, s.expires_at nulls last, s.id) as secret_ends
    from clients c
    where c.app_id = ${app}`,
  )

export async function updateApp(db: Db, app: AppRow, at: Date): Promise<void> {
  await db.query(sql`
    update apps
    set name = ${app.name}, color = ${app.color}, developer_name = ${app.developer_name}, website_url = ${app.website_url},
        dmz_url = ${app.dmz_url}, signer_metering_mode = ${app.signer_metering_mode},
        login_policy = ${app.login_policy}, login_domains = ${app.login_domains},
        login_credit = ${app.login_credit}, updated_at = ${at}
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

/** Whether people who log in to the app get the Starter plan's allowance. */
export async function givesLoginCredit(db: Db, app: AppId): Promise<boolean> {
  const { login_credit } = await one<{ login_credit: boolean }>(
    db,
    sql`select login_credit from apps where id = ${app}`,
  )
  return login_credit
}

/** Marks the app as deleted and ends its client secrets. The rows stay. */
export async function deleteApp(db: Db, app: AppId, at: Date): Promise<void> {
  await db.query(
    sql`update apps set status = 'deleted', deleted_at = ${at}, updated_at = ${at} where id = ${app}`,
  )
  await db.query(sql`
    update client_secrets set expires_at = ${at}
    where client_id in (select client_id from clients where app_id = ${app}) and (expires_at is null or expires_at > ${at})`)
}

export interface OwnAppRow {
  id: string
  name: string
  role: string | null
  client_id: string
  is_test: boolean
  created_at: Date
}

/**
 * Lists the account's apps or, with `all`, every app, in order of creation. Returns up to `limit +
 * 1` rows.
 */
export const listOwnApps = (
  db: Db,
  filter: { account: AccountId; all: boolean; after: Cursor | null; limit: number },
): Promise<OwnAppRow[]> =>
  many<OwnAppRow>(
    db,
    sql`
    select a.id, a.name, m.role, c.client_id, a.is_test, a.created_at
    from apps a
    join clients c on c.app_id = a.id and c.kind = 'public'
    left join members m on m.app_id = a.id and m.account_id = ${filter.account}
    where a.status <> 'deleted' and (m.role is not null or ${filter.all})
      and (${filter.after?.id ?? null}::uuid is null
           or (a.created_at, a.id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by a.created_at, a.id
    limit ${filter.limit + 1}`,
  )

export async function countValidSecrets(db: Db, clientId: string, at: Date): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from client_secrets
    where client_id = ${clientId} and (expires_at is null or expires_at > ${at})`,
  )
  return count
}

/**
 * Sets the expiry of all secrets valid at `at` to `end`, unless they expire sooner. Returns their
 * ids.
 */
export async function endSecrets(
  db: Db,
  clientId: string,
  { at, end }: { at: Date; end: Date },
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update client_secrets set expires_at = least(coalesce(expires_at, ${end}), ${end})
    where client_id = ${clientId} and (expires_at is null or expires_at > ${at})
    returning id`,
  )
  return rows.map(({ id }) => id)
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

/** Returns null when the app already has the origin. */
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

/**
 * Whether an active app has this origin. With `clientId`, checks only its app's domains; without
 * it, the domains and redirect URIs of all apps.
 */
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
