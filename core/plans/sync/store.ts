import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AppId, type UserId, appId } from '../../shared/ids.ts'

/** Writes plan_syncs. */

export interface PlanRef {
  readonly appId: AppId
  readonly planId: string
}

/** State of a plan in the metering backend. */
export interface SyncState {
  readonly openmeterPlanId: string | null
  readonly lastSyncedAt: Date | null
  readonly syncError: string | null
}

export interface Lease extends PlanRef {
  readonly id: string
}

/** Results of earlier syncs. */
export interface Before {
  readonly openmeterPlanId: string | null
  readonly failures: number
}

/** A plan to be synced. `isGone` if the plan or its app is deleted. */
export interface Target extends PlanRef {
  readonly clientId: string
  readonly updatedAt: Date
  readonly isGone: boolean
}

export async function findTarget(db: Db, { appId: app, planId }: PlanRef): Promise<Target | null> {
  const row = await maybeOne<{ client_id: string; updated_at: Date; is_gone: boolean }>(
    db,
    sql`
    select c.client_id, p.updated_at, p.deleted_at is not null or a.status = 'deleted' as is_gone
    from plans p
    join apps a on a.id = p.app_id
    join clients c on c.app_id = p.app_id and c.kind = 'public'
    where p.app_id = ${app} and p.id = ${planId}`,
  )
  return (
    row && {
      appId: app,
      planId,
      clientId: row.client_id,
      updatedAt: row.updated_at,
      isGone: row.is_gone,
    }
  )
}

/** Whether a sync of the plan was ever tried. */
export async function wasTried(db: Db, { appId: app, planId }: PlanRef): Promise<boolean> {
  const { tried } = await one<{ tried: boolean }>(
    db,
    sql`
    select exists (select from plan_syncs where app_id = ${app} and plan_id = ${planId}) as tried`,
  )
  return tried
}

/** Returns the Starter plan of an app. */
export async function findStarter(db: Db, app: AppId): Promise<PlanRef | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`select id from plans where app_id = ${app} and is_starter_default`,
  )
  return row && { appId: app, planId: row.id }
}

/**
 * Takes the plan's lease for one sync. Returns null while another sync holds it. The lease expires
 * at `until`, so that a process that died does not block others.
 */
export async function takeLease(
  db: Db,
  { appId: app, planId, id }: Lease,
  { at, until }: { readonly at: Date; readonly until: Date },
): Promise<Before | null> {
  const row = await maybeOne<{ openmeter_plan_id: string | null; failures: number }>(
    db,
    sql`
    insert into plan_syncs as s (app_id, plan_id, lease_id, leased_until)
    values (${app}, ${planId}, ${id}, ${until})
    on conflict (app_id, plan_id) do update
    set lease_id = excluded.lease_id, leased_until = excluded.leased_until
    where s.leased_until is null or s.leased_until <= ${at}
    returning openmeter_plan_id, failures`,
  )
  return row && { openmeterPlanId: row.openmeter_plan_id, failures: row.failures }
}

