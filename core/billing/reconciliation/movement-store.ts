import { type Db, many, sql } from '../../lib/sql.ts'
import { accountColumn } from '../payments/customer-store.ts'
import type { Movement } from '../processor/port.ts'
import type { Figures } from './differences.ts'
import type { Place } from './progress-store.ts'

/** Writes processor_movements, and reads both sides of payments. */

/**
 * Records movements of an account that belong to payments of ours, payouts, and the platform's
 * fees. An account may have other sales, which are not ours. Returns the number of new ones.
 */
export async function insertMovements(
  db: Db,
  { processor, at, appId }: Place,
  movements: readonly (Movement & { readonly referenceApp: string | null })[],
): Promise<number> {
  const column = <Key extends keyof Movement>(key: Key) => movements.map((item) => item[key])
  const { rowCount } = await db.query(sql`
    with ours as materialized (
      select processor_id
      from payments
      where processor_id = any(${column('payment')}::text[]) and plane = ${at.plane} and account_id = ${accountColumn(at)}
      union all
      select processor_id
      from payment_attempts
      where processor_id = any(${column('payment')}::text[]) and failure = 'paid_twice' and processor = ${processor}
        and plane = ${at.plane} and account_id = ${accountColumn(at)}
    )
    insert into processor_movements (processor, plane, account_id, movement_id, kind, amount, currency, platform_fee,
                                     fee_currency, payment_id, fee_reference, created_at)
    select ${processor}, ${at.plane}, ${accountColumn(at)}, w.id, w.kind, w.amount, w.currency, w.platform_fee,
           w.fee_currency, w.payment, w.fee_reference, w.created_at
    from unnest(${column('id')}::text[], ${column('kind')}::text[], ${column('amount')}::bigint[], ${column('currency')}::text[],
                ${column('platformFee')}::bigint[], ${column('feeCurrency')}::text[],
                ${column('payment')}::text[], ${column('feeReference')}::text[],
                ${column('createdAt')}::timestamptz[], ${movements.map(({ referenceApp }) => referenceApp)}::uuid[])
      as w (id, kind, amount, currency, platform_fee, fee_currency, payment, fee_reference, created_at, app)
    where w.kind = 'payout' or (w.kind = 'fee' and w.fee_reference is not null)
       or w.payment in (select processor_id from ours)
       or exists (
         select from processor_movements
         where payment_id = w.payment and processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)})
       or (w.kind = 'payment' and (${appId}::uuid is null or w.app = ${appId}) and exists (select from apps where id = w.app))
    on conflict do nothing`)
  return rowCount ?? 0
}

export interface Window {
  readonly from: Date
  readonly to: Date
}

/**
 * Lists the processor's ids of payments with a movement, a payment of ours or a return in the
 * window, by id.
 */
export async function listPayments(
  db: Db,
  { processor, at }: Place,
  { from, to, after, limit }: Window & { readonly after: string; readonly limit: number },
): Promise<string[]> {
  const account = accountColumn(at)
  const rows = await many<{ id: string }>(
    db,
    sql`
    select id from (
      select payment_id as id
      from processor_movements
      where processor = ${processor} and plane = ${at.plane} and account_id = ${account}
        and created_at >= ${from} and created_at < ${to} and payment_id > ${after}
      union
      select p.processor_id
      from payments p
      where p.plane = ${at.plane} and p.account_id = ${account} and p.created_at >= ${from} and p.created_at < ${to}
        and p.processor_id > ${after}
        and exists (
          select from processor_customers
          where app_id = p.app_id and user_id = p.user_id and processor = ${processor} and plane = p.plane
            and account_id = p.account_id)
      union
      select p.processor_id
      from payment_returns r
      join payments p on p.app_id = r.app_id and p.id = r.payment_id
      where r.created_at >= ${from} and r.created_at < ${to} and p.plane = ${at.plane} and p.account_id = ${account}
        and p.processor_id > ${after}) w
    order by id
    limit ${limit}`,
  )
  return rows.map(({ id }) => id)
}

/** Figures with our ids, if we have the payment. */
export interface Case extends Figures {
  readonly payment: { readonly appId: string; readonly id: string } | null
}

interface CaseRow {
  id: string
  app_id: string | null
  payment_id: string | null
  amount_cents: bigint | null
  fee_cents: bigint | null
  our_refunded: bigint
  our_disputed: bigint
  amount: bigint | null
  currency: string | null
  platform_fee: bigint | null
  fee_currency: string | null
  earned: bigint | null
  earned_currency: string | null
  fee_returned: bigint
  refunded: bigint
  disputed: bigint
  surplus_cents: bigint | null
  surplus_fee: bigint
  surplus_waits: boolean
}

