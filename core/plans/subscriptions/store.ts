import { type Db, many, maybeOne, one, prepared, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import { inAppGroups, lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, appId, userId, type UserKey } from '../../shared/ids.ts'

/** Writes subscriptions and subscription_history. */

export interface NewSubscription {
  readonly appId: AppId
  readonly userId: UserId
  readonly id: string
}

/**
 * Subscribes users to their apps' Starter plans. Returns the users who had no subscription. If a
 * user's latest periods are Starter's, the subscription counts from the first one; after another
 * plan, periods count from the end of the last one.
 */
export async function subscribeToStarter(
  db: Db,
  users: readonly NewSubscription[],
  at: Date,
): Promise<Set<string>> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<{ user_id: string }>(
      db,
      prepared('subscribe-to-starter')`
    insert into subscriptions (app_id, user_id, id, plan_id, status, anchor_at, created_at)
    select p.app_id, u.user_id, u.id, p.id, 'active', coalesce(r.since, b.period_end, ${at}), coalesce(r.since, ${at})
    from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[],
                ${group.map((user) => user.id)}::uuid[]) as u (app_id, user_id, id)
    join plans p on p.app_id = u.app_id and p.is_starter_default
    left join balances b on b.app_id = u.app_id and b.user_id = u.user_id and b.app_id = coalesce(${app}, b.app_id)
    left join lateral (
      select min(q.starts_at) as since
      from periods q
      where q.app_id = coalesce(${app}, b.app_id) and q.user_id = b.user_id and q.plan_id = p.id and not exists (
        select 1
        from periods o
        where o.app_id = coalesce(${app}, q.app_id) and o.user_id = q.user_id and o.plan_id <> p.id
          and o.starts_at > q.starts_at)) r on true
    order by u.user_id
    on conflict do nothing
    returning user_id`,
    ),
  )
  return new Set(rows.map((row) => row.user_id))
}

/** Counts users who are on a plan, or are scheduled to be. */
export async function countSubscribers(
  db: Db,
  plan: { readonly appId: AppId; readonly id: string },
): Promise<number> {
  const { count } = await one<{ count: bigint }>(
    db,
    sql`
    select count(*)
    from subscriptions
    where app_id = ${plan.appId} and (plan_id = ${plan.id} or next_plan_id = ${plan.id})`,
  )
  return Number(count)
}

/**
 * Subscribes a user to the app's plan with that name. Returns false when the user already has a
 * subscription.
 */
export async function subscribeTo(
  db: Db,
  planName: string,
  user: { appId: AppId; userId: UserId; id: string; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into subscriptions (app_id, user_id, id, plan_id, status, anchor_at, created_at)
    select p.app_id, ${user.userId}, ${user.id}, p.id, 'active', coalesce(b.period_end, ${user.at}), ${user.at}
    from plans p
    left join balances b on b.app_id = p.app_id and b.user_id = ${user.userId}
    where p.app_id = ${user.appId} and p.name = ${planName} and p.deleted_at is null
    on conflict do nothing`)
  return rowCount === 1
}

/** `unpaid`: a payment failed for good. */
export type EndReason = 'change' | 'cancel' | 'unpaid'

/** `past_due`: a payment failed and is tried again. */
export type SubscriptionStatus = 'active' | 'past_due'

/** A subscription scheduled to take over a slot. */
export interface Successor {
  readonly id: string
  readonly planId: string
  readonly at: Date
  readonly reason: EndReason
  /** When it was scheduled. */
  readonly setAt: Date
}

/** The subscription in a user's slot. */
export interface Subscription extends UserKey {
  readonly id: string
  readonly planId: string
  readonly status: SubscriptionStatus
  /** Start of the period count. */
  readonly anchorAt: Date
  /** Time since which it holds the slot. */
  readonly createdAt: Date
  readonly next: Successor | null
}

interface SubscriptionRow {
  app_id: string
  user_id: string
  id: string
  plan_id: string
  status: SubscriptionStatus
  anchor_at: Date
  created_at: Date
  next_id: string | null
  next_plan_id: string | null
  next_at: Date | null
  next_reason: EndReason | null
  next_set_at: Date | null
}

const fromRow = (row: SubscriptionRow): Subscription => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  planId: row.plan_id,
  status: row.status,
  anchorAt: row.anchor_at,
  createdAt: row.created_at,
  next: successorFromRow(row),
})

function successorFromRow(row: SubscriptionRow): Successor | null {
  const { next_id: id, next_plan_id: planId, next_at: at, next_reason: reason } = row
  if (!id || !planId || !at || !reason || !row.next_set_at) return null
  return { id, planId, at, reason, setAt: row.next_set_at }
}

export async function findSubscription(db: Db, user: UserKey): Promise<Subscription | null> {
  const row = await maybeOne<SubscriptionRow>(
    db,
    sql`
    select app_id, user_id, id, plan_id, status, anchor_at, created_at, next_id, next_plan_id, next_at, next_reason, next_set_at
    from subscriptions
    where app_id = ${user.appId} and user_id = ${user.userId}`,
  )
  return row && fromRow(row)
}

/** Like `findSubscription`, but locks the row until the transaction ends. */
export async function lockSubscription(db: Db, user: UserKey): Promise<Subscription | null> {
  const row = await maybeOne<SubscriptionRow>(
    db,
    sql`
    select app_id, user_id, id, plan_id, status, anchor_at, created_at, next_id, next_plan_id, next_at, next_reason, next_set_at
    from subscriptions
    where app_id = ${user.appId} and user_id = ${user.userId}
    for update`,
  )
  return row && fromRow(row)
}

/** Locks subscriptions with a due successor (`skip locked`). */
export async function lockDue(
  db: Db,
  at: Date,
  { app, limit }: { readonly app: AppId | null; readonly limit: number },
): Promise<Subscription[]> {
  const rows = await lockInApps(db, {
    app,
    limit,
    findApps: () => listDueApps(db, at, limit),
    lock: (each, most) =>
      many<SubscriptionRow>(
        db,
        sql`
    select app_id, user_id, id, plan_id, status, anchor_at, created_at, next_id, next_plan_id, next_at, next_reason, next_set_at
    from subscriptions
    where next_at <= ${at} and (${each}::uuid is null or app_id = ${each})
    order by next_at
    limit ${most}
    for update skip locked`,
      ),
  })
  return rows.map(fromRow)
}

async function listDueApps(db: Db, at: Date, limit: number): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from (select app_id from subscriptions where next_at <= ${at} order by next_at limit ${limit}) due`,
  )
  return rows.map((row) => appId(row.app_id))
}

