import { type Db, many, sql } from '../../lib/sql.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import type { DifferentRow, UserRange } from '../types.ts'
import { type ComparedRow, type RangeQuery, toDifferent } from './ticket-store.ts'

/** Compares invoices with their lines, with each other, with payments and with the ledger. */

/** Finds issuers with gaps in their numbers, or with another last number than was taken. */
export async function numberDifferences(db: Db, app: AppId): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    select null as user_id, null as external_user_id, jsonb_build_object('numbers', k.kind) as key,
           jsonb_build_object('count', i.count::text, 'last', i.last::text) as stored,
           jsonb_build_object('count', n.last::text, 'last', n.last::text) as expected
    from (values ('invoice'), ('credit_note')) as k (kind)
    cross join lateral (
      select count(*) as count, coalesce(max(number), 0) as last
      from invoices
      where app_id = ${app} and kind = k.kind) i
    cross join lateral (
      select coalesce(max(case k.kind when 'invoice' then last_invoice else last_credit_note end), 0) as last
      from invoice_numbers
      where app_id = ${app}) n
    where i.count <> n.last or i.last <> n.last
    union all
    select user_id, null, jsonb_build_object('invoice', id::text), jsonb_build_object('kind', kind), jsonb_build_object('kind', null)
    from invoices
    where app_id = ${app} and kind not in ('invoice', 'credit_note')`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds documents whose amounts do not add up, that do not continue the document before, and that
 * have another user, plane, period or time than their facts.
 */
export async function invoiceDifferences(
  db: Db,
  { appId: app, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with documents as (
      select i.*,
             coalesce(max(through_seq) over earlier, 0) as expected_from,
             coalesce(sum(carried_attos - carried_in_attos) filter (where kind = 'invoice') over earlier, 0) as carried_before
      from invoices i
      where app_id = ${app} and user_id > ${after} and user_id <= ${upTo}
      window earlier as (partition by user_id, kind order by number rows between unbounded preceding and 1 preceding)
    ), compared as (
      select d.*, l.amount, l.count, l.last, l.strangers,
             d.carried_before + n.before as carried_least, d.carried_before + n.through as carried_most,
             p.ends_at as period_ends_at, case when a.is_test then 'test' else 'live' end as app_plane,
             to_timestamp(('x' || left(replace(d.id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) as named_at
      from documents d
      join apps a on a.id = d.app_id
      left join periods p on p.app_id = ${app} and p.user_id = d.user_id and p.starts_at = d.period_start
      cross join lateral (
        select coalesce(sum(amount_attos), 0) as amount, count(*) as count, coalesce(max(position), 0) as last,
               count(*) filter (where user_id <> d.user_id) as strangers
        from invoice_lines
        where app_id = ${app} and invoice_id = d.id) l
      cross join lateral (
        select coalesce(sum(carried_attos - carried_in_attos) filter (where issued_at < d.issued_at), 0) as before,
               coalesce(sum(carried_attos - carried_in_attos), 0) as through
        from invoices
        where app_id = ${app} and user_id = d.user_id and kind = 'credit_note' and issued_at <= d.issued_at) n
    )
    select c.user_id, u.external_user_id, jsonb_build_object('invoice', c.id::text) as key, f.stored, f.expected
    from compared c
    left join end_users u on u.app_id = c.app_id and u.id = c.user_id
    cross join lateral (
      select jsonb_build_object('lines_attos', c.amount::text, 'positions', c.last::text, 'foreign_lines', c.strangers::text) as stored,
             jsonb_build_object('lines_attos', (c.price_attos + c.debt_attos)::text, 'positions', c.count::text,
                                'foreign_lines', '0') as expected
      where c.amount <> c.price_attos + c.debt_attos or c.last <> c.count or c.strangers > 0
      union all
      select jsonb_build_object('total_cents', c.total_cents::text),
             jsonb_build_object('total_cents', trunc((c.price_attos + c.debt_attos + c.carried_in_attos - c.carried_attos) / 10::numeric ^ 16, 2)::text)
      where c.price_attos + c.debt_attos + c.carried_in_attos <> c.total_cents * 10::numeric ^ 16 + c.carried_attos
      union all
      select jsonb_build_object('from_seq', c.from_seq::text), jsonb_build_object('from_seq', c.expected_from::text)
      where c.kind = 'invoice' and c.from_seq <> c.expected_from
      union all
      select jsonb_build_object('carried_in_attos', c.carried_in_attos::text),
             jsonb_build_object('carried_in_attos', c.carried_most::text)
      where c.kind = 'invoice' and c.carried_in_attos not in (c.carried_least, c.carried_most)
        and not (c.carried_in_attos = 0 and c.from_seq = c.through_seq)
      union all
      select jsonb_build_object('carried_attos', c.carried_attos::text), jsonb_build_object('carried_attos', 'less than a cent')
      where c.total_cents > 0 and c.carried_attos not between 0 and 10::numeric ^ 16 - 1
      union all
      select jsonb_build_object('invoice_id', c.invoice_id::text), jsonb_build_object('invoice_id', null)
      where c.kind = 'invoice' and c.invoice_id is not null
      union all
      select jsonb_build_object('plane', c.plane), jsonb_build_object('plane', c.app_plane)
      where c.plane <> c.app_plane
      union all
      select jsonb_build_object('period_end', c.period_end::text), jsonb_build_object('period_end', c.period_ends_at::text)
      where c.period_ends_at is distinct from c.period_end
      union all
      select jsonb_build_object('issued_at', c.issued_at::text), jsonb_build_object('issued_at', c.named_at::text)
      where c.named_at <> c.issued_at) f
    order by c.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds payments that differ from their invoice, and payments, voids and credits that the ledger
 * does not have. A payment collects the total of its invoice less its prices.
 */
export async function settledDifferences(
  db: Db,
  { appId: app, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with settled as (
      select p.user_id, p.id, p.amount_cents::text as amount, i.total_cents::text as amount_expected, i.user_id as other,
             i.total_cents * 10::numeric ^ 16 - i.price_attos as collected
      from payments p
      left join invoices i on i.app_id = ${app} and i.id = p.invoice_id and i.kind = 'invoice'
      where p.app_id = ${app} and p.user_id > ${after} and p.user_id <= ${upTo} and p.invoice_id is not null
      union all
      select n.user_id, n.id, case n.reason when 'void' then n.total_cents end::text,
             case n.reason when 'void' then -i.total_cents end::text, i.user_id,
             case when n.reason <> 'void' then -n.total_cents * 10::numeric ^ 16
                  else greatest(0, i.total_cents * 10::numeric ^ 16 - i.price_attos) end
      from invoices n
      left join invoices i on i.app_id = ${app} and i.id = n.invoice_id and i.kind = 'invoice'
      where n.app_id = ${app} and n.user_id > ${after} and n.user_id <= ${upTo} and n.kind = 'credit_note'
    ), compared as (
      select s.*, coalesce(e.collected, 0) as booked
      from settled s
      cross join lateral (
        select sum(collected_attos) as collected
        from ledger_entries
        where app_id = ${app} and user_id = s.user_id and kind = 'payment' and cause_id = s.id) e
    )
    select c.user_id, u.external_user_id, jsonb_build_object('settled_by', c.id::text) as key,
           jsonb_build_object('amount', c.amount, 'user', c.user_id::text, 'collected_attos', trunc(c.booked)::text) as stored,
           jsonb_build_object('amount', c.amount_expected, 'user', c.other::text, 'collected_attos', trunc(c.collected)::text) as expected
    from compared c
    left join end_users u on u.app_id = ${app} and u.id = c.user_id
    where c.amount is distinct from c.amount_expected or c.other is distinct from c.user_id or c.booked is distinct from c.collected
    order by c.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds balances with another invoiced part than the sum that their open invoices would collect.
 */
export async function invoicedDifferences(
  db: Db,
  { appId: app, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with open as materialized (
      select i.user_id, sum(i.total_cents * 10::numeric ^ 16 - i.price_attos) as amount
      from invoices i
      where i.app_id = ${app} and i.user_id > ${after} and i.user_id <= ${upTo} and i.kind = 'invoice'
        and not exists (select from payments where app_id = ${app} and invoice_id = i.id)
        and not exists (select from invoices where app_id = ${app} and invoice_id = i.id and reason = 'void')
      group by i.user_id
    )
    select b.user_id, u.external_user_id, '{}'::jsonb as key, jsonb_build_object('invoiced_attos', b.invoiced_attos::text) as stored,
           jsonb_build_object('invoiced_attos', trunc(coalesce(o.amount, 0))::text) as expected
    from balances b
    left join end_users u on u.app_id = b.app_id and u.id = b.user_id
    left join open o on o.user_id = b.user_id
    where b.app_id = ${app} and b.user_id > ${after} and b.user_id <= ${upTo} and b.invoiced_attos <> coalesce(o.amount, 0)
    order by b.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

export interface IssuedRange extends UserKey {
  readonly invoiceId: string
  readonly externalUserId: string | null
  readonly fromSeq: bigint
  readonly throughSeq: bigint
  readonly lateBefore: Date | null
  readonly debt: bigint
  /** Place among the invoices of the user. */
  readonly place: number
}

/** Returns the invoices of users with the ledger entries that each covers. */
export async function issuedRanges(
  db: Db,
  { appId: app, after, upTo }: UserRange,
): Promise<IssuedRange[]> {
  const rows = await many<{
    app_id: string
    user_id: string
    id: string
    external_user_id: string | null
    from_seq: bigint
    through_seq: bigint
    late_before: Date | null
    debt_attos: string
    place: number
  }>(
    db,
    sql`
    select i.app_id, i.user_id, i.id, u.external_user_id, i.from_seq, i.through_seq, i.debt_attos,
           max(i.period_start) filter (where i.through_seq > i.from_seq) over earlier as late_before,
           (row_number() over (partition by i.user_id order by i.number))::int as place
    from invoices i
    left join end_users u on u.app_id = i.app_id and u.id = i.user_id
    where i.app_id = ${app} and i.user_id > ${after} and i.user_id <= ${upTo} and i.kind = 'invoice'
    window earlier as (partition by i.user_id order by i.number rows between unbounded preceding and 1 preceding)
    order by i.user_id, i.number`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    invoiceId: row.id,
    externalUserId: row.external_user_id,
    fromSeq: row.from_seq,
    throughSeq: row.through_seq,
    lateBefore: row.late_before,
    debt: BigInt(row.debt_attos),
    place: row.place,
  }))
}

export interface IssuedLine {
  readonly kind: string
  readonly pipeline: string | null
  readonly modelId: string | null
  readonly chargedAppId: string | null
  readonly tickets: string | null
  readonly amount: string
  readonly periodStart: string
  readonly periodEnd: string
}

/** Returns the lines of usage and corrections of invoices, in order, by invoice. */
export async function issuedLines(
  db: Db,
  app: AppId,
  invoices: readonly string[],
): Promise<ReadonlyMap<string, IssuedLine[]>> {
  const rows = await many<{
    invoice_id: string
    kind: string
    pipeline: string | null
    model_id: string | null
    charged_app_id: string | null
    tickets: bigint | null
    amount_attos: string
    period_start: Date
    period_end: Date
  }>(
    db,
    sql`
    select invoice_id, kind, pipeline, model_id, charged_app_id, tickets, amount_attos, period_start, period_end
    from invoice_lines
    where app_id = ${app} and invoice_id = any(${invoices}::uuid[]) and kind not in ('subscription', 'overage', 'proration')
    order by invoice_id, position`,
  )
  const byInvoice = Map.groupBy(rows, (row) => row.invoice_id)
  return new Map(
    [...byInvoice].map(([id, same]) => [
      id,
      same.map((row) => ({
        kind: row.kind,
        pipeline: row.pipeline,
        modelId: row.model_id,
        chargedAppId: row.charged_app_id,
        tickets: row.tickets?.toString() ?? null,
        amount: row.amount_attos,
        periodStart: row.period_start.toISOString(),
        periodEnd: row.period_end.toISOString(),
      })),
    ]),
  )
}
