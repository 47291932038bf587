import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'
import { type AppId, type UserId, appId, userId, type UserKey } from '../../shared/ids.ts'

/** Reads what decides the ceilings of users. */

/** Returns the highest charge threshold of an app's active plans; 0 without one. */
export async function highestThreshold(db: Db, app: AppId): Promise<UsdAttos> {
  const { highest } = await one<{ highest: string }>(
    db,
    sql`
    select coalesce(max(v.charge_threshold_attos), 0) as highest
    from plans p
    cross join lateral (
      select charge_threshold_attos
      from plan_versions
      where app_id = p.app_id and plan_id = p.id
      order by version desc
      limit 1) v
    where p.app_id = ${app} and p.deleted_at is null and p.status = 'active'`,
  )
  return usdAttos(BigInt(highest))
}

export interface PlanOfUser extends UserKey {
  readonly planId: string
}

/** What decides a user's ceiling, except the card. */
export interface OverageTerms extends UserKey {
  /** Whether the app's owner pays for the user (`owner_rollup`). */
  readonly isOwnerPaid: boolean
  /** The app's setting; null for the default. */
  readonly ceiling: UsdAttos | null
  /** The highest threshold that a version of the plan had; 0 without one. */
  readonly threshold: UsdAttos
  /** The threshold of the newest version; null without one. */
  readonly chargeThreshold: UsdAttos | null
}

/**
 * Returns the terms of users who may run into debt on these plans. Omits free plans, Starter, and
 * users without a payer: of platform-owned apps in `owner_rollup`, except
 * the platform app, and of apps without an owner.
 */
export async function findTerms(db: Db, users: readonly PlanOfUser[]): Promise<OverageTerms[]> {
  const rows = await many<{
    app_id: string
    user_id: string
    owner_paid: boolean
    ceiling: string | null
    threshold: string
    charge_threshold: string | null
  }>(
    db,
    sql`
    select w.app_id, w.user_id, not a.users_pay as owner_paid, b.overage_ceiling_attos as ceiling,
           coalesce(v.threshold, 0) as threshold, v.newest as charge_threshold
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[],
                ${users.map((user) => user.planId)}::uuid[]) as w (app_id, user_id, plan_id)
    join plans p on p.app_id = w.app_id and p.id = w.plan_id and not p.is_starter_default and p.type <> 'free'
    left join billing_settings b on b.app_id = w.app_id
    cross join lateral (
      select coalesce(b.billing_mode = 'merchant', false)
             or exists (select from platform_app where app_id = w.app_id) as users_pay) a
    left join lateral (
      select max(charge_threshold_attos) as threshold, (array_agg(charge_threshold_attos order by version desc))[1] as newest
      from plan_versions
      where app_id = w.app_id and plan_id = w.plan_id) v on true
    where a.users_pay
      or exists (select from app_payers where app_id = w.app_id)`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    isOwnerPaid: row.owner_paid,
    ceiling: row.ceiling === null ? null : usdAttos(BigInt(row.ceiling)),
    threshold: usdAttos(BigInt(row.threshold)),
    chargeThreshold: row.charge_threshold === null ? null : usdAttos(BigInt(row.charge_threshold)),
  }))
}

/** Returns up to `limit` users of an app after a user id, with the plans they are on, by user id. */
export async function plansAfter(
  db: Db,
  app: AppId,
  { after, limit }: { readonly after: UserId | null; readonly limit: number },
): Promise<PlanOfUser[]> {
  const rows = await many<PlanRow>(
    db,
    sql`
    select app_id, user_id, plan_id
    from subscriptions
    where app_id = ${app} and (${after}::uuid is null or user_id > ${after}::uuid)
    order by user_id
    limit ${limit}`,
  )
  return rows.map(planFromRow)
}

/** Returns the plans that users are on. */
export async function findUserPlans(db: Db, users: readonly UserKey[]): Promise<PlanOfUser[]> {
  const rows = await many<PlanRow>(
    db,
    sql`
    select s.app_id, s.user_id, s.plan_id
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join subscriptions s on s.app_id = w.app_id and s.user_id = w.user_id`,
  )
  return rows.map(planFromRow)
}

interface PlanRow {
  app_id: string
  user_id: string
  plan_id: string
}

const planFromRow = (row: PlanRow): PlanOfUser => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  planId: row.plan_id,
})
