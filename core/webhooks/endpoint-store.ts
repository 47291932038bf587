import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { type AppId, appId } from '../shared/ids.ts'

/** Reads and writes webhook_endpoints. */

export type EndpointStatus = 'active' | 'disabled'
export const disabledReasons = ['requested', 'gone', 'failing', 'backlog'] as const
export type DisabledReason = (typeof disabledReasons)[number]

/** The part of an endpoint that its app chooses. */
export interface EndpointSettings {
  readonly url: string
  readonly description: string
  /** Empty for all types. */
  readonly eventTypes: readonly string[]
}

export interface EndpointKey {
  readonly appId: AppId
  readonly id: string
}

export interface Endpoint extends EndpointKey, EndpointSettings {
  readonly status: EndpointStatus
  readonly disabledReason: DisabledReason | null
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly failingSince: Date | null
}

const columns = `app_id as "appId", id, url, description, event_types as "eventTypes", status,
  disabled_reason as "disabledReason", created_at as "createdAt", updated_at as "updatedAt",
  failing_since as "failingSince"`

export const listEndpoints = (db: Db, app: AppId): Promise<Endpoint[]> =>
  many<Endpoint>(db, {
    text: `select ${columns} from webhook_endpoints where app_id = $1 order by created_at, id`,
    values: [app],
  })

export const findEndpoint = (db: Db, { appId: app, id }: EndpointKey): Promise<Endpoint | null> =>
  maybeOne<Endpoint>(db, {
    text: `select ${columns} from webhook_endpoints where app_id = $1 and id = $2`,
    values: [app, id],
  })

export const lockEndpoint = (db: Db, { appId: app, id }: EndpointKey): Promise<Endpoint | null> =>
  maybeOne<Endpoint>(db, {
    text: `select ${columns} from webhook_endpoints where app_id = $1 and id = $2 for no key update`,
    values: [app, id],
  })

/** Locks the active endpoints of apps in one order, so that two callers cannot deadlock. */
export const lockActiveEndpoints = (db: Db, apps: readonly AppId[]): Promise<Endpoint[]> =>
  many<Endpoint>(db, {
    text: `
      select ${columns}
      from webhook_endpoints
      where app_id = any($1::uuid[]) and status = 'active'
      order by app_id, id
      for no key update`,
    values: [apps],
  })

/** Takes the app's advisory lock until commit, so that its endpoints can be counted. */
export async function lockEndpoints(db: Db, app: AppId): Promise<void> {
  await db.query(
    sql`select pg_advisory_xact_lock(hashtextextended(${`webhook endpoints ${app}`}, 0))`,
  )
}

export async function countEndpoints(db: Db, app: AppId): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`select count(*)::integer as count from webhook_endpoints where app_id = ${app}`,
  )
  return count
}

export async function insertEndpoint(db: Db, row: Endpoint): Promise<void> {
  await db.query(sql`
    insert into webhook_endpoints (app_id, id, url, description, event_types, status, created_at, updated_at)
    values (${row.appId}, ${row.id}, ${row.url}, ${row.description}, ${row.eventTypes}, ${row.status},
            ${row.createdAt}, ${row.updatedAt})`)
}

/** Writes the settings and the status of an endpoint. */
export async function updateEndpoint(db: Db, row: Endpoint): Promise<void> {
  await db.query(sql`
    update webhook_endpoints
    set url = ${row.url}, description = ${row.description}, event_types = ${row.eventTypes},
        status = ${row.status}, disabled_reason = ${row.disabledReason}, updated_at = ${row.updatedAt}
    where app_id = ${row.appId} and id = ${row.id}`)
}

/** Forgets failures, and makes the endpoint due. */
export async function restartEndpoint(
  db: Db,
  { appId: app, id }: EndpointKey,
  at: Date,
): Promise<void> {
  await db.query(sql`
    update webhook_endpoints
    set failures = 0, failing_since = null, due_at = ${at}
    where app_id = ${app} and id = ${id}`)
}

export async function deleteEndpoint(db: Db, { appId: app, id }: EndpointKey): Promise<boolean> {
  const { rowCount } = await db.query(
    sql`delete from webhook_endpoints where app_id = ${app} and id = ${id}`,
  )
  return rowCount === 1
}

export async function deleteEndpointsOfApp(db: Db, app: AppId): Promise<void> {
  await db.query(sql`delete from webhook_endpoints where app_id = ${app}`)
}

/**
 * Makes locked endpoints with new deliveries due. One that fails keeps the pause before its next
 * attempt.
 */
export async function makeDue(
  db: Db,
  endpoints: readonly EndpointKey[],
  { at, failuresMax }: { readonly at: Date; readonly failuresMax: number },
): Promise<void> {
  if (endpoints.length === 0) return
  await db.query(sql`
    update webhook_endpoints e
    set due_at = case when e.failures < ${failuresMax} then least(e.due_at, ${at}::timestamptz)
                      else coalesce(e.due_at, ${at}::timestamptz) end
    from unnest(${endpoints.map((e) => e.appId)}::uuid[], ${endpoints.map((e) => e.id)}::uuid[]) as d (app_id, id)
    where e.app_id = d.app_id and e.id = d.id`)
}

