import { plainArray } from '../../lib/copy-sql.ts'
import { type Db, many, maybeOne, prepared, sql } from '../../lib/sql.ts'
import {
  type AccountId,
  type AppId,
  type UserId,
  accountId,
  ownerAccountPrefix,
  appId,
  userId,
} from '../../shared/ids.ts'

/** Writes platform_app. */

/** Returns the platform app; null before core's first start. */
export async function findPlatformApp(db: Db): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(db, sql`select app_id from platform_app`)
  return row && appId(row.app_id)
}

/** Locks the table until the transaction ends, so that one of several cores makes the app. */
export async function lockPlatformApp(db: Db): Promise<void> {
  await db.query(sql`lock table platform_app in share row exclusive mode`)
}

export async function savePlatformApp(db: Db, app: AppId): Promise<void> {
  await db.query(sql`
    insert into platform_app (app_id)
    values (${app})
    on conflict (is_row) do update
    set app_id = excluded.app_id`)
}

export interface NamedApp {
  readonly appId: AppId
  readonly isTest: boolean
  readonly isPlatformOwned: boolean
}

/** Finds an app by the id of its public client; null if it is unknown or deleted. */
export async function findNamedApp(db: Db, clientId: string): Promise<NamedApp | null> {
  const row = await maybeOne<{ id: string; is_test: boolean; is_platform_owned: boolean }>(
    db,
    sql`
    select a.id, a.is_test, coalesce(b.is_platform_owned, false) as is_platform_owned
    from clients c
    join apps a on a.id = c.app_id and a.status <> 'deleted'
    left join billing_settings b on b.app_id = a.id
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )
  return (
    row && { appId: appId(row.id), isTest: row.is_test, isPlatformOwned: row.is_platform_owned }
  )
}

/** The owner of a customer's app, with its account user in the platform app. */
export interface AppOwner {
  readonly appId: AppId
  readonly accountId: AccountId
  /** Null before core's first start. */
  readonly platformApp: AppId | null
  /** Null if the owner has no account user yet. */
  readonly userId: UserId | null
}

interface OwnerRow {
  app_id: string
  account_id: string
  platform_app_id: string | null
  user_id: string | null
}

/** Returns the first owner of each app. Omits platform-owned apps and apps without an owner. */
export async function findOwners(db: Db, apps: readonly AppId[]): Promise<AppOwner[]> {
  const rows = await many<OwnerRow>(
    db,
    prepared('owner-accounts')`
    select o.app_id, o.account_id, p.app_id as platform_app_id, u.id as user_id
    from app_payers o
    left join platform_app p on true
    left join end_users u on u.app_id = p.app_id and u.external_user_id = ${ownerAccountPrefix} || o.account_id::text
    where o.app_id = any(${plainArray(apps)}::uuid[])`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    accountId: accountId(row.account_id),
    platformApp: row.platform_app_id === null ? null : appId(row.platform_app_id),
    userId: row.user_id === null ? null : userId(row.user_id),
  }))
}
