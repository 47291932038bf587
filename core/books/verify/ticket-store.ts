import { type Db, many, one, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Columns, DifferentRow, UserRange } from '../types.ts'

/**
 * Compares the tables derived from tickets with the tickets. Skips months with archived tickets,
 * which `archiveDifferences` checks as a whole.
 */

export interface RangeQuery extends UserRange {
  /** Starts of the months with archived tickets. */
  readonly archived: readonly string[]
  readonly limit: number
}

export interface ComparedRow {
  user_id: string | null
  external_user_id: string | null
  key: Record<string, string>
  stored: Columns | null
  expected: Columns | null
}

export const toDifferent = (row: ComparedRow): DifferentRow => ({
  userId: row.user_id,
  externalUserId: row.external_user_id,
  key: row.key,
  stored: row.stored,
  expected: row.expected,
})

/** Finds hours that differ from the sums of their tickets. */
export async function hourDifferences(
  db: Db,
  { appId, after, upTo, archived, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with expected as (
      select user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, coalesce(sum(retail_attos - cost_attos), 0) as markup_attos,
             coalesce(sum(platform_fee_attos), 0) as platform_fee_attos,
             coalesce(sum(platform_fee_wei), 0) as platform_fee_wei,
             sum(billable_secs) as billable_secs, sum(pixels) as pixels
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
        and date_trunc('month', signed_at, 'UTC') <> all (${archived}::timestamptz[])
      group by user_id, date_trunc('hour', signed_at, 'UTC'), pipeline, model_id
    ), stored as (
      select user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos, markup_attos,
             platform_fee_attos, platform_fee_wei, billable_secs, pixels
      from usage_hourly
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
        and date_trunc('month', hour, 'UTC') <> all (${archived}::timestamptz[])
    )
    select user_id, u.external_user_id,
           jsonb_build_object('hour', to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                              'pipeline', pipeline, 'model_id', model_id) as key,
           case when s.ticket_count is not null then jsonb_build_object(
             'ticket_count', s.ticket_count::text, 'unpriced_count', s.unpriced_count::text, 'fee_wei', s.fee_wei::text,
             'cost_attos', s.cost_attos::text, 'markup_attos', s.markup_attos::text,
             'platform_fee_attos', s.platform_fee_attos::text, 'platform_fee_wei', s.platform_fee_wei::text,
             'billable_secs', trim_scale(s.billable_secs)::text, 'pixels', s.pixels::text) end as stored,
           case when e.ticket_count is not null then jsonb_build_object(
             'ticket_count', e.ticket_count::text, 'unpriced_count', e.unpriced_count::text, 'fee_wei', e.fee_wei::text,
             'cost_attos', e.cost_attos::text, 'markup_attos', e.markup_attos::text,
             'platform_fee_attos', e.platform_fee_attos::text, 'platform_fee_wei', e.platform_fee_wei::text,
             'billable_secs', trim_scale(e.billable_secs)::text, 'pixels', e.pixels::text) end as expected
    from expected e
    full join stored s using (user_id, hour, pipeline, model_id)
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where (e.ticket_count, e.unpriced_count, e.fee_wei, e.cost_attos, e.markup_attos, e.platform_fee_attos,
           e.platform_fee_wei, e.billable_secs, e.pixels) is distinct from
          (s.ticket_count, s.unpriced_count, s.fee_wei, s.cost_attos, s.markup_attos, s.platform_fee_attos,
           s.platform_fee_wei, s.billable_secs, s.pixels)
    order by user_id, hour, pipeline, model_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds sessions that differ from the sums of their tickets. Skips sessions that began in or before
 * an archived month, because some of their tickets are in the archive.
 */
export async function sessionDifferences(
  db: Db,
  { appId, after, upTo, archived, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with boundary as (
      select coalesce(max(month) + interval '1 month', '-infinity') as at
      from unnest(${archived}::timestamptz[]) as month
    ), expected as (
      select user_id, session_id, min(signed_at) as started_at, max(signed_at) as last_at, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, coalesce(sum(retail_attos - cost_attos), 0) as markup_attos,
             coalesce(sum(platform_fee_attos), 0) as platform_fee_attos,
             coalesce(sum(platform_fee_wei), 0) as platform_fee_wei,
             sum(billable_secs) as billable_secs, sum(pixels) as pixels,
             count(*) filter (where replayed) as replayed_count,
             range_agg(int8range(sequence_number, sequence_number + 1)) as seen,
             range_agg(int8range(sequence_number, sequence_number + 1))
               <> int8multirange(int8range(0, max(sequence_number) + 1)) as gapped
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      group by user_id, session_id
    ), stored as (
      select user_id, session_id, started_at, last_at, ticket_count, unpriced_count, fee_wei, cost_attos, markup_attos,
             platform_fee_attos, platform_fee_wei, billable_secs, pixels, replayed_count, seen, gapped, closed_below > 0 as closed
      from ticket_sessions
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    )
    select user_id, u.external_user_id, jsonb_build_object('session_id', session_id) as key,
           case when s.ticket_count is not null then jsonb_build_object(
             'started_at', s.started_at::text, 'last_at', s.last_at::text, 'ticket_count', s.ticket_count::text,
             'unpriced_count', s.unpriced_count::text, 'fee_wei', s.fee_wei::text, 'cost_attos', s.cost_attos::text,
             'markup_attos', s.markup_attos::text, 'platform_fee_attos', s.platform_fee_attos::text,
             'platform_fee_wei', s.platform_fee_wei::text,
             'billable_secs', trim_scale(s.billable_secs)::text, 'pixels', s.pixels::text,
             'replayed_count', s.replayed_count::text, 'gapped', s.gapped::text,
             'seen', left(s.seen::text, 200), 'seen_md5', md5(s.seen::text)) end as stored,
           case when e.ticket_count is not null then jsonb_build_object(
             'started_at', e.started_at::text, 'last_at', e.last_at::text, 'ticket_count', e.ticket_count::text,
             'unpriced_count', e.unpriced_count::text, 'fee_wei', e.fee_wei::text, 'cost_attos', e.cost_attos::text,
             'markup_attos', e.markup_attos::text, 'platform_fee_attos', e.platform_fee_attos::text,
             'platform_fee_wei', e.platform_fee_wei::text,
             'billable_secs', trim_scale(e.billable_secs)::text, 'pixels', e.pixels::text,
             'replayed_count', e.replayed_count::text, 'gapped', e.gapped::text,
             'seen', left(e.seen::text, 200), 'seen_md5', md5(e.seen::text)) end as expected
    from expected e
    full join stored s using (user_id, session_id)
    cross join boundary
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where coalesce(s.started_at, e.started_at) >= boundary.at
      and (e.started_at, e.last_at, e.ticket_count, e.unpriced_count, e.fee_wei, e.cost_attos, e.markup_attos,
           e.platform_fee_attos, e.platform_fee_wei, e.billable_secs, e.pixels,
           case when not s.closed then e.replayed_count end, case when not s.closed then e.seen end,
           case when not s.closed then e.gapped end) is distinct from
          (s.started_at, s.last_at, s.ticket_count, s.unpriced_count, s.fee_wei, s.cost_attos, s.markup_attos,
           s.platform_fee_attos, s.platform_fee_wei, s.billable_secs, s.pixels,
           -- A session that has closed its oldest holes knows only their number.
           case when not s.closed then s.replayed_count end, case when not s.closed then s.seen end,
           case when not s.closed then s.gapped end)
    order by user_id, session_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds tickets with a cost other than their fee at their rate, or with a rate later than the
 * ticket (decision 31).
 */
export async function priceDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    select t.user_id, u.external_user_id, jsonb_build_object('event_id', t.event_id) as key,
           jsonb_build_object('cost_attos', t.cost_attos::text, 'rate_not_later_than_ticket',
                              coalesce(r.observed_at <= (t.signed_at - coalesce(t.clock_ms, 0) * interval '1 millisecond'), false)::text) as stored,
           jsonb_build_object('cost_attos', div(t.fee_wei * r.usd_attos_per_eth, 1000000000000000000)::text,
                              'rate_not_later_than_ticket', 'true') as expected
    from tickets t
    left join rates r on r.id = t.rate_id
    left join end_users u on u.app_id = t.app_id and u.id = t.user_id
    where t.app_id = ${appId} and t.user_id > ${after} and t.user_id <= ${upTo} and t.cost_attos is not null
      and (r.observed_at <= (t.signed_at - coalesce(t.clock_ms, 0) * interval '1 millisecond')
           and t.cost_attos = div(t.fee_wei * r.usd_attos_per_eth, 1000000000000000000)) is not true
    order by t.user_id, t.event_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/** Finds tickets without an envelope, because their event could become a ticket again. */
export async function envelopeDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with keys as materialized (
      select user_id, event_id, case
        when event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then event_id::uuid
        else left(encode(sha256(convert_to(event_id, 'UTF8')), 'hex'), 32)::uuid end as key
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    )
    select t.user_id, u.external_user_id, jsonb_build_object('event_id', t.event_id) as key,
           null as stored, jsonb_build_object('entered', 'true') as expected
    from keys t
    left join end_users u on u.app_id = ${appId} and u.id = t.user_id
    where not exists (select 1 from envelopes e where e.key = t.key)
    order by t.user_id, t.event_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds months with archived tickets where the hours differ from the sum of the archives and the
 * tickets still in the table.
 */
export async function archiveDifferences(db: Db, app: AppId): Promise<DifferentRow[]> {
  const rows = await many<Pick<ComparedRow, 'key' | 'stored' | 'expected'>>(
    db,
    sql`
    with archived as (
      select month, sum(tickets) as tickets, sum(fee_wei) as fee, sum(cost_attos) as cost, sum(markup_attos) as markup,
             sum(platform_fee_attos) as platform_fee, sum(platform_fee_wei) as platform_wei
      from ticket_archives
      where app_id = ${app} and tickets > 0
      group by month
    )
    select jsonb_build_object('month', to_char(a.month, 'YYYY-MM')) as key,
           jsonb_build_object('ticket_count', h.tickets::text, 'unpriced_count', h.unpriced::text, 'fee_wei', h.fee::text,
                              'cost_attos', h.cost::text, 'markup_attos', h.markup::text,
                              'platform_fee_attos', h.platform_fee::text, 'platform_fee_wei', h.platform_wei::text) as stored,
           jsonb_build_object('ticket_count', (a.tickets + t.tickets)::text, 'unpriced_count', t.unpriced::text,
                              'fee_wei', (a.fee + t.fee)::text, 'cost_attos', (a.cost + t.cost)::text,
                              'markup_attos', (a.markup + t.markup)::text,
                              'platform_fee_attos', (a.platform_fee + t.platform_fee)::text,
                              'platform_fee_wei', (a.platform_wei + t.platform_wei)::text) as expected
    from archived a
    cross join lateral (
      select coalesce(sum(ticket_count), 0) as tickets, coalesce(sum(unpriced_count), 0) as unpriced,
             coalesce(sum(fee_wei), 0) as fee, coalesce(sum(cost_attos), 0) as cost,
             coalesce(sum(markup_attos), 0) as markup, coalesce(sum(platform_fee_attos), 0) as platform_fee,
             coalesce(sum(platform_fee_wei), 0) as platform_wei
      from usage_hourly
      where app_id = ${app} and hour >= a.month::timestamp at time zone 'UTC'
        and hour < (a.month + interval '1 month') at time zone 'UTC') h
    cross join lateral (
      select count(*) as tickets, count(*) filter (where cost_attos is null) as unpriced, coalesce(sum(fee_wei), 0) as fee,
             coalesce(sum(cost_attos), 0) as cost, coalesce(sum(retail_attos - cost_attos), 0) as markup,
             coalesce(sum(platform_fee_attos), 0) as platform_fee, coalesce(sum(platform_fee_wei), 0) as platform_wei
      from tickets
      where app_id = ${app} and signed_at >= a.month::timestamp at time zone 'UTC'
        and signed_at < (a.month + interval '1 month') at time zone 'UTC') t
    where (h.tickets, h.unpriced, h.fee, h.cost, h.markup, h.platform_fee, h.platform_wei) is distinct from
          (a.tickets + t.tickets, t.unpriced, a.fee + t.fee, a.cost + t.cost, a.markup + t.markup,
           a.platform_fee + t.platform_fee, a.platform_wei + t.platform_wei)
    order by a.month
    limit 1200`,
  )
  return rows.map((row) => toDifferent({ ...row, user_id: null, external_user_id: null }))
}

/** Counts envelopes and tickets, including archived ones. The two must be equal. */
export async function countEnvelopes(db: Db): Promise<{ envelopes: bigint; tickets: bigint }> {
  return one(
    db,
    sql`
    select (select count(*) from envelopes) as envelopes,
           (select count(*) from tickets) + (select coalesce(sum(tickets), 0)::bigint from ticket_archives) as tickets`,
  )
}
