import type { AppId, UserId } from '../platform/ids.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { type Db, maybeOne, sql } from '../lib/sql.ts'
import type { Period } from '../plans/period.ts'

export interface UserAt {
  readonly appId: AppId
  readonly userId: UserId
  readonly at: Date
}

/** When the user came; null for none. */
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
  readonly balance: UsdAttos
  /** Charged since `period.start`. */
  readonly consumed: UsdAttos
  /** Included usage in effect, and every grant that was ever made. */
  readonly granted: UsdAttos
  /** Tickets that had come and wait for their rate to this day. */
  readonly unpriced: bigint
}

/**
 * What the ledger says of an instant: entries booked until then, and of grants what was in effect. A grant that had
 * ended counts as gone from its end on, whenever its expiry was booked, or even if it is still to be.
 */
export async function balanceAt(
  db: Db,
  { appId, userId, at }: UserAt,
  period: Period,
): Promise<BalanceAt> {
  const row = await maybeOne<{
    balance: string
    consumed: string
    granted: string
    unpriced: bigint
  }>(
    db,
    sql`
    with booked as (
      select coalesce(sum(amount_attos) filter (where kind <> 'expire'), 0) as amount,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge' and created_at >= ${period.start}), 0) as consumed
      from ledger_entries
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    ), ended as (
      select coalesce(sum(coalesce(-e.amount_attos, g.remaining_attos)), 0) as amount
      from grants g
      left join ledger_entries e on e.app_id = g.app_id and e.user_id = g.user_id and e.cause_id = g.id and e.kind = 'expire'
      where g.app_id = ${appId} and g.user_id = ${userId} and g.created_at <= ${at} and g.expires_at <= ${at}
    ), given as (
      select coalesce(sum(amount_attos) filter (
               where kind = 'grant' or (kind = 'included' and effective_at <= ${at} and expires_at > ${at})), 0) as granted,
             coalesce(sum(amount_attos) filter (where effective_at > ${at}), 0) as not_yet
      from grants
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    )
    select booked.amount - ended.amount - given.not_yet as balance, booked.consumed, given.granted,
           (select count(*)
            from tickets
            where app_id = ${appId} and user_id = ${userId} and cost_attos is null and received_at <= ${at}) as unpriced
    from booked, ended, given`,
  )
  if (!row) throw new Error('sums without a row')
  return {
    balance: usdAttos(BigInt(row.balance)),
    consumed: usdAttos(BigInt(row.consumed)),
    granted: usdAttos(BigInt(row.granted)),
    unpriced: row.unpriced,
  }
}
