import type { AppId, UserId } from '../platform/ids.ts'
import { type Db, sql } from '../lib/sql.ts'

export interface NewStarter {
  readonly appId: AppId
  readonly id: string
  readonly name: string
  readonly includedAttos: bigint
  readonly at: Date
}

/** The Starter plan of a new app with its first version. */
export async function insertStarter(db: Db, plan: NewStarter): Promise<void> {
  await db.query(sql`
    insert into plans (app_id, id, name, type, status, is_starter_default, billing_cycle, created_at)
    values (${plan.appId}, ${plan.id}, ${plan.name}, 'usage', 'active', true, 'monthly', ${plan.at})`)
  await db.query(sql`
    insert into plan_versions (app_id, plan_id, version, included_attos, created_at)
    values (${plan.appId}, ${plan.id}, 1, ${plan.includedAttos}, ${plan.at})`)
}

/** Subscribes a user to the app's Starter plan. False when the user has a subscription already. */
export async function subscribeToStarter(
  db: Db,
  user: { appId: AppId; userId: UserId; id: string; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into subscriptions (app_id, user_id, id, plan_id, status, anchor_at, created_at)
    select app_id, ${user.userId}, ${user.id}, id, 'active', ${user.at}, ${user.at}
    from plans
    where app_id = ${user.appId} and is_starter_default
    on conflict do nothing`)
  return rowCount === 1
}
