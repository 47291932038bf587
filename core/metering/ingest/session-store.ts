import { type Db, type Statement, many, one, sql } from '../../lib/sql.ts'
import { decimalText } from '../../lib/decimal.ts'
import { plainArray, textArray } from '../../lib/arrays.ts'
import { multirange } from './sequences.ts'
import type { SessionSums } from '../batch/sums.ts'

/** Sequence numbers that had come before, of one of the given sessions. */
export interface Repeated {
  readonly position: number
  readonly ranges: string
}

/** A session that has more ranges of sequence numbers than are worth keeping. */
export interface Overgrown {
  readonly app_id: string
  readonly user_id: string
  readonly session_id: string
}

interface Found {
  readonly position: number | null
  readonly ranges: string | null
  readonly app_id: string | null
  readonly user_id: string | null
  readonly session_id: string | null
}

/** Ranges that a session may have, and how many of the newest are kept when it has more. */
export const maxRanges = 1_000
const keptRanges = 500
// A multirange in memory: 24 bytes, then for each range its two ends of eight bytes, a flag and an offset.
const maxRangeBytes = 24 + maxRanges * 21

/** What adds sums to their sessions, which are given in the order of their key. */
export function addingSessions(sums: readonly SessionSums[]): Statement {
  const column = <T>(value: (row: SessionSums) => T): T[] => sums.map(value)
  return sql`
    with batch as materialized (
      select *
      from unnest(
        ${plainArray(column((s) => s.subject.appId))}::uuid[], ${plainArray(column((s) => s.subject.userId))}::uuid[],
        ${textArray(column((s) => s.session.sessionId))}::text[], ${textArray(column((s) => s.session.manifestId))}::text[],
        ${textArray(column((s) => s.session.appName))}::text[], ${textArray(column((s) => s.session.feature.pipeline))}::text[],
        ${textArray(column((s) => s.session.feature.modelId))}::text[], ${plainArray(column((s) => s.firstMicros))}::bigint[],
        ${plainArray(column((s) => s.lastMicros))}::bigint[], ${plainArray(column((s) => s.tickets))}::bigint[],
        ${plainArray(column((s) => s.unpriced))}::bigint[], ${plainArray(column((s) => s.fee))}::numeric[],
        ${plainArray(column((s) => s.cost))}::numeric[], ${plainArray(column((s) => decimalText(s.billableSecs)))}::numeric[],
        ${plainArray(column((s) => s.pixels))}::numeric[], ${plainArray(column((s) => s.late))}::bigint[],
        ${textArray(column((s) => multirange(s.sequences)))}::int8multirange[],
        ${plainArray(column((s) => s.tickets - new Set(s.sequences).size))}::bigint[]) with ordinality
        as b (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, first_micros, last_micros, tickets,
              unpriced, fee, cost, secs, pixels, late, seen, replayed, position)
    ), repeated as (
      select b.position::integer - 1 as position,
             (s.seen * b.seen - int8multirange(int8range(0, s.closed_below)))::text as ranges
      from batch b
      join ticket_sessions s on s.app_id = b.app_id and s.user_id = b.user_id and s.session_id = b.session_id
      where s.seen && b.seen
    ), written as (
      insert into ticket_sessions as s (
        app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at, ticket_count,
        unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count, late_count, seen, gapped, watched,
        irregular)
      select app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id,
             timestamptz 'epoch' + first_micros * interval '1 microsecond',
             timestamptz 'epoch' + last_micros * interval '1 microsecond', tickets, unpriced, fee, cost, secs, pixels,
             replayed, late, seen, gapped, gapped, replayed > 0 or late > 0
      from batch
      cross join lateral (select seen <> int8multirange(int8range(0, upper(seen))) as gapped) g
      order by position
      on conflict (app_id, user_id, session_id) do update
      set started_at = least(s.started_at, excluded.started_at),
          last_at = greatest(s.last_at, excluded.last_at),
          ticket_count = s.ticket_count + excluded.ticket_count,
          unpriced_count = s.unpriced_count + excluded.unpriced_count,
          fee_wei = s.fee_wei + excluded.fee_wei,
          cost_attos = s.cost_attos + excluded.cost_attos,
          billable_secs = s.billable_secs + excluded.billable_secs,
          pixels = s.pixels + excluded.pixels,
          replayed_count = s.replayed_count + excluded.replayed_count + case
            when s.seen && excluded.seen
            then (select coalesce(sum(upper(r) - lower(r)), 0)
                  from unnest(s.seen * excluded.seen - int8multirange(int8range(0, s.closed_below))) as r)
            else 0 end,
          late_count = s.late_count + excluded.late_count,
          irregular = s.irregular or excluded.irregular or s.seen && excluded.seen,
          seen = s.seen + excluded.seen,
          gapped = s.closed_below > 0 or s.seen + excluded.seen
            <> int8multirange(int8range(0, greatest(upper(s.seen), upper(excluded.seen)))),
          watched = case
            when s.seen + excluded.seen = int8multirange(int8range(0, greatest(upper(s.seen), upper(excluded.seen))))
            then s.lost_count > 0
            -- Tickets that go on where the session was leave its old holes as they are.
            else s.watched or not s.gapped or excluded.seen - s.seen
              <> int8multirange(int8range(upper(s.seen), greatest(upper(s.seen), upper(excluded.seen)))) end,
          closed_count = case
            when s.closed_count > 0 and lower(excluded.seen) < s.closed_below
            then greatest(0, s.closed_count - (
              select coalesce(sum(upper(r) - lower(r)), 0)
              from unnest(excluded.seen * int8multirange(int8range(0, s.closed_below))) as r))
            else s.closed_count end
      returning app_id, user_id, session_id, pg_column_size(seen) as bytes
    )
    select position, ranges, null::uuid as app_id, null::uuid as user_id, null::text as session_id
    from repeated
    union all
    select null, null, app_id, user_id, session_id
    from written
    where bytes > ${maxRangeBytes}`
}