/** Returns false when the lease has expired and another sync has taken it. */
export async function saveRemoteId(
  db: Db,
  { appId: app, planId, id }: Lease,
  openmeterPlanId: string | null,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update plan_syncs
    set openmeter_plan_id = ${openmeterPlanId}
    where app_id = ${app} and plan_id = ${planId} and lease_id = ${id}`)
  return rowCount === 1
}

/** Ends the lease of a sync that succeeded. */
export async function saveSuccess(
  db: Db,
  { appId: app, planId, id }: Lease,
  success: {
    readonly openmeterPlanId: string | null
    readonly at: Date
    readonly planUpdatedAt: Date
  },
): Promise<void> {
  await db.query(sql`
    update plan_syncs
    set openmeter_plan_id = ${success.openmeterPlanId}, last_synced_at = ${success.at}, sync_error = null, failures = 0,
        retry_at = null, plan_updated_at = ${success.planUpdatedAt}, lease_id = null, leased_until = null
    where app_id = ${app} and plan_id = ${planId} and lease_id = ${id}`)
}

/** Ends the lease of a sync that failed. Keeps the time of the last success. */
export async function saveFailure(
  db: Db,
  { appId: app, planId, id }: Lease,
  failure: {
    readonly syncError: string
    readonly retryAt: Date | null
    readonly planUpdatedAt: Date
  },
): Promise<void> {
  await db.query(sql`
    update plan_syncs
    set sync_error = ${failure.syncError}, failures = failures + 1, retry_at = ${failure.retryAt},
        plan_updated_at = ${failure.planUpdatedAt}, lease_id = null, leased_until = null
    where app_id = ${app} and plan_id = ${planId} and lease_id = ${id}`)
}

interface StateRow {
  plan_id: string
  openmeter_plan_id: string | null
  last_synced_at: Date | null
  sync_error: string | null
}

/** Returns the states of the app's plans by their ids. Omits plans that were never synced. */
export async function findStates(db: Db, app: AppId): Promise<Map<string, SyncState>> {
  const rows = await many<StateRow>(
    db,
    sql`
    select plan_id, openmeter_plan_id, last_synced_at, sync_error
    from plan_syncs
    where app_id = ${app}`,
  )
  return new Map(
    rows.map((row) => [
      row.plan_id,
      {
        openmeterPlanId: row.openmeter_plan_id,
        lastSyncedAt: row.last_synced_at,
        syncError: row.sync_error,
      },
    ]),
  )
}

/** A plan in the metering backend, with the id of its newest version there. */
export interface Remote {
  readonly planId: string
  readonly openmeterPlanId: string
  readonly clientId: string
}

/** Returns those of these plans that the backend has. */
export async function findRemotes(
  db: Db,
  app: AppId,
  planIds: readonly string[],
): Promise<Remote[]> {
  return many<Remote>(
    db,
    sql`
    select s.plan_id as "planId", s.openmeter_plan_id as "openmeterPlanId", c.client_id as "clientId"
    from plan_syncs s
    join clients c on c.app_id = s.app_id and c.kind = 'public'
    where s.app_id = ${app} and s.plan_id = any(${[...new Set(planIds)]}::uuid[])
      and s.openmeter_plan_id is not null and s.last_synced_at is not null`,
  )
}

/** The subscription in a user's slot, and the user's external id. */
export interface Subscribed {
  readonly clientId: string
  readonly externalUserId: string
  readonly subscriptionId: string
  readonly planId: string
}

/** Returns null for a user without a subscription, or in a deleted app. */
export const findSubscribed = (
  db: Db,
  user: { readonly appId: AppId; readonly userId: UserId },
): Promise<Subscribed | null> =>
  maybeOne<Subscribed>(
    db,
    sql`
    select c.client_id as "clientId", u.external_user_id as "externalUserId", s.id as "subscriptionId",
           s.plan_id as "planId"
    from subscriptions s
    join end_users u on u.app_id = s.app_id and u.id = s.user_id
    join clients c on c.app_id = s.app_id and c.kind = 'public'
    join apps a on a.id = s.app_id and a.status <> 'deleted'
    where s.app_id = ${user.appId} and s.user_id = ${user.userId}`,
  )

/** Text that differs after every change of the app's states. */
export async function statesVersion(db: Db, app: AppId): Promise<string> {
  const { version } = await one<{ version: string | null }>(
    db,
    sql`
    select md5(string_agg(plan_id::text || ' ' || xmin::text, ',' order by plan_id)) as version
    from plan_syncs
    where app_id = ${app}`,
  )
  return version ?? ''
}

/**
 * Returns plans to sync: plans that are sold or may exist in the backend, if a retry is due, they
 * changed, they were never synced, or their app was deleted. A plan that just failed is not due at
 * once.
 */
export async function findDue(db: Db, at: Date, limit: number): Promise<PlanRef[]> {
  const rows = await many<{ app_id: string; plan_id: string }>(
    db,
    sql`
    select p.app_id, p.id as plan_id
    from plans p
    join apps a on a.id = p.app_id
    left join plan_syncs s on s.app_id = p.app_id and s.plan_id = p.id
    where (s.openmeter_plan_id is not null or s.failures > 0
           or (p.status = 'active' and p.deleted_at is null and p.type <> 'free' and not p.is_network_default
               and a.status <> 'deleted'))
      and (s.leased_until is null or s.leased_until <= ${at})
      and (s.plan_updated_at is null or s.retry_at <= ${at} or p.updated_at > s.plan_updated_at
           or (s.retry_at is null and a.deleted_at > s.last_synced_at))
    order by s.retry_at nulls first, p.app_id, p.id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), planId: row.plan_id }))
}
