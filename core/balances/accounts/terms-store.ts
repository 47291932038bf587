import { type Db, many, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import { type UserId, userId, type UserKey } from '../../shared/ids.ts'
import {
  type FreePeriod,
  type PlanVersion,
  type Slot,
  type Terms,
  termsAt,
  versionsByPlan,
} from './terms.ts'

interface SlotRow {
  app_id: string
  user_id: string
  plan_id: string
  anchor_at: Date
  created_at: Date
  next_plan_id: string | null
  next_at: Date | null
}

const slotFromRow = (row: SlotRow): Slot => ({
  planId: row.plan_id,
  anchorAt: row.anchor_at,
  createdAt: row.created_at,
  next: row.next_plan_id && row.next_at ? { planId: row.next_plan_id, at: row.next_at } : null,
})

/** Returns each user's period at `at`, with its terms. Omits users without a subscription. */
export async function currentTerms(
  db: Db,
  users: readonly UserKey[],
  at: Date,
): Promise<(Terms & { readonly userId: UserId })[]> {
  const rows = await many<SlotRow>(
    db,
    sql`
    select s.app_id, s.user_id, s.plan_id, s.anchor_at, s.created_at, s.next_plan_id, s.next_at
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join subscriptions s on s.app_id = w.app_id and s.user_id = w.user_id`,
  )
  const versionsOf = versionsByPlan(await versionsFor(db, rows))
  return rows.map((row) => ({
    userId: userId(row.user_id),
    ...termsAt(slotFromRow(row), versionsOf, at),
  }))
}

async function versionsFor(db: Db, rows: readonly SlotRow[]): Promise<PlanVersion[]> {
  const plans = new Map(
    rows.flatMap(({ app_id: app, plan_id: plan, next_plan_id: next }) =>
      next === null
        ? [[plan, app]]
        : [
            [plan, app],
            [next, app],
          ],
    ),
  )
  const versions = await many<{
    plan_id: string
    version: number
    included_attos: string
    billing_cycle: BillingCycle
    created_at: Date
    is_free: boolean
    price_attos: string
  }>(
    db,
    sql`
    select v.plan_id, v.version, coalesce(v.included_attos, 0) as included_attos, v.billing_cycle, v.created_at,
           v.type = 'free' or p.is_starter_default as is_free,
           chargeable_price_attos(v.price_amount, v.price_currency) as price_attos
    from unnest(${[...plans.values()]}::uuid[], ${[...plans.keys()]}::uuid[]) as w (app_id, plan_id)
    join plans p on p.app_id = w.app_id and p.id = w.plan_id
    join plan_versions v on v.app_id = w.app_id and v.plan_id = w.plan_id
    order by v.plan_id, v.version`,
  )
  return versions.map((row) => ({
    planId: row.plan_id,
    version: row.version,
    includedAttos: BigInt(row.included_attos),
    cycle: row.billing_cycle,
    createdAt: row.created_at,
    isFree: row.is_free,
    priceAttos: BigInt(row.price_attos),
  }))
}

/** Returns the periods of free plans that began at or after `since`, by user. */
export async function freePeriods(
  db: Db,
  users: readonly UserKey[],
  since: Date,
): Promise<ReadonlyMap<UserId, readonly FreePeriod[]>> {
  const rows = await many<{
    user_id: string
    plan_id: string
    starts_at: Date
    given_attos: string
  }>(
    db,
    sql`
    select e.user_id, e.plan_id, e.starts_at, e.included_attos - e.withheld_attos as given_attos
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join periods e on e.app_id = w.app_id and e.user_id = w.user_id and e.starts_at >= ${since}
    join plans p on p.app_id = e.app_id and p.id = e.plan_id
    join plan_versions v on v.app_id = e.app_id and v.plan_id = e.plan_id and v.version = e.plan_version
    where v.type = 'free' or p.is_starter_default`,
  )
  return Map.groupBy(
    rows.map((row) => ({
      user: userId(row.user_id),
      planId: row.plan_id,
      start: row.starts_at,
      givenAttos: BigInt(row.given_attos),
    })),
    ({ user }) => user,
  )
}
