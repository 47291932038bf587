import { type Db, many, sql } from '../lib/sql.ts'
import type { Plane } from './processor/port.ts'

/** Sums over all apps, for metrics. Each reads whole tables, so run it rarely. */

export const debtKinds = ['uninvoiced', 'invoiced', 'overdue', 'uncollectible'] as const
export type DebtKind = (typeof debtKinds)[number]

/** Who gets the money: the platform from owners of apps, or an app from its users. */
export type Payee = 'platform' | 'app'

export interface Sum<Kind extends string> {
  readonly plane: Plane
  readonly payee: Payee
  readonly kind: Kind
  /** A decimal, in USD. */
  readonly usd: string
}

/** Returns the unpaid usage on no invoice, and the unpaid invoices by the state of their collection. */
export const sumDebts = (db: Db): Promise<Sum<DebtKind>[]> =>
  many<Sum<DebtKind>>(
    db,
    sql`
    select case when a.is_test then 'test' else 'live' end as plane,
           case when b.app_id = (select app_id from platform_app) then 'platform' else 'app' end as payee, 'uninvoiced' as kind,
           (sum(b.overage_attos - b.collected_attos - b.invoiced_attos) / 1e18)::text as usd
    from balances b
    join apps a on a.id = b.app_id
    where b.overage_attos > b.collected_attos
    group by 1, 2
    union all
    select i.plane, case when i.app_id = (select app_id from platform_app) then 'platform' else 'app' end as payee,
           case c.state when 'retrying' then 'overdue' when 'uncollectible' then 'uncollectible' else 'invoiced' end,
           (sum(i.total_cents) / 100)::text
    from collections c
    join invoices i on i.app_id = c.app_id and i.id = c.invoice_id
    where c.state in ('issued', 'charging', 'retrying', 'uncollectible')
      and not exists (
        select
        from collections later
        where later.app_id = c.app_id and later.invoice_id = c.invoice_id
          and (later.requested_at, later.id) > (c.requested_at, c.id))
      and not exists (
        select
        from payments p
        where p.app_id = i.app_id and p.invoice_id = i.id)
      and not exists (
        select
        from invoices n
        where n.app_id = i.app_id and n.invoice_id = i.id and n.reason = 'void')
    group by 1, 2, 3`,
  )

export const paymentPurposes = ['top_up', 'plan', 'invoice'] as const
export type Purpose = (typeof paymentPurposes)[number]

/** Returns the sums of all payments. */
export const sumPayments = (db: Db): Promise<Sum<Purpose>[]> =>
  many<Sum<Purpose>>(
    db,
    sql`
    select plane, case when app_id = (select app_id from platform_app) then 'platform' else 'app' end as payee,
           purpose as kind, (sum(amount_cents) / 100)::text as usd
    from payments
    group by 1, 2, 3`,
  )

export const returnKinds = ['refund', 'dispute'] as const
export type Return = (typeof returnKinds)[number]

/** Returns the sums of refunds and disputes, less those that failed or were won. */
export const sumReturns = (db: Db): Promise<Sum<Return>[]> =>
  many<Sum<Return>>(
    db,
    sql`
    select p.plane, case when p.app_id = (select app_id from platform_app) then 'platform' else 'app' end as payee,
           case when r.kind in ('refund', 'refund_failed') then 'refund' else 'dispute' end as kind,
           (sum(case when r.kind in ('refund', 'dispute') then r.amount_cents else -r.amount_cents end) / 100)::text as usd
    from payment_returns r
    join payments p on p.app_id = r.app_id and p.id = r.payment_id
    group by 1, 2, 3`,
  )
