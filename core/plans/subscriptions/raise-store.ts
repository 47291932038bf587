import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import type { IncludedUsage } from './ports.ts'

/** Writes starter_raises. */

export interface StarterRaise {
  readonly appId: AppId
  readonly planId: string
  readonly version: number
  readonly createdAt: Date
  /** All users up to this id have the raise. */
  readonly afterUser: string
}

/**
 * Stores Starter versions, made since `since`, that include more than the previous version: of one
 * app, or of all.
 */
export async function noteRaises(db: Db, since: Date, app: AppId | null): Promise<void> {
  await db.query(sql`
    insert into starter_raises (app_id, plan_id, version, created_at)
    select v.app_id, v.plan_id, v.version, v.created_at
    from plans p
    join plan_versions v on v.app_id = p.app_id and v.plan_id = p.id and v.version > 1 and v.created_at > ${since}
    join plan_versions b on b.app_id = v.app_id and b.plan_id = v.plan_id and b.version = v.version - 1
    where p.is_starter_default and (${app}::uuid is null or p.app_id = ${app}) and coalesce(v.included_attos, 0) > coalesce(b.included_attos, 0)
    on conflict do nothing`)
}

/** The raises that a round processes. */
export interface RaiseFilter {
  /** Null for all apps. */
  readonly app: AppId | null
  /** Raises to skip, as `toRaiseId` writes them. */
  readonly skip: readonly string[]
}

export const toRaiseId = ({ planId, version }: Pick<StarterRaise, 'planId' | 'version'>): string =>
  `${planId} ${version}`

/** Locks the oldest unfinished raise that no other core is processing (`skip locked`). */
export async function lockRaise(db: Db, { app, skip }: RaiseFilter): Promise<StarterRaise | null> {
  const row = await maybeOne<{
    app_id: string
    plan_id: string
    version: number
    created_at: Date
    after_user: string
  }>(
    db,
    sql`
    select app_id, plan_id, version, created_at, after_user
    from starter_raises
    where finished_at is null and (${app}::uuid is null or app_id = ${app}) and plan_id || ' ' || version <> all(${skip}::text[])
    order by created_at, version
    limit 1
    for update skip locked`,
  )
  return (
    row && {
      appId: appId(row.app_id),
      planId: row.plan_id,
      version: row.version,
      createdAt: row.created_at,
      afterUser: row.after_user,
    }
  )
}

export async function saveRaise(
  db: Db,
  { appId: app, planId, version, afterUser }: StarterRaise,
  finishedAt: Date | null,
): Promise<void> {
  await db.query(sql`
    update starter_raises
    set after_user = ${afterUser}, finished_at = ${finishedAt}
    where app_id = ${app} and plan_id = ${planId} and version = ${version}`)
}

/** Returns the versions of a plan in order. */
export async function includedBy(
  db: Db,
  { appId: app, planId }: Pick<StarterRaise, 'appId' | 'planId'>,
): Promise<IncludedUsage[]> {
  const rows = await many<{ version: number; included_attos: string; created_at: Date }>(
    db,
    sql`
    select version, coalesce(included_attos, 0) as included_attos, created_at
    from plan_versions
    where app_id = ${app} and plan_id = ${planId}
    order by version`,
  )
  return rows.map((row) => ({
    version: row.version,
    includedAttos: BigInt(row.included_attos),
    createdAt: row.created_at,
  }))
}

/**
 * Returns users of the plan, by id, who are in a period of an earlier version and lack this
 * version's grant.
 */
export async function usersToRaise(
  db: Db,
  { appId: app, planId, version, createdAt, afterUser }: StarterRaise,
  limit: number,
): Promise<{ appId: AppId; userId: UserId }[]> {
  const rows = await many<{ user_id: string }>(
    db,
    sql`
    select s.user_id
    from subscriptions s
    join balances b on b.app_id = s.app_id and b.user_id = s.user_id
    join periods p on p.app_id = b.app_id and p.user_id = b.user_id and p.starts_at = b.period_start
    where s.app_id = ${app} and s.plan_id = ${planId} and s.user_id > ${afterUser}
      and p.plan_id = ${planId} and p.plan_version < ${version}
      and not exists (
        select 1
        from grants g
        where g.app_id = s.app_id and g.user_id = s.user_id and g.kind = 'included' and g.effective_at = ${createdAt})
    order by s.user_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: app, userId: userId(row.user_id) }))
}

/**
 * Returns, per user, the plan version of the current period. Omits users in periods of another
 * plan.
 */
export async function versionsInForce(
  db: Db,
  { appId: app, planId }: Pick<StarterRaise, 'appId' | 'planId'>,
  users: readonly UserId[],
): Promise<Map<string, number>> {
  const rows = await many<{ user_id: string; plan_version: number }>(
    db,
    sql`
    select b.user_id, p.plan_version
    from balances b
    join periods p on p.app_id = b.app_id and p.user_id = b.user_id and p.starts_at = b.period_start
    where b.app_id = ${app} and b.user_id = any(${users}::uuid[]) and p.plan_id = ${planId}`,
  )
  return new Map(rows.map((row) => [row.user_id, row.plan_version]))
}
