import { type Db, many, sql } from '../../lib/sql.ts'
import type { DifferentRow } from '../types.ts'
import { type ComparedRow, type RangeQuery, toDifferent } from './ticket-store.ts'

/** Compares moves to plans with their prices, periods, payments and invoices. */

/**
 * Finds orders whose price no version of the plan had, or whose amount is not the price less what
 * earlier periods paid, and booked ones that began a period of another price.
 */
export async function orderDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with ordered as (
      select user_id, id, plan_id, timing, state, effective_at, price_attos, proration_attos, credit_attos,
             amount_cents, price_attos - proration_attos - credit_attos as due
      from plan_orders
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    ), figures as (
      select o.user_id, o.id, f.name, f.stored, f.expected
      from ordered o
      left join periods b on o.state = 'booked' and b.app_id = ${appId} and b.user_id = o.user_id and b.starts_at = o.effective_at
      cross join lateral (
        select price
        from (
          select 0::numeric as price
          where o.timing <> 'immediate'
          union all
          select chargeable_price_attos(price_amount, price_currency)
          from plan_versions
          where app_id = ${appId} and plan_id = o.plan_id and o.timing = 'immediate') prices
        order by price = o.price_attos desc
        limit 1) p
      cross join lateral (values
        ('price_attos', o.price_attos, case when o.state = 'booked' and o.timing = 'immediate' then b.price_attos else p.price end),
        ('amount_cents', coalesce(o.amount_cents, 0)::numeric,
         case when o.amount_cents is null then 0 else round(o.due / 10::numeric ^ 16, 18) end),
        ('paid_before_attos', o.proration_attos + o.credit_attos,
         case when o.amount_cents is null then 0 else o.proration_attos + o.credit_attos end))
        as f (name, stored, expected)
    )
    select f.user_id, u.external_user_id, jsonb_build_object('order_id', f.id::text) as key,
           jsonb_build_object(f.name, f.stored::text) as stored,
           jsonb_build_object(f.name, trim_scale(f.expected)::text) as expected
    from figures f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    where f.stored is distinct from f.expected
    order by f.user_id, f.id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds payments for plans that differ from their invoices, and prorations that are not the price of
 * the unused time, or of the unused included usage, of the period that ended.
 */
export async function prorationDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with paid as (
      select p.user_id, jsonb_build_object('payment_id', p.id::text) as key, 'total_cents' as name,
             i.total_cents::numeric as stored, p.amount_cents::numeric as expected
      from payments p
      left join invoices i on i.app_id = ${appId} and i.user_id = p.user_id and i.id = p.invoice_id
      where p.app_id = ${appId} and p.user_id > ${after} and p.user_id <= ${upTo} and p.purpose = 'plan'
    ), ended as (
      select r.user_id, r.period_start, r.amount_attos, r.unused_attos, e.price_attos, e.included_attos,
             floor(extract(epoch from e.ends_at - r.period_start) * 1000) as left_ms,
             floor(extract(epoch from e.ends_at - e.starts_at) * 1000) as length_ms
      from prorations r
      left join (
        periods e join periods b on b.app_id = e.app_id and b.user_id = e.user_id
      ) on e.app_id = r.app_id and e.user_id = r.user_id and e.starts_at = r.ended_start and b.starts_at = r.period_start
      where r.app_id = ${appId} and r.user_id > ${after} and r.user_id <= ${upTo}
    ), prorated as (
      select user_id, jsonb_build_object('period_start', to_jsonb(period_start)) as key, 'amount_attos' as name,
             amount_attos as stored,
             coalesce(case when unused_attos is null then div(price_attos * left_ms, length_ms)
                           else div(price_attos * unused_attos, nullif(included_attos, 0)) end, 0) as expected
      from ended
    )
    select f.user_id, u.external_user_id, f.key,
           case when f.stored is not null then jsonb_build_object(f.name, f.stored::text) end as stored,
           jsonb_build_object(f.name, f.expected::text) as expected
    from (select * from paid union all select * from prorated) f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    where f.stored is distinct from f.expected
    order by f.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}
