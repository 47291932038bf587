import { type Db, many, one, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'

/** Reads clocks, and the effects of a clock move on an app. */

export interface ClockEffects {
  readonly periodsRenewed: number
  readonly creditsExpired: number
  /** Amount left in the expired credits, in atto-dollars. */
  readonly expired: bigint
  readonly subscriptionsSwitched: number
  readonly planAdjustments: number
  /** Users whose unpaid usage on no invoice has reached the threshold of their plan. */
  readonly overThreshold: number
  readonly invoicesIssued: number
  /** Charges of cards for invoices that succeeded, and that failed. */
  readonly paymentsSucceeded: number
  readonly paymentsFailed: number
}

interface EffectsRow {
  periods: number
  expiries: number
  expired: string
  switches: number
  adjustments: number
  over_threshold: number
  invoices: number
  payments: number
  failures: number
}

/** Returns what a clock move from `from` to `to`, at the real instant `since`, has changed in an app. */
export async function effectsSince(
  db: Db,
  app: AppId,
  { from, to, since }: { readonly from: Date; readonly to: Date; readonly since: Date },
): Promise<ClockEffects> {
  const row = await one<EffectsRow>(
    db,
    sql`
    select (select count(*)::int
            from periods
            where app_id = ${app} and entered_at >= ${to} and counts_from > 'epoch') as periods,
           e.expiries, e.expired,
           (select count(*)::int
            from subscription_history
            where app_id = ${app} and ended_at > ${from} and ended_at <= ${to}) as switches,
           (select count(*)::int
            from grants g
            where g.app_id = ${app} and g.kind = 'included' and g.created_at >= ${to}
              and not exists (
                select from periods p
                where p.app_id = ${app} and p.user_id = g.user_id and p.counts_from = g.effective_at)) as adjustments,
           (select count(*)::int
            from balances b
            join periods p on p.app_id = b.app_id and p.user_id = b.user_id and p.starts_at = b.period_start
            join plan_versions v on v.app_id = p.app_id and v.plan_id = p.plan_id and v.version = p.plan_version
            where b.app_id = ${app}
              and b.overage_attos - b.collected_attos - b.invoiced_attos >= v.charge_threshold_attos) as over_threshold,
           (select count(*)::int from invoices where app_id = ${app} and kind = 'invoice' and issued_at >= ${to}) as invoices,
           c.payments, c.failures
    from (
      select count(*)::int as expiries, coalesce(-sum(amount_attos), 0) as expired
      from ledger_entries
      where app_id = ${app} and kind = 'expire' and created_at >= ${to}) e,
      (select count(*) filter (where state = 'succeeded')::int as payments,
              count(*) filter (where state = 'failed')::int as failures
       from payment_attempts
       where app_id = ${app} and purpose = 'invoice' and created_at >= ${since}) c`,
  )
  return {
    periodsRenewed: row.periods,
    creditsExpired: row.expiries,
    expired: BigInt(row.expired),
    subscriptionsSwitched: row.switches,
    planAdjustments: row.adjustments,
    overThreshold: row.over_threshold,
    invoicesIssued: row.invoices,
    paymentsSucceeded: row.payments,
    paymentsFailed: row.failures,
  }
}

export interface MovedClock {
  readonly clientId: string
  readonly name: string
  readonly aheadMs: number
  readonly movedAt: Date
  readonly moves: number
}

const listedMax = 1_000

/** Returns the clocks that are ahead of real time, furthest first, without those of deleted apps. */
export async function listMoved(db: Db): Promise<MovedClock[]> {
  const rows = await many<{
    client_id: string
    name: string
    ahead_ms: bigint
    moved_at: Date
    moves: number
  }>(
    db,
    sql`
    select c.client_id, a.name, m.ahead_ms, m.moved_at, m.moves
    from (
      select app_id, max(ahead_ms) as ahead_ms, max(since) as moved_at, count(*)::int as moves
      from test_clock_moves
      group by app_id) m
    join apps a on a.id = m.app_id and a.is_test and a.status <> 'deleted'
    join clients c on c.app_id = m.app_id and c.kind = 'public'
    order by m.ahead_ms desc, c.client_id
    limit ${listedMax}`,
  )
  return rows.map((row) => ({
    clientId: row.client_id,
    name: row.name,
    aheadMs: Number(row.ahead_ms),
    movedAt: row.moved_at,
    moves: row.moves,
  }))
}
