import { type Db, many, one, sql } from '../../../lib/sql.ts'
import type { ProcessorAccount } from '../port.ts'

/**
 * Computes payouts from movements. Each midnight pays out what is available, so that what was ever
 * paid out is the highest balance of all midnights. A refund after a payout makes the balance
 * negative until later payments have covered it.
 */

export interface DailyPayout {
  /** Midnight (UTC) after the day whose payments it pays. */
  readonly paidAt: Date
  readonly amount: bigint
}

const toColumn = (account: string | null): string => account ?? ''

/** Returns the sum of all movements until `at`, and the part that midnights before paid out. */
export async function readBalance(
  db: Db,
  { plane, account }: ProcessorAccount,
  at: Date,
): Promise<{ readonly total: bigint; readonly paidOut: bigint }> {
  const row = await one<{ total: string; paid_out: string }>(
    db,
    sql`
    with days as (
      select date_trunc('day', created_at, 'UTC') as day, sum(amount - fee) as net
      from simulated_movements
      where plane = ${plane} and account = ${toColumn(account)} and created_at <= ${at}
      group by 1
    ), balances as (
      select day, sum(net) over (order by day) as balance
      from days
    )
    select coalesce((select sum(net) from days), 0)::text as total,
           greatest(0, (select max(balance) from balances where day < date_trunc('day', ${at}::timestamptz, 'UTC')))::text
             as paid_out`,
  )
  return { total: BigInt(row.total), paidOut: BigInt(row.paid_out) }
}

/** Returns payouts of midnights before an instant, newest first. */
export async function listPayouts(
  db: Db,
  { plane, account }: ProcessorAccount,
  { before, limit }: { readonly before: Date; readonly limit: number },
): Promise<DailyPayout[]> {
  const rows = await many<{ paid_at: Date; amount: string }>(
    db,
    sql`
    with days as (
      select date_trunc('day', created_at, 'UTC') as day, sum(amount - fee) as net
      from simulated_movements
      where plane = ${plane} and account = ${toColumn(account)} and created_at < ${before}
      group by 1
    ), balances as (
      select day, sum(net) over (order by day) as balance
      from days
    ), highest as (
      select day, greatest(0, max(balance) over (order by day)) as paid_out
      from balances
    ), payouts as (
      select day + interval '24 hours' as paid_at, paid_out - lag(paid_out, 1, 0) over (order by day) as amount
      from highest
    )
    select paid_at, amount::text as amount
    from payouts
    where amount > 0 and paid_at < ${before}
    order by paid_at desc
    limit ${limit}`,
  )
  return rows.map(({ paid_at: paidAt, amount }) => ({ paidAt, amount: BigInt(amount) }))
}
