import { type Db, many, sql } from '../../lib/sql.ts'

/** What the loss watch does with sessions. */

/** Where a round over sessions goes on: their key. */
export interface SessionKey {
  readonly appId: string
  readonly userId: string
  readonly sessionId: string
}

export interface Look {
  readonly after: SessionKey
  readonly at: Date
  /** What was missing at a look before this, and still is, is lost. */
  readonly before: Date
  readonly limit: number
}

/**
 * Looks at the next sessions, in the order of their key, whose holes are due, and says what is lost of each. Locks only
 * what nobody else is writing: the next round has the others. Returns how many tickets more are lost, and where to go on.
 */
export async function look(
  db: Db,
  { after, at, before, limit }: Look,
): Promise<{ lost: bigint; last: SessionKey | null }> {
  const rows = await many<{ app_id: string; user_id: string; session_id: string; lost: bigint }>(
    db,
    sql`
    with locked as materialized (
      select app_id, user_id, session_id, seen, lost, lost_count, suspected, closed_below,
             (suspected_at is null or suspected_at <= ${before}) as due
      from ticket_sessions
      where watched
        and (app_id, user_id, session_id) > (${after.appId}::uuid, ${after.userId}::uuid, ${after.sessionId})
        and (suspected_at is null or suspected_at <= ${before} or lost && seen)
      order by app_id, user_id, session_id
      limit ${limit}
      for no key update skip locked
    ), holes as materialized (
      select l.*, int8multirange(int8range(least(closed_below, upper(seen)), upper(seen))) - seen as missing
      from locked l
    ), found as materialized (
      select h.*, missing * case when due then lost + suspected else lost end as now_lost
      from holes h
    ), counted as materialized (
      select f.*, (select coalesce(sum(upper(r) - lower(r)), 0) from unnest(now_lost) as r)::bigint as now_lost_count
      from found f
    ), written as (
      update ticket_sessions s
      set lost = c.now_lost, lost_count = c.now_lost_count, watched = c.now_lost <> c.missing,
          suspected = case when c.due then c.missing else s.suspected end,
          suspected_at = case when c.due then ${at}::timestamptz else s.suspected_at end,
          irregular = s.irregular or c.now_lost_count > 0
      from counted c
      where s.app_id = c.app_id and s.user_id = c.user_id and s.session_id = c.session_id
    )
    select app_id, user_id, session_id, greatest(now_lost_count - lost_count, 0) as lost
    from counted
    order by app_id, user_id, session_id`,
  )
  const last = rows.at(-1)
  return {
    lost: rows.reduce((sum, row) => sum + row.lost, 0n),
    last:
      last && rows.length === limit
        ? { appId: last.app_id, userId: last.user_id, sessionId: last.session_id }
        : null,
  }
}
