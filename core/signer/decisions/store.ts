import type { AppId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { DecisionRecord } from './record.ts'

export interface NewDecision {
  readonly id: string
  /** Public client id of the credential; null if it led to no app. */
  readonly clientId: string | null
  readonly json: string
}

/**
 * Inserts the decisions with new ids. Returns the apps with new decisions, and null for decisions
 * without an app.
 */
export async function insertDecisions(
  db: Db,
  decisions: readonly NewDecision[],
  at: Date,
): Promise<(AppId | null)[]> {
  const { rows } = await db.query<{ app_id: AppId | null }>(sql`
    with inserted as (
      insert into decisions (id, app_id, recorded_at, record)
      select d.id, c.app_id, ${at}::timestamptz, d.record
      from unnest(${decisions.map(({ id }) => id)}::text[], ${decisions.map(({ clientId }) => clientId)}::text[],
                  ${decisions.map(({ json }) => json)}::jsonb[]) as d (id, client_id, record)
      left join clients c on c.client_id = d.client_id and c.kind = 'public'
      on conflict (id) do nothing
      returning app_id
    )
    select distinct app_id
    from inserted`)
  return rows.map(({ app_id }) => app_id)
}

/**
 * Returns a decision about a user of the app. With null, returns a decision of any app or without
 * one.
 */
export async function findDecision(
  db: Db,
  id: string,
  app: AppId | null,
): Promise<DecisionRecord | null> {
  const row = await maybeOne<{ record: DecisionRecord }>(
    db,
    sql`
    select record
    from decisions
    where id = ${id} and (${app}::uuid is null or app_id = ${app})`,
  )
  return row && row.record
}

/** Selects decisions; null matches all. */
export interface DecisionFilter {
  readonly appId: AppId | null
  /** Public client id, for callers without the app's own id. */
  readonly clientId: string | null
  readonly externalUserId: string | null
  readonly code: string | null
}

/** Returns the newest decisions of the filter. */
export async function listDecisions(
  db: Db,
  { appId, clientId, externalUserId, code }: DecisionFilter,
  limit: number,
): Promise<DecisionRecord[]> {
  const rows = await many<{ record: DecisionRecord }>(
    db,
    sql`
    select record
    from decisions
    where (${appId}::uuid is null or app_id = ${appId})
      and (${clientId}::text is null
           or app_id = (select app_id from clients where client_id = ${clientId} and kind = 'public'))
      and (${externalUserId}::text is null or record -> 'credential' ->> 'externalUserId' = ${externalUserId})
      and (${code}::text is null or record ->> 'code' = ${code})
    order by recorded_at desc, id desc
    limit ${limit}`,
  )
  return rows.map(({ record }) => record)
}

/** Deletes at most `limit` decisions. Returns the number. */
export async function deleteRecordedBefore(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from decisions
    where ctid in (
      select ctid from decisions where recorded_at < ${before} order by recorded_at limit ${limit}
      for update skip locked)`)
  return rowCount ?? 0
}

/**
 * Deletes all but the newest `max` decisions of an app, or of no app for null. Deletes at most
 * `limit` and returns the number.
 */
export async function deleteOldest(
  db: Db,
  app: AppId | null,
  { max, limit }: { readonly max: number; readonly limit: number },
): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from decisions
    where ctid in (
      select ctid
      from decisions
      where app_id is not distinct from ${app}::uuid
        and recorded_at <= (
          select recorded_at
          from decisions
          where app_id is not distinct from ${app}::uuid
          order by recorded_at desc
          offset ${max}
          limit 1)
      order by recorded_at
      limit ${limit}
      for update skip locked)`)
  return rowCount ?? 0
}
