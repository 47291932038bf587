import { type AppId, type UserId, appId, userId } from '../../platform/ids.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'

export interface Hours {
  readonly from: Date
  readonly to: Date
}
export interface ReconciledApp {
  readonly appId: AppId
  readonly clientId: string
}

/** Apps with usage in whole hours, in the order of their ids, after the one given; or the one that is asked for. */
export async function appsWithUsage(
  db: Db,
  { from, to }: Hours,
  options: { clientId: string | null; after: AppId | null; limit: number },
): Promise<ReconciledApp[]> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`
    select c.app_id, c.client_id
    from clients c
    where c.kind = 'public' and (${options.after}::uuid is null or c.app_id > ${options.after}::uuid)
      and (c.client_id = ${options.clientId}
           or (${options.clientId}::text is null
               and exists (select 1 from usage_hourly u where u.app_id = c.app_id and u.hour >= ${from} and u.hour < ${to})))
    order by c.app_id
    limit ${options.limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), clientId: row.client_id }))
}

export async function isClient(db: Db, clientId: string): Promise<boolean> {
  const row = await one<{ found: boolean }>(
    db,
    sql`
    select exists (select 1 from clients where client_id = ${clientId} and kind = 'public') as found`,
  )
  return row.found
}

export interface OwnSum {
  readonly userId: UserId
  readonly externalUserId: string
  readonly tickets: bigint
  readonly cost: UsdAttos
}

/** What each user's priced tickets of whole hours come to: the ones that are sent. */
export async function sumsByUser(db: Db, app: AppId, { from, to }: Hours): Promise<OwnSum[]> {
  const rows = await many<{
    user_id: string
    external_user_id: string
    tickets: bigint
    cost: string
  }>(
    db,
    sql`
    select u.user_id, e.external_user_id, sum(u.ticket_count - u.unpriced_count)::bigint as tickets, sum(u.cost_attos) as cost
    from usage_hourly u
    join end_users e on e.app_id = u.app_id and e.id = u.user_id
    where u.app_id = ${app} and u.hour >= ${from} and u.hour < ${to}
    group by u.user_id, e.external_user_id
    having sum(u.ticket_count - u.unpriced_count) > 0`,
  )
  return rows.map((row) => ({
    userId: userId(row.user_id),
    externalUserId: row.external_user_id,
    tickets: row.tickets,
    cost: usdAttos(BigInt(row.cost)),
  }))
}

const mark = 'reconciled'

/** True for the one core that may reconcile now: nobody has since `notSince`. */
export async function takeTurn(db: Db, at: Date, notSince: Date): Promise<boolean> {
  const row = await maybeOne<{ name: string }>(
    db,
    sql`
    insert into backend_marks (name, reached_at)
    values (${mark}, ${at})
    on conflict (name) do update set reached_at = excluded.reached_at
    where backend_marks.reached_at <= ${notSince}
    returning name`,
  )
  return row !== null
}

export interface Drift {
  /** User-days that were compared, and those beyond tolerance. */
  readonly compared: number
  readonly drifting: number
  /** How far those are away, all together. */
  readonly usdMicros: number
  readonly tickets: number
  readonly at: string
}

export async function saveDrift(db: Db, drift: Drift): Promise<void> {
  await db.query(
    sql`update backend_marks set result = ${JSON.stringify(drift)} where name = ${mark}`,
  )
}

/** What the last reconciliation found, whichever core did it. */
export async function readDrift(db: Db): Promise<Drift | null> {
  const row = await maybeOne<{ result: Drift | null }>(
    db,
    sql`select result from backend_marks where name = ${mark}`,
  )
  return row?.result ?? null
}
