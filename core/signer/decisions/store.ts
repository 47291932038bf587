import type { AppId } from '../../platform/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { DecisionRecord } from './record.ts'

export interface NewDecision {
  readonly id: string
  /** The public client id that the credential led to; null for none. */
  readonly clientId: string | null
  readonly json: string
}

/** Inserts the decisions whose ids are new. Returns the apps that have others now; null stands for no app. */
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

/** A decision about a user of the app; of any app, or none, for null. */
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

/** Which decisions are listed; null for all. */
export interface DecisionFilter {
  readonly appId: AppId | null
  /** A public client id, where the app's own id is not known. */
  readonly clientId: string | null
  readonly externalUserId: string | null
  readonly code: string | null
}

/** The newest decisions of the filter. */
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

/** Deletes at most `limit` decisions, and returns how many. */
export async function deleteRecordedBefore(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from decisions
    where ctid in (
      select ctid from decisions where recorded_at < ${before} order by recorded_at limit ${limit}
      for update skip locked)`)
  return rowCount ?? 0
}

/** Deletes decisions of an app, or of none for null, but not the newest `max`; at most `limit`, and returns how many. */
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