/**
 * Adds sums to their sessions. Returns which of their sequence numbers had come before: tickets of a replayed state, or
 * of another session under the same 32-bit id.
 *
 * What another transaction adds at this very moment is not among the returned; `replayed_count`, which is worked out
 * on the locked row, has it.
 */
export async function addSessions(
  db: Db,
  adding: Statement,
): Promise<{ repeated: Repeated[]; overgrown: Overgrown[] }> {
  const found = await many<Found>(db, adding)
  return {
    repeated: found.flatMap(({ position, ranges }) =>
      position === null || ranges === null ? [] : [{ position, ranges }],
    ),
    overgrown: found.flatMap(({ app_id, user_id, session_id }) =>
      app_id === null || user_id === null || session_id === null
        ? []
        : [{ app_id, user_id, session_id }],
    ),
  }
}

/**
 * Gives up the oldest holes of sessions that have too many: they are lost, and only their number is kept. Each ticket
 * that comes for that part of a session still lowers the number; whether it came before cannot be told any more.
 * Returns how many of the holes were not lost before. The rows are locked by whoever wrote them just before.
 */
export async function closeHoles(db: Db, sessions: readonly Overgrown[]): Promise<bigint> {
  const { closed } = await one<{ closed: bigint }>(
    db,
    sql`
    with given as materialized (
      select s.app_id, s.user_id, s.session_id, cut.at, (
        select coalesce(sum(upper(r) - lower(r)), 0)
        from unnest(int8multirange(int8range(s.closed_below, cut.at)) - s.seen) as r) as closed, (
        select coalesce(sum(upper(r) - lower(r)), 0)
        from unnest(s.lost * int8multirange(int8range(0, cut.at))) as r) as known
      from unnest(
        ${plainArray(sessions.map((s) => s.app_id))}::uuid[], ${plainArray(sessions.map((s) => s.user_id))}::uuid[],
        ${textArray(sessions.map((s) => s.session_id))}::text[]) as g (app_id, user_id, session_id)
      join ticket_sessions s on s.app_id = g.app_id and s.user_id = g.user_id and s.session_id = g.session_id
      cross join lateral (
        select lower(r) as at from unnest(s.seen) as r order by lower(r) desc offset ${keptRanges - 1} limit 1) cut
    ), written as (
      update ticket_sessions s
      set seen = s.seen + int8multirange(int8range(0, given.at)), closed_below = given.at,
          closed_count = s.closed_count + given.closed, gapped = true, watched = true, irregular = true,
          lost = s.lost - int8multirange(int8range(0, given.at)), lost_count = s.lost_count - given.known
      from given
      where s.app_id = given.app_id and s.user_id = given.user_id and s.session_id = given.session_id
    )
    select coalesce(sum(greatest(closed - known, 0)), 0)::bigint as closed
    from given`,
  )
  return closed
}