/** Reads both sides of payments of an account by the processor's ids. */
export async function readCases(
  db: Db,
  { processor, at }: Place,
  ids: readonly string[],
): Promise<Case[]> {
  const account = accountColumn(at)
  const rows = await many<CaseRow>(
    db,
    sql`
    with p as materialized (
      select app_id, id, processor_id, amount_cents, fee_cents
      from payments
      where processor_id = any(${ids}::text[]) and plane = ${at.plane} and account_id = ${account}
    ), r as materialized (
      select r.app_id, r.payment_id,
             sum(case r.kind when 'refund' then r.amount_cents when 'refund_failed' then -r.amount_cents end) as refunded,
             sum(case r.kind when 'dispute' then r.amount_cents when 'dispute_won' then -r.amount_cents end) as disputed
      from payments p
      join payment_returns r on r.app_id = p.app_id and r.payment_id = p.id
      where p.processor_id = any(${ids}::text[]) and p.plane = ${at.plane} and p.account_id = ${account}
      group by r.app_id, r.payment_id
    ), a as materialized (
      select processor_id, amount_cents, fee_cents, surplus_at
      from payment_attempts
      where processor_id = any(${ids}::text[]) and failure = 'paid_twice' and processor = ${processor} and plane = ${at.plane}
        and account_id = ${account}
    )
    select w.id, p.app_id, p.id as payment_id, p.amount_cents, p.fee_cents, coalesce(r.refunded, 0)::bigint as our_refunded,
           coalesce(r.disputed, 0)::bigint as our_disputed, m.amount, m.currency, m.platform_fee, m.fee_currency,
           e.amount as earned, e.currency as earned_currency, coalesce(e.returned, 0)::bigint as fee_returned, coalesce(m.refunded, 0)::bigint as refunded,
           coalesce(m.disputed, 0)::bigint as disputed, a.amount_cents as surplus_cents, a.fee_cents as surplus_fee,
           a.surplus_at is not null as surplus_waits
    from unnest(${ids}::text[]) as w (id)
    left join p on p.processor_id = w.id
    left join r on r.app_id = p.app_id and r.payment_id = p.id
    left join lateral (
      select (sum(amount) filter (where kind = 'payment'))::bigint as amount,
             min(currency) filter (where kind = 'payment') as currency,
             (sum(platform_fee) filter (where kind = 'payment'))::bigint as platform_fee,
             min(fee_currency) filter (where kind = 'payment') as fee_currency,
             min(fee_reference) filter (where kind = 'payment') as fee_reference,
             -sum(amount) filter (where kind = 'refund') as refunded,
             -sum(amount) filter (where kind = 'dispute') as disputed
      from processor_movements
      where payment_id = w.id and processor = ${processor} and plane = ${at.plane} and account_id = ${account}) m on true
    left join lateral (
      select (sum(amount) filter (where amount > 0))::bigint as amount, -sum(amount) filter (where amount < 0) as returned,
             min(currency) as currency
      from processor_movements
      where fee_reference = m.fee_reference and kind = 'fee' and processor = ${processor} and plane = ${at.plane}
        and account_id = '') e on true
    left join a on a.processor_id = w.id and p.id is null
    order by w.id`,
  )
  return rows.map(caseFromRow)
}

const caseFromRow = (row: CaseRow): Case => ({
  id: row.id,
  payment:
    row.app_id === null || row.payment_id === null
      ? null
      : { appId: row.app_id, id: row.payment_id },
  ours:
    row.amount_cents === null || row.fee_cents === null
      ? surplusOf(row)
      : {
          amount: row.amount_cents,
          fee: row.fee_cents,
          refunded: row.our_refunded,
          disputed: row.our_disputed,
        },
  theirs:
    row.amount === null || row.currency === null
      ? null
      : {
          amount: row.amount,
          currency: row.currency,
          fee: row.platform_fee ?? 0n,
          feeCurrency: row.fee_currency ?? row.currency,
          feeReturned: feeReturned(row),
          earned:
            row.earned === null || row.earned_currency === null
              ? null
              : { amount: row.earned, currency: row.earned_currency },
        },
  refunded: row.refunded,
  disputed: row.disputed,
})

/** The platform's account may be in another currency than the account that paid the fee. */
const feeReturned = (row: CaseRow): bigint =>
  row.earned_currency === row.fee_currency ? row.fee_returned : 0n

/**
 * A surplus is not in our payments. It is refunded in full with the platform's fee, or its refund is
 * due.
 */
function surplusOf(row: CaseRow): Figures['ours'] {
  if (row.surplus_cents === null) return null
  const { disputed } = row
  const refunded = row.surplus_waits ? row.refunded : row.surplus_cents - disputed
  // The movements of a refund are recorded later than the refund.
  const isReturned = !row.surplus_waits && row.refunded === refunded
  const fee = isReturned ? 0n : row.surplus_fee - feeReturned(row)
  return { amount: row.surplus_cents, fee, refunded, disputed }
}

export interface MovementSum {
  readonly kind: Movement['kind']
  readonly currency: string
  readonly count: number
  readonly amount: bigint
}

/** Sums an account's recorded movements in a window by kind and currency. */
export async function sumMovements(
  db: Db,
  { processor, at }: Place,
  { from, to }: Window,
): Promise<MovementSum[]> {
  return many<MovementSum>(
    db,
    sql`
    select kind, currency, count(*)::int as count, sum(amount)::bigint as amount
    from processor_movements
    where processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)}
      and created_at >= ${from} and created_at < ${to}
    group by kind, currency
    order by kind, currency`,
  )
}
