import { type Db, many, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { DifferentRow } from '../types.ts'
import { type ComparedRow, type RangeQuery, toDifferent } from './ticket-store.ts'

/** Compares payments with the ledger, with their pages and charges, and with what went back. */

/**
 * Finds payments that the ledger does not have, and those of another amount than their page. Each
 * top-up must be one credit of the same amount.
 */
export async function paymentDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with own as (
      select user_id, id, purpose, amount_cents, fee_cents, credit_id, checkout_id
      from payments
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    ), figures as (
      select p.user_id, p.id, 'booked_attos' as name, g.amount_attos as stored, trunc(p.amount_cents * 10::numeric ^ 16) as expected
      from own p
      left join grants g on g.app_id = ${appId} and g.user_id = p.user_id and g.id = p.credit_id
      where p.purpose = 'top_up'
      union all
      select p.user_id, p.id, f.name, f.stored, f.expected
      from own p
      left join checkouts c on c.app_id = ${appId} and c.id = p.checkout_id
      cross join lateral (values ('amount_cents', p.amount_cents, c.amount_cents), ('fee_cents', p.fee_cents, c.fee_cents))
        as f (name, stored, expected)
      where p.checkout_id is not null
    )
    select f.user_id, u.external_user_id, jsonb_build_object('payment_id', f.id::text) as key,
           case when f.stored is not null then jsonb_build_object(f.name, f.stored::text) end as stored,
           jsonb_build_object(f.name, f.expected::text) as expected
    from figures f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    where f.stored is distinct from f.expected
    order by f.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds returns that the ledger does not have, and payments of which more went back, or came again,
 * than they have. A booked return of a top-up must be a correction of the same amount, any other
 * one an entry of the same amount.
 */
export async function returnDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with returned as (
      select r.user_id, r.id, r.payment_id, r.kind, r.booked_at, p.credit_id, p.amount_cents as paid,
             case when r.kind in ('refund', 'dispute') then 1 else -1 end * r.amount_cents as cents
      from payment_returns r
      join payments p on p.app_id = ${appId} and p.id = r.payment_id
      where r.app_id = ${appId} and r.user_id > ${after} and r.user_id <= ${upTo}
    ), figures as (
      select r.user_id, jsonb_build_object('return_id', r.id::text) as key, 'booked_attos' as name,
             case when r.credit_id is null then e.collected else a.amount_attos end as stored,
             trunc(-r.cents * 10::numeric ^ 16) as expected
      from returned r
      left join adjustments a on a.app_id = ${appId} and a.user_id = r.user_id and a.id = r.id
      cross join lateral (
        select sum(collected_attos) as collected
        from ledger_entries
        where app_id = ${appId} and user_id = r.user_id and kind = 'payment' and cause_id = r.id) e
      where r.booked_at is not null
      union all
      select user_id, jsonb_build_object('payment_id', payment_id::text), name, amount, least(greatest(amount, 0), max(paid))
      from returned
      cross join lateral (values (case when kind like 'refund%' then 'refunded_cents' else 'disputed_cents' end)) as n (name)
      cross join lateral (
        select sum(amount_cents * case when kind in ('refund', 'dispute') then 1 else -1 end) as amount
        from payment_returns
        where app_id = ${appId} and payment_id = returned.payment_id and (kind like 'refund%') = (name = 'refunded_cents')) s
      group by user_id, payment_id, name, amount
    )
    select f.user_id, u.external_user_id, f.key,
           case when f.stored is not null then jsonb_build_object(f.name, f.stored::text) end as stored,
           jsonb_build_object(f.name, f.expected::text) as expected
    from figures f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    where f.stored is distinct from f.expected
    order by f.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds charges of another amount than their invoice or plan order, and charges that succeeded
 * without a payment of the same amount and fee.
 */
export async function attemptDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with figures as (
      select a.user_id, a.id, f.name, f.stored, f.expected
      from payment_attempts a
      left join collections c on a.purpose = 'invoice' and c.app_id = ${appId} and c.id = a.subject_id
      left join invoices i on i.app_id = ${appId} and i.id = c.invoice_id
      left join plan_orders o on a.purpose = 'plan' and o.app_id = ${appId} and o.id = a.subject_id
      left join payments p on p.app_id = ${appId} and p.processor_id = a.processor_id
      cross join lateral (
        select 'amount_cents' as name, a.amount_cents as stored, coalesce(i.total_cents, o.amount_cents) as expected
        union all
        select n.name, n.stored, n.expected
        from (values ('paid_cents', p.amount_cents, a.amount_cents), ('fee_cents', p.fee_cents, a.fee_cents))
          as n (name, stored, expected)
        where a.state = 'succeeded') f
      where a.app_id = ${appId} and a.user_id > ${after} and a.user_id <= ${upTo}
    )
    select f.user_id, u.external_user_id, jsonb_build_object('attempt_id', f.id::text) as key,
           case when f.stored is not null then jsonb_build_object(f.name, f.stored::text) end as stored,
           jsonb_build_object(f.name, f.expected::text) as expected
    from figures f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    where f.stored is distinct from f.expected
    order by f.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds payments whose fee is not collected from an owner of the app. Reads the entries of the owner
 * first, and those of all owners only for payments that it does not have, because an app may have
 * had another owner.
 */
export async function feeDifferences(db: Db, app: AppId, limit: number): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with collected as materialized (
      select e.user_id, e.cause_id, sum(e.collected_attos) as amount
      from app_payers a
      cross join platform_app f
      join end_users u on u.app_id = f.app_id and u.external_user_id = 'account:' || a.account_id
      join ledger_entries e on e.app_id = u.app_id and e.user_id = u.id and e.kind = 'payment'
      where a.app_id = ${app}
      group by e.user_id, e.cause_id
    ), unequal as materialized (
      select p.user_id, p.id, trunc(p.fee_cents * 10::numeric ^ 16) as fee
      from payments p
      left join collected c on c.cause_id = p.id and c.user_id <> p.user_id
      where p.app_id = ${app} and coalesce(c.amount, 0) <> p.fee_cents * 10::numeric ^ 16
    ), taken as materialized (
      select p.user_id, p.id, sum(e.collected_attos) as amount
      from unequal p
      cross join platform_app f
      join ledger_entries e on e.app_id = f.app_id and e.cause_id = p.id and e.kind = 'payment' and e.user_id <> p.user_id
      group by p.user_id, p.id
    )
    select p.user_id, u.external_user_id, jsonb_build_object('payment_id', p.id::text) as key,
           jsonb_build_object('fee_attos', p.fee::text) as stored, jsonb_build_object('fee_attos', coalesce(t.amount, 0)::text) as expected
    from unequal p
    left join end_users u on u.app_id = ${app} and u.id = p.user_id
    left join taken t on t.user_id = p.user_id and t.id = p.id
    where coalesce(t.amount, 0) <> p.fee
    order by p.user_id, p.id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}
