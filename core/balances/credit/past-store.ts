import type { UsdAttos } from '../../lib/money.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import { attos } from '../accounts/read-store.ts'
import type { UserAt } from '../accounts/store.ts'

/** Reads balances of past instants. */

/** Returns when the user was created; null for an unknown user. */
export async function userSince(db: Db, { appId, userId }: UserAt): Promise<Date | null> {
  const row = await maybeOne<{ created_at: Date }>(
    db,
    sql`
    select created_at
    from end_users
    where app_id = ${appId} and id = ${userId}`,
  )
  return row?.created_at ?? null
}

export interface BalanceAt {
  /** Remaining money that pays for anything. */
  readonly balance: UsdAttos
  /** Remaining money that is bound to one feature, by feature. */
  readonly bound: readonly { readonly featureKey: string; readonly remaining: UsdAttos }[]
  /** Consumption of the period that was running. */
  readonly consumed: UsdAttos
  /** Included usage in effect, plus every other credit granted until then. */
  readonly granted: UsdAttos
  /** Tickets that were booked by then and waited for their rate. */
  readonly unpriced: bigint
}

/**
 * Returns the balance as of `at`, by booking time. The past must be closed up to `at`. Starts from
 * the current balance and undoes later entries, because entries without recorded draws are older
 * than nearly every `at`.
 */
export async function balanceAt(db: Db, { appId, userId, at }: UserAt): Promise<BalanceAt> {
  const row = await maybeOne<{
    balance: string
    bound: { featureKey: string; remaining: string }[]
    consumed: string | null
    granted: string
    unpriced: bigint
  }>(
    db,
    sql`
    with head as (
      select coalesce(max(seq), 0) as seq
      from ledger_entries
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    ), later as (
      select e.kind, e.cause_id, e.amount_attos, e.period_attos, e.unpriced_change, e.credit_ids, e.credit_attos
      from ledger_entries e, head
      where e.app_id = ${appId} and e.user_id = ${userId} and e.seq > head.seq
    ), changes as (
      select d.id, sum(d.amount) as amount
      from later, unnest(later.credit_ids, later.credit_attos) as d (id, amount)
      group by d.id
      union all
      select cause_id, amount_attos
      from later
      where kind = 'expire'
    ), credits as (
      select g.kind, g.amount_attos, g.effective_at <= ${at} and (g.expires_at is null or g.expires_at > ${at}) as active,
             nullif(g.feature_key, 'network_spend') as feature,
             g.remaining_attos - coalesce((select sum(amount) from changes where id = g.id), 0) as remaining
      from grants g
      where g.app_id = ${appId} and g.user_id = ${userId} and g.created_at <= ${at}
    ), period as (
      select starts_at, ends_at, after_seq
      from periods
      where app_id = ${appId} and user_id = ${userId} and entered_at <= ${at}
      order by starts_at desc
      limit 1
    )
    select coalesce(sum(remaining) filter (where active and feature is null), 0) as balance,
           (select coalesce(jsonb_agg(jsonb_build_object('featureKey', feature, 'remaining', remaining::text)
                                      order by feature collate "C"), '[]')
            from (
              select feature, sum(remaining) as remaining
              from credits
              where active and feature is not null
              group by feature) bound) as bound,
           coalesce(sum(amount_attos) filter (where kind = 'grant' or (kind = 'included' and active)), 0) as granted,
           (select case when b.period_start = period.starts_at
                     then b.period_consumed_attos - (select coalesce(sum(period_attos), 0) from later)
                     else (
                       select coalesce(sum(e.period_attos), 0)
                       from ledger_entries e, head
                       where e.app_id = ${appId} and e.user_id = ${userId} and e.seq > period.after_seq
                         and e.seq <= head.seq)
                     end
            from balances b, period
            where b.app_id = ${appId} and b.user_id = ${userId} and period.ends_at > ${at}) as consumed,
           (select count(*)
            from tickets
            where app_id = ${appId} and user_id = ${userId} and cost_attos is null)
           - (select coalesce(sum(unpriced_change), 0) from later) as unpriced
    from credits`,
  )
  if (!row) throw new Error('a query of sums returned no row')
  return {
    balance: attos(row.balance),
    bound: row.bound.map((grant) => ({ ...grant, remaining: attos(grant.remaining) })),
    consumed: attos(row.consumed ?? '0'),
    granted: attos(row.granted),
    unpriced: row.unpriced,
  }
}
