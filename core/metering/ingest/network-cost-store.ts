import { plainArray } from '../../lib/copy-sql.ts'
import { type Db, prepared, sql } from '../../lib/sql.ts'
import type { AppId } from '../../platform/ids.ts'

/**
 * Writes network_costs: the operator's cost of apps by owner and day (docs/billing.md, "Unpaid
 * network cost").
 */

/** Cost of an app's tickets at network price. */
export interface NetworkCost {
  readonly appId: AppId
  readonly cost: bigint
}

/**
 * Adds the cost of booked tickets to the current day of the apps' current owners. Omits
 * platform-owned apps.
 */
export async function addNetworkCosts(
  db: Db,
  costs: Iterable<NetworkCost>,
  at: Date,
): Promise<void> {
  const byApp = new Map<AppId, bigint>()
  for (const { appId, cost } of costs)
    if (cost > 0n) byApp.set(appId, (byApp.get(appId) ?? 0n) + cost)
  if (byApp.size === 0) return
  await db.query(
    prepared(
      'add-network-costs',
      sql`
    insert into network_costs (app_id, owner_id, day, cost_attos)
    select n.app_id, coalesce(o.account_id, n.app_id), (${at}::timestamptz at time zone 'UTC')::date, n.cost
    from unnest(${plainArray([...byApp.keys()])}::uuid[], ${plainArray([...byApp.values()])}::numeric[]) as n (app_id, cost)
    left join billing_settings b on b.app_id = n.app_id
    left join lateral (
      select account_id
      from members
      where app_id = n.app_id and role = 'owner'
      order by created_at, account_id
      limit 1) o on true
    where not coalesce(b.is_platform_owned, false)
    order by n.app_id
    on conflict (app_id, day, owner_id) do update
    set cost_attos = network_costs.cost_attos + excluded.cost_attos`,
    ),
  )
}

const keptDays = 40

/** Deletes days that are too old for any bound. */
export async function deleteOldNetworkCosts(db: Db, at: Date): Promise<void> {
  await db.query(sql`
    delete from network_costs
    where day < (${at}::timestamptz at time zone 'UTC')::date - ${keptDays}::integer`)
}
