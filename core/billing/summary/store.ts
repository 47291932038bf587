import { type UsdAttos, type Wei, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import { type BillingCycle, splitAtHours } from '../../lib/time.ts'
import { type AppId, type UserId, type UserKey, appId } from '../../shared/ids.ts'

/** Reads the usage and plans that an app is billed for. Other domains write them. */

/**
 * Sums of one UTC day. `cost` and the cut exclude tickets that wait for a rate, which `unpriced`
 * counts.
 */
export interface DaySums {
  /** `YYYY-MM-DD`. */
  readonly day: string
  readonly requests: bigint
  readonly unpriced: bigint
  readonly fee: Wei
  readonly cost: UsdAttos
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
  readonly units: bigint
}

interface DayRow {
  day: string
  requests: string
  unpriced: string
  fee: string
  cost: string
  platform_fee: string
  platform_wei: string
  units: string
}

/**
 * Returns the days of `[start, end)` with tickets, in order. Uses hourly sums for whole hours, and
 * tickets for the partial hours at both ends, so that the cost grows with the hours and not with
 * the tickets.
 */
export async function sumByDay(
  db: Db,
  app: AppId,
  { start, end }: { start: Date; end: Date },
): Promise<DaySums[]> {
  const {
    from,
    to,
    edges: [first, second],
  } = splitAtHours({ start, end })
  // A missing edge is null and reads nothing. Each edge has its own arm, because the planner folds
  // only constants.
  const rows = await many<DayRow>(
    db,
    sql`
    with selected as (
      select hour as at, ticket_count as requests, unpriced_count as unpriced, fee_wei as fee, cost_attos as cost,
             platform_fee_attos as platform_fee, platform_fee_wei as platform_wei, pixels as units
      from usage_hourly
      where app_id = ${app} and hour >= ${from}::timestamptz and hour < ${to}::timestamptz
      union all
      select signed_at, 1, case when cost_attos is null then 1 else 0 end, fee_wei, cost_attos, platform_fee_attos,
             platform_fee_wei, pixels
      from tickets
      where app_id = ${app} and signed_at >= ${first?.start}::timestamptz and signed_at < ${first?.end}::timestamptz
      union all
      select signed_at, 1, case when cost_attos is null then 1 else 0 end, fee_wei, cost_attos, platform_fee_attos,
             platform_fee_wei, pixels
      from tickets
      where app_id = ${app} and signed_at >= ${second?.start}::timestamptz and signed_at < ${second?.end}::timestamptz
    )
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD') as day, sum(requests) as requests, sum(unpriced) as unpriced,
           sum(fee) as fee, coalesce(sum(cost), 0) as cost, coalesce(sum(platform_fee), 0) as platform_fee,
           coalesce(sum(platform_wei), 0) as platform_wei, sum(units) as units
    from selected
    group by day
    order by day`,
  )
  return rows.map((row) => ({
    day: row.day,
    requests: BigInt(row.requests),
    unpriced: BigInt(row.unpriced),
    fee: wei(BigInt(row.fee)),
    cost: usdAttos(BigInt(row.cost)),
    platformFee: usdAttos(BigInt(row.platform_fee)),
    platformWei: wei(BigInt(row.platform_wei)),
    units: BigInt(row.units),
  }))
}

/** Most apps of an owner whose units are summed; far above the quota of apps per owner. */
const ownedMax = 1_000

/** Returns the customers' apps of which the account user's account is the first owner. */
export async function findOwnedApps(
  db: Db,
  { appId: platformApp, userId }: UserKey,
): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select m.app_id
    from end_users u
    join members m on m.account_id = substr(u.external_user_id, length('account:') + 1)::uuid
    join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
    where u.app_id = ${platformApp} and u.id = ${userId}
    order by m.app_id
    limit ${ownedMax}`,
  )
  return rows.map((row) => appId(row.app_id))
}

/** Returns when the app was created; null for an unknown app. */
export async function findCreation(db: Db, app: AppId): Promise<Date | null> {
  const row = await maybeOne<{ created_at: Date }>(
    db,
    sql`
    select created_at
    from apps
    where id = ${app}`,
  )
  return row && row.created_at
}

/** A plan with the terms of one of its versions. */
export interface BilledPlan {
  readonly id: string
  readonly type: 'free' | 'subscription' | 'usage'
  readonly name: string
  readonly status: string
  /** Text as given. */
  readonly priceAmount: string
  readonly priceCurrency: string
  readonly includedUnits: bigint | null
  readonly included: UsdAttos | null
  readonly overageRateWei: bigint | null
  readonly billingCycle: BillingCycle
  /** Whether the plan is its app's Starter. */
  readonly isStarter: boolean
}

interface PlanRow {
  id: string
  type: BilledPlan['type']
  name: string
  status: string
  price_amount: string
  price_currency: string
  included_units: string | null
  included_attos: string | null
  overage_rate_wei: string | null
  billing_cycle: BillingCycle
  is_starter_default: boolean
}

const planOf = (row: PlanRow): BilledPlan => ({
  id: row.id,
  type: row.type,
  name: row.name,
  status: row.status,
  priceAmount: row.price_amount,
  priceCurrency: row.price_currency,
  includedUnits: row.included_units === null ? null : BigInt(row.included_units),
  included: row.included_attos === null ? null : usdAttos(BigInt(row.included_attos)),
  overageRateWei: row.overage_rate_wei === null ? null : BigInt(row.overage_rate_wei),
  billingCycle: row.billing_cycle,
  isStarter: row.is_starter_default,
})

export interface OwnerPeriod {
  readonly start: Date
  readonly end: Date
  readonly subscriptionId: string
  readonly status: string
  readonly plan: BilledPlan
}

/** Returns the period of a user at `at`, with its terms; null if no period was entered. */
export async function findPeriod(
  db: Db,
  { appId, userId }: { appId: AppId; userId: UserId },
  at: Date,
): Promise<OwnerPeriod | null> {
  const row = await maybeOne<
    PlanRow & {
      starts_at: Date
      ends_at: Date
      subscription_id: string
      subscription_status: string
    }
  >(
    db,
    sql`
    select e.starts_at, e.ends_at, s.id as subscription_id, s.status as subscription_status, p.id, v.type, p.name, p.status,
           v.price_amount, v.price_currency, v.included_units, v.included_attos, v.overage_rate_wei, v.billing_cycle,
           p.is_starter_default
    from periods e
    join subscriptions s on s.app_id = e.app_id and s.user_id = e.user_id
    join plans p on p.app_id = e.app_id and p.id = e.plan_id
    join plan_versions v on v.app_id = e.app_id and v.plan_id = e.plan_id and v.version = e.plan_version
    where e.app_id = ${appId} and e.user_id = ${userId} and e.starts_at <= ${at} and e.ends_at > ${at}
    order by e.starts_at desc
    limit 1`,
  )
  return (
    row && {
      start: row.starts_at,
      end: row.ends_at,
      subscriptionId: row.subscription_id,
      status: row.subscription_status,
      plan: planOf(row),
    }
  )
}

/**
 * Returns the active plan of an app that changed last, with its newest terms. Prefers plans made by
 * the owner, then Starter, then Network Price.
 */
export async function findNewestPlan(db: Db, app: AppId): Promise<BilledPlan | null> {
  const row = await maybeOne<PlanRow>(
    db,
    sql`
    select p.id, v.type, p.name, p.status, v.price_amount, v.price_currency, v.included_units, v.included_attos,
           v.overage_rate_wei, v.billing_cycle, p.is_starter_default
    from plans p
    join lateral (
      select type, price_amount, price_currency, included_units, included_attos, overage_rate_wei, billing_cycle
      from plan_versions
      where app_id = p.app_id and plan_id = p.id
      order by version desc
      limit 1) v on true
    where p.app_id = ${app} and p.status = 'active' and p.deleted_at is null
    order by (p.is_starter_default or p.is_network_default), p.is_network_default, p.updated_at desc, p.id
    limit 1`,
  )
  return row && planOf(row)
}
