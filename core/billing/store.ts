import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { type AppId, appId } from '../shared/ids.ts'

/** Writes platform_cuts and billing_settings. */

/** Returns the app of a public client id; null if it is unknown or the app is deleted. */
export async function findApp(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`
    select a.id
    from clients c
    join apps a on a.id = c.app_id and a.status <> 'deleted'
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )
  return row && appId(row.id)
}

/** Whether the app is the platform app, of which owners are end users. */
export async function isPlatformApp(db: Db, app: AppId): Promise<boolean> {
  const row = await maybeOne(db, sql`select 1 from platform_app where app_id = ${app}`)
  return row !== null
}

/** Counts the active end users of an app, without its owner, up to `max`. */
export async function countActiveUsers(db: Db, app: AppId, max: number): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count
    from (select from end_users
          where app_id = ${app} and status = 'active' and not starts_with(external_user_id, 'owner:')
          limit ${max}) active`,
  )
  return count
}

export const billingModes = ['owner_rollup', 'merchant'] as const
/** Who pays for usage: the owner for all users, or users to the owner (docs/decisions/56.md). */
export type BillingMode = (typeof billingModes)[number]

export interface Settings {
  readonly billingMode: BillingMode
  /** Null means the deployment's cap. */
  readonly endUserCap: number | null
  readonly isPlatformOwned: boolean
  /** The M2M client of this platform-owned app can create users of every app in the builder API. */
  readonly servesEveryApp: boolean
}

interface SettingsRow {
  billing_mode: BillingMode
  end_user_cap: number | null
  is_platform_owned: boolean
  serves_every_app: boolean
}

const settingsOf = (row: SettingsRow): Settings => ({
  billingMode: row.billing_mode,
  endUserCap: row.end_user_cap,
  isPlatformOwned: row.is_platform_owned,
  servesEveryApp: row.serves_every_app,
})

const defaults: Settings = {
  billingMode: 'owner_rollup',
  endUserCap: null,
  isPlatformOwned: false,
  servesEveryApp: false,
}

/** Returns the settings of an app, or the defaults. */
export async function findSettings(db: Db, app: AppId): Promise<Settings> {
  const row = await maybeOne<SettingsRow>(
    db,
    sql`
    select billing_mode, end_user_cap, is_platform_owned, serves_every_app
    from billing_settings
    where app_id = ${app}`,
  )
  return row === null ? defaults : settingsOf(row)
}

/**
 * Like `findSettings`, but locks the app's row until the transaction ends. Creates a missing row.
 */
export async function lockSettings(db: Db, app: AppId, at: Date): Promise<Settings> {
  const lock = () =>
    maybeOne<SettingsRow>(
      db,
      sql`
    select billing_mode, end_user_cap, is_platform_owned, serves_every_app
    from billing_settings
    where app_id = ${app}
    for no key update`,
    )
  const row = await lock()
  if (row !== null) return settingsOf(row)
  await db.query(sql`
    insert into billing_settings (app_id, updated_at) values (${app}, ${at}) on conflict (app_id) do nothing`)
  const inserted = await lock()
  if (inserted === null) throw new Error('the billing settings of an app were not made')
  return settingsOf(inserted)
}

export async function saveSettings(
  db: Db,
  app: AppId,
  { settings, at }: { settings: Settings; at: Date },
): Promise<void> {
  await db.query(sql`
    update billing_settings
    set billing_mode = ${settings.billingMode}, end_user_cap = ${settings.endUserCap},
        is_platform_owned = ${settings.isPlatformOwned}, serves_every_app = ${settings.servesEveryApp}, updated_at = ${at}
    where app_id = ${app}`)
}

/** Returns the ceiling of users' debt that the app's owner has set; null for the default. */
export async function findOverageCeiling(db: Db, app: AppId): Promise<UsdAttos | null> {
  const row = await maybeOne<{ ceiling: string | null }>(
    db,
    sql`select overage_ceiling_attos as ceiling from billing_settings where app_id = ${app}`,
  )
  const ceiling = row?.ceiling ?? null
  return ceiling === null ? null : usdAttos(BigInt(ceiling))
}

/** Saves the ceiling in settings that the caller has locked. */
export async function saveOverageCeiling(
  db: Db,
  app: AppId,
  { ceiling, at }: { ceiling: UsdAttos | null; at: Date },
): Promise<void> {
  await db.query(sql`
    update billing_settings set overage_ceiling_attos = ${ceiling}, updated_at = ${at} where app_id = ${app}`)
}

/** Inserts the settings of a new platform-owned app. */
export async function insertPlatformOwned(db: Db, app: AppId, at: Date): Promise<void> {
  await db.query(sql`
    insert into billing_settings (app_id, is_platform_owned, updated_at)
    values (${app}, true, ${at})`)
}

/** The app's cut of network fees since an instant. */
export interface Cut {
  readonly since: Date
  /** Hundredths of a percent; null without a cut. */
  readonly basisPoints: bigint | null
}

interface CutRow {
  app_id: string
  since: Date
  basis_points: string | null
}

/** Returns the cuts of apps, newest first. */
export async function listCuts(db: Db, apps: readonly AppId[]): Promise<Map<string, Cut[]>> {
  const rows = await many<CutRow>(
    db,
    sql`
    select app_id, since, trunc(percent * 100) as basis_points
    from platform_cuts
    where app_id = any(${apps}::uuid[])
    order by app_id, since desc`,
  )
  const cuts = new Map<string, Cut[]>()
  for (const { app_id, since, basis_points } of rows) {
    const list = cuts.get(app_id) ?? []
    list.push({ since, basisPoints: basis_points === null ? null : BigInt(basis_points) })
    cuts.set(app_id, list)
  }
  return cuts
}

/**
 * Inserts a cut that begins after all other cuts of the app. The caller has locked the app's
 * settings.
 */
export async function insertCut(
  db: Db,
  app: AppId,
  { since, basisPoints, at }: Cut & { readonly at: Date },
): Promise<Date> {
  const row = await one<{ since: Date }>(
    db,
    sql`
    insert into platform_cuts (app_id, since, percent, created_at)
    select ${app}, greatest(${since}::timestamptz, max(since) + interval '1 millisecond'),
           ${basisPoints}::numeric / 100, ${at}
    from platform_cuts
    where app_id = ${app}
    returning since`,
  )
  return row.since
}
