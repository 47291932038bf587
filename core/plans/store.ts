import type { AppId, UserId } from '../platform/ids.ts'
import { type Db, many, one, prepared, sql } from '../lib/sql.ts'

/** Writes subscriptions. */

export interface NewSubscription {
  readonly appId: AppId
  readonly userId: UserId
  readonly id: string
}

/** Subscribes users to their apps' Starter plans. Returns those who had no subscription. */
export async function subscribeToStarter(
  db: Db,
  users: readonly NewSubscription[],
  at: Date,
): Promise<Set<string>> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared(
      'subscribe-to-starter',
      sql`
    insert into subscriptions (app_id, user_id, id, plan_id, status, anchor_at, created_at)
    select p.app_id, u.user_id, u.id, p.id, 'active', ${at}, ${at}
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[],
                ${users.map((user) => user.id)}::uuid[]) as u (app_id, user_id, id)
    join plans p on p.app_id = u.app_id and p.is_starter_default
    order by u.user_id
    on conflict do nothing
    returning user_id`,
    ),
  )
  return new Set(rows.map((row) => row.user_id))
}

/** How many users are on a plan. */
export async function countSubscribers(
  db: Db,
  plan: { readonly appId: AppId; readonly id: string },
): Promise<number> {
  const { count } = await one<{ count: bigint }>(
    db,
    sql`select count(*) from subscriptions where app_id = ${plan.appId} and plan_id = ${plan.id}`,
  )
  return Number(count)
}

/** Subscribes a user to the app's plan of that name. False when the user has a subscription already. */
export async function subscribeTo(
  db: Db,
  planName: string,
  user: { appId: AppId; userId: UserId; id: string; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into subscriptions (app_id, user_id, id, plan_id, status, anchor_at, created_at)
    select app_id, ${user.userId}, ${user.id}, id, 'active', ${user.at}, ${user.at}
    from plans
    where app_id = ${user.appId} and name = ${planName} and deleted_at is null
    on conflict do nothing`)
  return rowCount === 1
}
