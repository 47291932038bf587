import { type Db, many, sql } from '../../lib/sql.ts'
import type { UserRange } from '../types.ts'

/** The fields of an entered period that decide the price of tickets. */
export interface SoldPeriod {
  readonly startMs: number
  /** The last entry before the period. */
  readonly afterSeq: bigint
  readonly termsId: bigint
}

/** Returns the periods of users in order, by user. */
export async function soldPeriods(
  db: Db,
  { appId, after, upTo }: UserRange,
): Promise<Map<string, SoldPeriod[]>> {
  const rows = await many<{
    user_id: string
    start_ms: number
    after_seq: bigint
    terms_id: bigint
  }>(
    db,
    sql`
    select p.user_id, (extract(epoch from p.starts_at) * 1000)::float8 as start_ms, p.after_seq, v.id as terms_id
    from periods p
    join plan_versions v on v.app_id = p.app_id and v.plan_id = p.plan_id and v.version = p.plan_version
    where p.app_id = ${appId} and p.user_id > ${after} and p.user_id <= ${upTo}
    order by p.user_id, p.starts_at`,
  )
  return new Map(
    [...Map.groupBy(rows, (row) => row.user_id)].map(([user, periods]) => [
      user,
      periods.map((row) => ({
        startMs: row.start_ms,
        afterSeq: row.after_seq,
        termsId: row.terms_id,
      })),
    ]),
  )
}
