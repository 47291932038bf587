import type { AppId } from '../../shared/ids.ts'
import type { Cursor } from '../../shared/cursor.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../../lib/sql.ts'

/** active <-> disabled; both changes are made by operators. */
export type TenantState = 'active' | 'disabled'

export interface TenantRow {
  /** Internal id of the tenant's app. */
  readonly id: string
  readonly client_id: string
  readonly app_name: string
  readonly status: TenantState
  readonly created_at: Date
  /** Number of valid secrets. */
  readonly secrets: number
}

export interface TenantSecretRow {
  readonly id: string
  readonly app_id: string
  readonly client_id: string
  readonly secret_hash: Buffer
  readonly pepper_id: string
}

/** Returns the secrets valid at `at` for these client ids, if app and tenant are active. */
export const findSecrets = (
  db: Db,
  clientIds: readonly string[],
  at: Date,
): Promise<TenantSecretRow[]> =>
  many<TenantSecretRow>(
    db,
    prepared('tenant-secrets')`
    select s.id, t.app_id, c.client_id, s.secret_hash, s.pepper_id
    from clients c
    join apps a on a.id = c.app_id and a.status = 'active'
    join tenants t on t.app_id = c.app_id and t.status = 'active'
    join tenant_secrets s on s.app_id = t.app_id and (s.expires_at is null or s.expires_at > ${at})
    where c.client_id = any(${clientIds}::text[]) and c.kind = 'public'`,
  )

/**
 * Whether the app's M2M client serves every app (docs/billing.md). Checks both columns, because an
 * older core clears only `is_platform_owned`.
 */
export async function servesEveryApp(db: Db, app: AppId): Promise<boolean> {
  const { serves } = await one<{ serves: boolean }>(
    db,
    sql`
    select exists (select from billing_settings where app_id = ${app} and is_platform_owned and serves_every_app) as serves`,
  )
  return serves
}

/** Returns false when the app is already a tenant. */
export async function insertTenant(db: Db, app: AppId, at: Date): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into tenants (app_id, status, created_at, updated_at)
    values (${app}, 'active', ${at}, ${at})
    on conflict (app_id) do nothing`)
  return rowCount === 1
}

/** Locks the tenant until the transaction ends. Returns false when the app is not a tenant. */
export async function lockTenant(db: Db, app: AppId): Promise<boolean> {
  return (
    (await maybeOne(db, sql`select app_id from tenants where app_id = ${app} for update`)) !== null
  )
}

export async function setStatus(
  db: Db,
  app: AppId,
  { to, at }: { to: TenantState; at: Date },
): Promise<void> {
  await db.query(sql`
    update tenants set status = ${to}, updated_at = ${at} where app_id = ${app} and status <> ${to}`)
}

export interface NewTenantSecret {
  readonly id: string
  readonly hash: Buffer
  readonly pepperId: string
}

export async function insertSecret(
  db: Db,
  app: AppId,
  { secret, at }: { secret: NewTenantSecret; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into tenant_secrets (id, app_id, secret_hash, pepper_id, created_at)
    values (${secret.id}, ${app}, ${secret.hash}, ${secret.pepperId}, ${at})`)
}

/**
 * Sets the expiry of all secrets valid at `at` to `end`, unless they expire sooner. Returns their
 * ids.
 */
export async function endSecrets(
  db: Db,
  app: AppId,
  { at, end }: { at: Date; end: Date },
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update tenant_secrets set expires_at = least(coalesce(expires_at, ${end}), ${end})
    where app_id = ${app} and (expires_at is null or expires_at > ${at})
    returning id`,
  )
  return rows.map(({ id }) => id)
}

export async function countSecrets(db: Db, app: AppId, at: Date): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from tenant_secrets
    where app_id = ${app} and (expires_at is null or expires_at > ${at})`,
  )
  return count
}

/**
 * Lists tenants of apps that are not deleted, in order of creation. Returns up to `limit + 1` rows.
 */
export const listTenants = (
  db: Db,
  { app, at, after, limit }: { app: AppId | null; at: Date; after: Cursor | null; limit: number },
): Promise<TenantRow[]> =>
  many<TenantRow>(
    db,
    sql`
    select t.app_id as id, c.client_id, a.name as app_name, t.status, t.created_at,
           (select count(*)::int from tenant_secrets s
            where s.app_id = t.app_id and (s.expires_at is null or s.expires_at > ${at})) as secrets
    from tenants t
    join apps a on a.id = t.app_id and a.status <> 'deleted'
    join clients c on c.app_id = t.app_id and c.kind = 'public'
    where (${app}::uuid is null or t.app_id = ${app})
      and (${after?.id ?? null}::uuid is null
           or (t.created_at, t.app_id) > (${after?.createdAt ?? null}::timestamptz, ${after?.id ?? null}::uuid))
    order by t.created_at, t.app_id
    limit ${limit + 1}`,
  )
