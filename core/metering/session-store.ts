import { type Db, many, sql } from '../lib/sql.ts'
import { decimalText } from '../lib/decimal.ts'
import { plainArray, textArray } from '../lib/arrays.ts'
import { multirange } from './sequences.ts'
import type { SessionSums } from './sums.ts'

/** Sequence numbers that had come before, of one of the given sessions. */
export interface Repeated { readonly position: number; readonly ranges: string }

/**
 * Adds sums to their sessions, which are given in the order of their key. Returns which of their sequence numbers had
 * come before: tickets of a replayed state, or of another session under the same 32-bit id.
 *
 * What another transaction adds at this very moment is not among the returned; `replayed_count`, which is worked out
 * on the locked row, has it.
 */
export async function addSessions(db: Db, sums: readonly SessionSums[]): Promise<Repeated[]> {
  const column = <T>(value: (row: SessionSums) => T): T[] => sums.map(value)
  return many<Repeated>(db, sql`
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
      select b.position::integer - 1 as position, (s.seen * b.seen)::text as ranges
      from batch b
      join ticket_sessions s on s.app_id = b.app_id and s.user_id = b.user_id and s.session_id = b.session_id
      where s.seen && b.seen
    ), written as (
      insert into ticket_sessions as s (
        app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at, ticket_count,
        unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count, late_count, seen, gapped)
      select app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id,
             timestamptz 'epoch' + first_micros * interval '1 microsecond',
             timestamptz 'epoch' + last_micros * interval '1 microsecond', tickets, unpriced, fee, cost, secs, pixels,
             replayed, late, seen, seen <> int8multirange(int8range(0, upper(seen)))
      from batch
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
            then (select sum(upper(r) - lower(r)) from unnest(s.seen * excluded.seen) as r)
            else 0 end,
          late_count = s.late_count + excluded.late_count,
          seen = s.seen + excluded.seen,
          gapped = s.seen + excluded.seen
            <> int8multirange(int8range(0, greatest(upper(s.seen), upper(excluded.seen))))
    )
    select position, ranges
    from repeated`)
}
