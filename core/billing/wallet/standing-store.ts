import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'

/** Reads on which terms a user is collected from. */

export interface Standing {
  readonly planName: string
  readonly cycle: string
  /** False on Starter and free plans. */
  readonly isPaid: boolean
  /** The unpaid usage at which the card is charged; null if it is charged by period. */
  readonly threshold: UsdAttos | null
  /** Whether the last payment failed. */
  readonly isPastDue: boolean
  /** When the newest invoice was issued; null without one. */
  readonly lastRaisedAt: Date | null
  /** Whether an invoice is about to be paid. */
  readonly isSettling: boolean
  /** By the clock of the app: when an invoice is raised or charged next; null if none is planned. */
  readonly nextRaiseAt: Date | null
}

/** Returns null for a user without a subscription. */
export async function findStanding(
  db: Db,
  { appId: app, userId }: UserKey,
): Promise<Standing | null> {
  const row = await maybeOne<{
    name: string
    billing_cycle: string
    is_paid: boolean
    threshold: string | null
    is_past_due: boolean
    last_raised_at: Date | null
    is_settling: boolean
    next_raise_at: Date | null
  }>(
    db,
    sql`
    select p.name, v.billing_cycle, v.type <> 'free' and not p.is_starter_default as is_paid,
           v.charge_threshold_attos as threshold, s.status = 'past_due' as is_past_due,
           (select issued_at from invoices
            where app_id = ${app} and user_id = s.user_id and kind = 'invoice'
            order by issued_at desc
            limit 1) as last_raised_at,
           coalesce(c.is_settling, false) as is_settling, c.next_raise_at
    from subscriptions s
    join plans p on p.app_id = s.app_id and p.id = s.plan_id
    join lateral (
      select type, billing_cycle, charge_threshold_attos
      from plan_versions
      where app_id = s.app_id and plan_id = s.plan_id
      order by version desc
      limit 1) v on true
    left join lateral (
      select bool_or(state in ('issued', 'charging')) as is_settling,
             min(due_at) filter (where state in ('requested', 'retrying')) as next_raise_at
      from collections
      where app_id = ${app} and user_id = s.user_id and ended_at is null) c on true
    where s.app_id = ${app} and s.user_id = ${userId}`,
  )
  return (
    row && {
      planName: row.name,
      cycle: row.billing_cycle,
      isPaid: row.is_paid,
      threshold: row.threshold === null ? null : usdAttos(BigInt(row.threshold)),
      isPastDue: row.is_past_due,
      lastRaisedAt: row.last_raised_at,
      isSettling: row.is_settling,
      nextRaiseAt: row.next_raise_at,
    }
  )
}
