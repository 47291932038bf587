import type { AppId } from '../../platform/ids.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'
import { toDifferent } from './usage-store.ts'
import type { Columns, DifferentRow } from '../types.ts'

/** Months with archived tickets whose hours are not what the archives and the tickets that are there add up to. */
export async function archiveDifferences(db: Db, app: AppId): Promise<DifferentRow[]> {
  const rows = await many<{ key: Record<string, string>; stored: Columns; expected: Columns }>(
    db,
    sql`
    with archived as (
      select month, sum(tickets) as tickets, sum(fee_wei) as fee, sum(cost_attos) as cost
      from ticket_archives
      where app_id = ${app} and tickets > 0
      group by month
    )
    select jsonb_build_object('month', to_char(a.month, 'YYYY-MM')) as key,
           jsonb_build_object('ticket_count', h.tickets::text, 'unpriced_count', h.unpriced::text, 'fee_wei', h.fee::text,
                              'cost_attos', h.cost::text) as stored,
           jsonb_build_object('ticket_count', (a.tickets + t.tickets)::text, 'unpriced_count', t.unpriced::text,
                              'fee_wei', (a.fee + t.fee)::text, 'cost_attos', (a.cost + t.cost)::text) as expected
    from archived a
    cross join lateral (
      select coalesce(sum(ticket_count), 0) as tickets, coalesce(sum(unpriced_count), 0) as unpriced,
             coalesce(sum(fee_wei), 0) as fee, coalesce(sum(cost_attos), 0) as cost
      from usage_hourly
      where app_id = ${app} and hour >= a.month::timestamp at time zone 'UTC'
        and hour < (a.month + interval '1 month') at time zone 'UTC') h
    cross join lateral (
      select count(*) as tickets, count(*) filter (where cost_attos is null) as unpriced, coalesce(sum(fee_wei), 0) as fee,
             coalesce(sum(cost_attos), 0) as cost
      from tickets
      where app_id = ${app} and signed_at >= a.month::timestamp at time zone 'UTC'
        and signed_at < (a.month + interval '1 month') at time zone 'UTC') t
    where (h.tickets, h.unpriced, h.fee, h.cost) is distinct from
          (a.tickets + t.tickets, t.unpriced, a.fee + t.fee, a.cost + t.cost)
    order by a.month
    limit 1200`,
  )
  return rows.map((row) => toDifferent({ ...row, user_id: null, external_user_id: null }))
}

/** Envelopes entered, and tickets that they became, those in archives included (invariant 2). */
export async function countEnvelopes(db: Db): Promise<{ envelopes: bigint; tickets: bigint }> {
  return one(
    db,
    sql`
    select (select count(*) from envelopes) as envelopes,
           (select count(*) from tickets) + (select coalesce(sum(tickets), 0)::bigint from ticket_archives) as tickets`,
  )
}
