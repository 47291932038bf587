import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AppId, appId } from '../../platform/ids.ts'

/** Writes plan_syncs. */

export interface PlanRef {
  readonly appId: AppId
  readonly planId: string
}

/** What the metering backend has of a plan. */
export interface SyncState {
  readonly openmeterPlanId: string | null
  readonly lastSyncedAt: Date | null
  readonly syncError: string | null
}

export interface Lease extends PlanRef {
  readonly id: string
}

/**
 * Takes the plan's lease for one sync. Null while another sync has it; it ends by itself at `until`, so that a process that
 * died keeps nobody waiting.
 */
export async function takeLease(
  db: Db,
  { appId: app, planId, id }: Lease,
  { at, until }: { readonly at: Date; readonly until: Date },
): Promise<{ readonly openmeterPlanId: string | null; readonly failures: number } | null> {
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

/** False when the lease has ended and another sync has the plan. */
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

/** Ends the lease of a sync that failed. The last success stays what it was. */
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

/** The states of the app's plans by their ids; a plan that was never synced has none. */
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

/** A text that differs from every earlier one once a state of the app has changed. */
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

/** Active plans whose sync is due: it failed and may be repeated, or the plan has changed, or was never synced. */
export async function findDue(db: Db, at: Date, limit: number): Promise<PlanRef[]> {
  const rows = await many<{ app_id: string; plan_id: string }>(
    db,
    sql`
    select p.app_id, p.id as plan_id
    from plans p
    join apps a on a.id = p.app_id and a.status <> 'deleted'
    left join plan_syncs s on s.app_id = p.app_id and s.plan_id = p.id
    where p.status = 'active' and p.deleted_at is null and p.type <> 'free' and not p.is_network_default
      and (s.leased_until is null or s.leased_until <= ${at})
      and (s.plan_updated_at is null or s.retry_at <= ${at} or p.updated_at > s.plan_updated_at)
    order by s.retry_at nulls first, p.app_id, p.id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), planId: row.plan_id }))
}

/** The public client id of an app. */
export async function findClientId(db: Db, app: AppId): Promise<string | null> {
  const row = await maybeOne<{ client_id: string }>(
    db,
    sql`select client_id from clients where app_id = ${app} and kind = 'public'`,
  )
  return row && row.client_id
}