/** Makes a locked endpoint due at once, also if it fails. */
export async function rush(db: Db, { appId: app, id }: EndpointKey, at: Date): Promise<void> {
  await db.query(sql`
    update webhook_endpoints set due_at = ${at} where app_id = ${app} and id = ${id}`)
}

/** An endpoint to which this core delivers until `until`. */
export interface EndpointLease extends EndpointKey {
  readonly until: Date
  readonly failures: number
}

/** Leases the endpoints that have been due longest, without those that another core has. */
export async function leaseDue(
  db: Db,
  { at, until, limit }: { readonly at: Date; readonly until: Date; readonly limit: number },
): Promise<EndpointLease[]> {
  const rows = await many<{ app_id: string; id: string; failures: number }>(
    db,
    sql`
    with due as materialized (
      select app_id, id
      from webhook_endpoints
      where status = 'active' and due_at <= ${at} and (leased_until is null or leased_until <= ${at})
      order by due_at
      limit ${limit}
      for no key update skip locked
    )
    update webhook_endpoints e
    set leased_until = ${until}
    from due d
    where e.app_id = d.app_id and e.id = d.id
    returning e.app_id, e.id, e.failures`,
  )
  return rows.map(({ app_id: app, ...row }) => ({ ...row, appId: appId(app), until }))
}

export interface LeasedEndpoint {
  readonly url: string
  readonly failures: number
}

/** Reads a leased endpoint; null if it was disabled or deleted, or another core has it. */
export const findLeased = (
  db: Db,
  { appId: app, id, until }: EndpointLease,
): Promise<LeasedEndpoint | null> =>
  maybeOne<LeasedEndpoint>(
    db,
    sql`
    select url, failures
    from webhook_endpoints
    where app_id = ${app} and id = ${id} and leased_until = ${until} and status = 'active'`,
  )

/** Records attempts in a row: all failed, or one or more successes. Returns the new figures. */
export const recordHealth = (
  db: Db,
  { appId: app, id }: EndpointKey,
  { at, failed, isHealthy }: { at: Date; failed: number; isHealthy: boolean },
): Promise<{ failures: number; failingSince: Date | null } | null> =>
  maybeOne(
    db,
    sql`
    update webhook_endpoints
    set failures = case when ${isHealthy} then 0 else failures + ${failed}::integer end,
        failing_since = case when ${isHealthy} then null else coalesce(failing_since, ${at}::timestamptz) end
    where app_id = ${app} and id = ${id}
    returning failures, failing_since as "failingSince"`,
  )

/** Ends a lease of a locked endpoint. `dueAt` is the next attempt's time; null if none waits. */
export async function endLease(
  db: Db,
  { appId: app, id, until }: EndpointLease,
  dueAt: Date | null,
): Promise<void> {
  await db.query(sql`
    update webhook_endpoints
    set leased_until = null, due_at = ${dueAt}
    where app_id = ${app} and id = ${id} and leased_until = ${until}`)
}

/** Disables an active endpoint. Returns whether it was active. */
export async function disableEndpoint(
  db: Db,
  { appId: app, id }: EndpointKey,
  { at, reason }: { readonly at: Date; readonly reason: DisabledReason },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update webhook_endpoints
    set status = 'disabled', disabled_reason = ${reason}, updated_at = ${at}, leased_until = null, due_at = null
    where app_id = ${app} and id = ${id} and status = 'active'`)
  return rowCount === 1
}

/** Returns failing endpoints with more than `waiting` deliveries, at most `limit`. */
export async function findBacklogs(
  db: Db,
  { failures, waiting, limit }: { failures: number; waiting: number; limit: number },
): Promise<EndpointKey[]> {
  const rows = await many<{ app_id: string; id: string }>(
    db,
    sql`
    select e.app_id, e.id
    from webhook_endpoints e
    where e.status = 'active' and e.due_at is not null and e.failures >= ${failures}
      and exists (
        select
        from webhook_deliveries d
        where d.app_id = e.app_id and d.endpoint_id = e.id and d.status = 'pending'
        offset ${waiting}
        limit 1)
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), id: row.id }))
}

/** Due time of the endpoint that has been due longest; null if none is due. */
export async function dueSince(db: Db, at: Date): Promise<Date | null> {
  const row = await one<{ oldest: Date | null }>(
    db,
    sql`
    select min(due_at) as oldest from webhook_endpoints where status = 'active' and due_at <= ${at}`,
  )
  return row.oldest
}

export const countByStatus = (db: Db): Promise<Readonly<Record<EndpointStatus, number>>> =>
  one(
    db,
    sql`
    select (count(*) filter (where status = 'active'))::integer as active,
           (count(*) filter (where status = 'disabled'))::integer as disabled
    from webhook_endpoints`,
  )