/** A subscription that takes over the slot of a locked one at `since`. */
export interface Following {
  readonly ended: Subscription
  readonly id: string
  readonly planId: string
  readonly anchorAt: Date
  readonly since: Date
  readonly reason: EndReason
}

/** Ends locked subscriptions and gives their slots to the new ones, which have no successors. */
export async function replaceSubscriptions(db: Db, rows: readonly Following[]): Promise<void> {
  if (rows.length === 0) return
  const column = <T>(value: (row: Following) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into subscription_history (app_id, user_id, id, plan_id, anchor_at, created_at, ended_at, reason)
    select * from unnest(
      ${column((row) => row.ended.appId)}::uuid[], ${column((row) => row.ended.userId)}::uuid[],
      ${column((row) => row.ended.id)}::uuid[], ${column((row) => row.ended.planId)}::uuid[],
      ${column((row) => row.ended.anchorAt)}::timestamptz[], ${column((row) => row.ended.createdAt)}::timestamptz[],
      ${column((row) => row.since)}::timestamptz[], ${column((row) => row.reason)}::text[])`)
  await db.query(sql`
    update subscriptions s
    set id = f.id, plan_id = f.plan_id, status = 'active', anchor_at = f.anchor_at, created_at = f.since, next_id = null,
        next_plan_id = null, next_at = null, next_reason = null, next_set_at = null
    from unnest(
      ${column((row) => row.ended.appId)}::uuid[], ${column((row) => row.ended.userId)}::uuid[],
      ${column((row) => row.id)}::uuid[], ${column((row) => row.planId)}::uuid[],
      ${column((row) => row.anchorAt)}::timestamptz[], ${column((row) => row.since)}::timestamptz[])
      as f (app_id, user_id, id, plan_id, anchor_at, since)
    where s.app_id = f.app_id and s.user_id = f.user_id`)
}

/**
 * Sets the status of the subscription in a slot. Returns the subscription; null on Starter.
 */
export async function saveStatus(
  db: Db,
  { appId: app, userId: user }: UserKey,
  status: SubscriptionStatus,
): Promise<{ readonly subscriptionId: string; readonly planId: string } | null> {
  return maybeOne<{ subscriptionId: string; planId: string }>(
    db,
    sql`
    update subscriptions s
    set status = ${status}
    from plans p
    where s.app_id = ${app} and s.user_id = ${user}
      and p.app_id = s.app_id and p.id = s.plan_id and not p.is_starter_default
    returning s.id as "subscriptionId", s.plan_id as "planId"`,
  )
}

/** Schedules the successor of a locked subscription; null removes it. */
export async function saveSuccessor(db: Db, user: UserKey, next: Successor | null): Promise<void> {
  await db.query(sql`
    update subscriptions
    set next_id = ${next?.id ?? null}, next_plan_id = ${next?.planId ?? null}, next_at = ${next?.at ?? null},
        next_reason = ${next?.reason ?? null}, next_set_at = ${next?.setAt ?? null}
    where app_id = ${user.appId} and user_id = ${user.userId}`)
}

/** Returns creation time and billing cycle of plan versions, by plan, in version order. */
export async function listCycles(
  db: Db,
  plans: ReadonlyMap<string, AppId>,
): Promise<Map<string, { createdAt: Date; cycle: BillingCycle }[]>> {
  const rows = await many<{ plan_id: string; created_at: Date; billing_cycle: BillingCycle }>(
    db,
    sql`
    select v.plan_id, v.created_at, v.billing_cycle
    from unnest(${[...plans.values()]}::uuid[], ${[...plans.keys()]}::uuid[]) as w (app_id, plan_id)
    join plan_versions v on v.app_id = w.app_id and v.plan_id = w.plan_id
    order by v.plan_id, v.version`,
  )
  const byPlan = Map.groupBy(rows, (row) => row.plan_id)
  return new Map(
    [...byPlan].map(([planId, versions]) => [
      planId,
      versions.map((row) => ({ createdAt: row.created_at, cycle: row.billing_cycle })),
    ]),
  )
}

/** Blocks changes to a plan and its deletion until the transaction ends. */
export async function lockPlan(db: Db, app: AppId, planId: string): Promise<void> {
  await db.query(sql`
    select 1
    from plans
    where app_id = ${app} and id = ${planId}
    for share`)
}

/** Returns the id of the app's Starter plan. */
export async function findStarter(db: Db, app: AppId): Promise<string | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`
    select id
    from plans
    where app_id = ${app} and is_starter_default`,
  )
  return row && row.id
}

export interface PlanName {
  readonly id: string
  readonly name: string
  readonly status: 'active' | 'inactive' | 'missing'
  readonly isStarterDefault: boolean
}

/** Returns plans by their ids, including deleted ones. */
export async function planNames(
  db: Db,
  app: AppId,
  ids: readonly string[],
): Promise<Map<string, PlanName>> {
  const rows = await many<PlanName>(
    db,
    sql`
    select id, name, case when deleted_at is null then status else 'missing' end as status,
           is_starter_default as "isStarterDefault"
    from plans
    where app_id = ${app} and id = any(${[...new Set(ids)]}::uuid[])`,
  )
  return new Map(rows.map((row) => [row.id, row]))
}

export async function findUser(
  db: Db,
  app: AppId,
  externalUserId: string,
): Promise<(UserKey & { readonly externalUserId: string; readonly isSubscribed: boolean }) | null> {
  const row = await maybeOne<{ id: string; external_user_id: string; is_subscribed: boolean }>(
    db,
    sql`
    select u.id, u.external_user_id, s.user_id is not null as is_subscribed
    from end_users u
    left join subscriptions s on s.app_id = u.app_id and s.user_id = u.id
    where u.app_id = ${app} and u.external_user_id = ${externalUserId}`,
  )
  return (
    row && {
      appId: app,
      userId: userId(row.id),
      externalUserId: row.external_user_id,
      isSubscribed: row.is_subscribed,
    }
  )
}

export interface HistoryItem {
  readonly id: string
  readonly planId: string
  readonly planName: string
  readonly status: 'active' | 'past_due' | 'canceled' | 'scheduled' | 'inactive'
  readonly createdAt: Date
  readonly endsAt: Date | null
}

/**
 * Lists past, current and scheduled subscriptions of a user, latest first. Returns one more than
 * `limit` when there are more.
 */
export const listHistory = (
  db: Db,
  user: UserKey,
  { after, limit }: { after: { createdAt: Date; id: string } | null; limit: number },
): Promise<HistoryItem[]> =>
  many<HistoryItem>(
    db,
    sql`
    select a.id, a.plan_id as "planId", p.name as "planName", a.status, a.created_at as "createdAt", a.ends_at as "endsAt"
    from (
      select id, plan_id, 'inactive' as status, created_at, ended_at as ends_at
      from subscription_history
      where app_id = ${user.appId} and user_id = ${user.userId}
      union all
      select id, plan_id, case when status = 'past_due' then status when next_reason = 'cancel' then 'canceled' else status end, created_at, next_at
      from subscriptions
      where app_id = ${user.appId} and user_id = ${user.userId}
      union all
      select next_id, next_plan_id, 'scheduled', next_at, null
      from subscriptions
      where app_id = ${user.appId} and user_id = ${user.userId} and next_reason = 'change'
    ) a
    join plans p on p.app_id = ${user.appId} and p.id = a.plan_id
    where ${after === null} or (a.created_at, a.id) < (${after?.createdAt ?? null}, ${after?.id ?? null}::uuid)
    order by a.created_at desc, a.id desc
    limit ${limit + 1}`,
  )
