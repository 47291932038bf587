import { type Db, many, sql } from '../../lib/sql.ts'
import type { Columns, DifferentRow, UserRange } from '../types.ts'

/**
 * What the derived tables of usage say against what their tickets say. Months with archived tickets are left out here:
 * `archiveDifferences` proves those as a whole.
 */

export interface Asked extends UserRange {
  /** Starts of the months with archived tickets. */
  readonly archived: readonly string[]
  readonly limit: number
}

interface Row {
  user_id: string | null
  external_user_id: string | null
  key: Record<string, string>
  stored: Columns | null
  expected: Columns | null
}

export const toDifferent = (row: Row): DifferentRow => ({
  userId: row.user_id,
  externalUserId: row.external_user_id,
  key: row.key,
  stored: row.stored,
  expected: row.expected,
})

/** Hours whose sums are not those of their tickets. */
export async function hourDifferences(
  db: Db,
  { appId, after, upTo, archived, limit }: Asked,
): Promise<DifferentRow[]> {
  const rows = await many<Row>(
    db,
    sql`
    with expected as (
      select user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, sum(billable_secs) as billable_secs, sum(pixels) as pixels
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
        and date_trunc('month', signed_at, 'UTC') <> all (${archived}::timestamptz[])
      group by user_id, date_trunc('hour', signed_at, 'UTC'), pipeline, model_id
    ), stored as (
      select user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels
      from usage_hourly
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
        and date_trunc('month', hour, 'UTC') <> all (${archived}::timestamptz[])
    )
    select user_id, u.external_user_id,
           jsonb_build_object('hour', to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                              'pipeline', pipeline, 'model_id', model_id) as key,
           case when s.ticket_count is not null then jsonb_build_object(
             'ticket_count', s.ticket_count::text, 'unpriced_count', s.unpriced_count::text, 'fee_wei', s.fee_wei::text,
             'cost_attos', s.cost_attos::text, 'billable_secs', trim_scale(s.billable_secs)::text,
             'pixels', s.pixels::text) end as stored,
           case when e.ticket_count is not null then jsonb_build_object(
             'ticket_count', e.ticket_count::text, 'unpriced_count', e.unpriced_count::text, 'fee_wei', e.fee_wei::text,
             'cost_attos', e.cost_attos::text, 'billable_secs', trim_scale(e.billable_secs)::text,
             'pixels', e.pixels::text) end as expected
    from expected e
    full join stored s using (user_id, hour, pipeline, model_id)
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where (e.ticket_count, e.unpriced_count, e.fee_wei, e.cost_attos, e.billable_secs, e.pixels) is distinct from
          (s.ticket_count, s.unpriced_count, s.fee_wei, s.cost_attos, s.billable_secs, s.pixels)
    order by user_id, hour, pipeline, model_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Sessions whose sums are not those of their tickets. A session that began in or before an archived month has lost
 * tickets to the archive and is left out.
 */
export async function sessionDifferences(
  db: Db,
  { appId, after, upTo, archived, limit }: Asked,
): Promise<DifferentRow[]> {
  const rows = await many<Row>(
    db,
    sql`
    with line as (
      select coalesce(max(month) + interval '1 month', '-infinity') as at
      from unnest(${archived}::timestamptz[]) as month
    ), expected as (
      select user_id, session_id, min(signed_at) as started_at, max(signed_at) as last_at, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, sum(billable_secs) as billable_secs, sum(pixels) as pixels,
             count(*) filter (where replayed) as replayed_count,
             range_agg(int8range(sequence_number, sequence_number + 1)) as seen,
             range_agg(int8range(sequence_number, sequence_number + 1))
               <> int8multirange(int8range(0, max(sequence_number) + 1)) as gapped
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      group by user_id, session_id
    ), stored as (
      select user_id, session_id, started_at, last_at, ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs,
             pixels, replayed_count, seen, gapped, closed_below > 0 as closed
      from ticket_sessions
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    )
    select user_id, u.external_user_id, jsonb_build_object('session_id', session_id) as key,
           case when s.ticket_count is not null then jsonb_build_object(
             'started_at', s.started_at::text, 'last_at', s.last_at::text, 'ticket_count', s.ticket_count::text,
             'unpriced_count', s.unpriced_count::text, 'fee_wei', s.fee_wei::text, 'cost_attos', s.cost_attos::text,
             'billable_secs', trim_scale(s.billable_secs)::text, 'pixels', s.pixels::text,
             'replayed_count', s.replayed_count::text, 'gapped', s.gapped::text,
             'seen', left(s.seen::text, 200), 'seen_md5', md5(s.seen::text)) end as stored,
           case when e.ticket_count is not null then jsonb_build_object(
             'started_at', e.started_at::text, 'last_at', e.last_at::text, 'ticket_count', e.ticket_count::text,
             'unpriced_count', e.unpriced_count::text, 'fee_wei', e.fee_wei::text, 'cost_attos', e.cost_attos::text,
             'billable_secs', trim_scale(e.billable_secs)::text, 'pixels', e.pixels::text,
             'replayed_count', e.replayed_count::text, 'gapped', e.gapped::text,
             'seen', left(e.seen::text, 200), 'seen_md5', md5(e.seen::text)) end as expected
    from expected e
    full join stored s using (user_id, session_id)
    cross join line
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where coalesce(s.started_at, e.started_at) >= line.at
      and (e.started_at, e.last_at, e.ticket_count, e.unpriced_count, e.fee_wei, e.cost_attos, e.billable_secs, e.pixels,
           case when not s.closed then e.replayed_count end, case when not s.closed then e.seen end,
           case when not s.closed then e.gapped end) is distinct from
          (s.started_at, s.last_at, s.ticket_count, s.unpriced_count, s.fee_wei, s.cost_attos, s.billable_secs, s.pixels,
           -- A session that gave up its oldest holes knows only their number.
           case when not s.closed then s.replayed_count end, case when not s.closed then s.seen end,
           case when not s.closed then s.gapped end)
    order by user_id, session_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/** Tickets whose cost is not their fee at their rate, or whose rate is not of their own time (decision 31). */
export async function priceDifferences(
  db: Db,
  { appId, after, upTo, limit }: Asked,
): Promise<DifferentRow[]> {
  const rows = await many<Row>(
    db,
    sql`
    select t.user_id, u.external_user_id, jsonb_build_object('event_id', t.event_id) as key,
           jsonb_build_object('cost_attos', t.cost_attos::text, 'rate_not_later_than_ticket',
                              coalesce(r.observed_at <= t.signed_at, false)::text) as stored,
           jsonb_build_object('cost_attos', div(t.fee_wei * r.usd_attos_per_eth + 999999999999999999, 1000000000000000000)::text,
                              'rate_not_later_than_ticket', 'true') as expected
    from tickets t
    left join rates r on r.id = t.rate_id
    left join end_users u on u.app_id = t.app_id and u.id = t.user_id
    where t.app_id = ${appId} and t.user_id > ${after} and t.user_id <= ${upTo} and t.cost_attos is not null
      and (r.observed_at <= t.signed_at
           and t.cost_attos = div(t.fee_wei * r.usd_attos_per_eth + 999999999999999999, 1000000000000000000)) is not true
    order by t.user_id, t.event_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/** Tickets whose envelope is not entered: their event could become a ticket once more. */
export async function envelopeDifferences(
  db: Db,
  { appId, after, upTo, limit }: Asked,
): Promise<DifferentRow[]> {
  const rows = await many<Row>(
    db,
    sql`
    select t.user_id, u.external_user_id, jsonb_build_object('event_id', t.event_id) as key,
           null as stored, jsonb_build_object('entered', 'true') as expected
    from tickets t
    left join end_users u on u.app_id = t.app_id and u.id = t.user_id
    where t.app_id = ${appId} and t.user_id > ${after} and t.user_id <= ${upTo}
      and not exists (
        select 1
        from envelopes e
        where e.key = case
          when t.event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.event_id::uuid
          else left(encode(sha256(convert_to(t.event_id, 'UTF8')), 'hex'), 32)::uuid end)
    order by t.user_id, t.event_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}
