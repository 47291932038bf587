import type { CreditDebit } from '../../balances/accounts/chain.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type EntryRange, rangeColumns } from './ranges.ts'

/** Reads the tickets behind the charges that invoices cover. */

/** Sum of a user's tickets for one pipeline and model. */
export interface UsageSum {
  readonly userId: UserId
  readonly pipeline: string
  readonly modelId: string
  readonly isLate: boolean
  readonly amount: UsdAttos
  readonly tickets: bigint
  readonly first: Date
  readonly last: Date
}

interface UsageRow {
  user_id: string
  pipeline: string
  model_id: string
  is_late: boolean
  amount: string
  tickets: bigint
  first: Date
  last: Date
}

/** A range with the time from which its tickets are looked for; null for all tickets. */
export interface SearchedRange extends EntryRange {
  readonly signedSince: Date | null
}

/**
 * Sums the tickets of charges that no credit paid for. Finds only tickets signed since
 * `signedSince`, because no index leads from a charge to its tickets.
 */
export async function sumUsage(db: Db, ranges: readonly SearchedRange[]): Promise<UsageSum[]> {
  const rows = await inAppGroups(db, ranges, (group, app) => {
    const { apps, users, from, through, late } = rangeColumns(group)
    const since = group.map(({ signedSince }) => signedSince)
    return many<UsageRow>(
      db,
      sql`
    select w.user_id, t.pipeline, t.model_id, t.is_late, t.amount, t.tickets, t.first, t.last
    from unnest(${apps}::uuid[], ${users}::uuid[], ${from}::bigint[], ${through}::bigint[], ${late}::timestamptz[],
                ${since}::timestamptz[])
      as w (app_id, user_id, from_seq, through_seq, late_before, since)
    cross join lateral (
      select pipeline, model_id, coalesce(signed_at < w.late_before, false) as is_late,
             sum(coalesce(retail_attos, cost_attos)) as amount, count(*) as tickets, min(signed_at) as first,
             max(signed_at) as last
      from tickets
      where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and signed_at >= coalesce(w.since, '-infinity')
        and charge_id in (
          select cause_id
          from ledger_entries
          where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and seq > w.from_seq and seq <= w.through_seq
            and kind = 'charge' and charged_app_id is null and amount_attos = 0 and overage_attos > 0)
      group by 1, 2, 3) t
    order by w.user_id, t.amount desc, t.pipeline, t.model_id`,
    )
  })
  return rows.map((row) => ({
    userId: userId(row.user_id),
    pipeline: row.pipeline,
    modelId: row.model_id,
    isLate: row.is_late,
    amount: usdAttos(BigInt(row.amount)),
    tickets: row.tickets,
    first: row.first,
    last: row.last,
  }))
}

/** A charge that credits paid for in part. */
export interface PartialCharge extends UserKey {
  readonly seq: bigint
  readonly id: string
  readonly overage: UsdAttos
  readonly draws: readonly CreditDebit[]
  readonly tickets: number
  readonly bookedAt: Date
}

interface PartialRow {
  app_id: string
  user_id: string
  seq: bigint
  cause_id: string
  overage_attos: string
  credit_ids: string[]
  credit_attos: string[]
  ticket_count: number
  created_at: Date
}

/**
 * Returns the first charges of each range that credits paid for in part, at most `limit` of each, in
 * booking order.
 */
export async function firstPartialCharges(
  db: Db,
  ranges: readonly EntryRange[],
  limit: number,
): Promise<PartialCharge[]> {
  const rows = await inAppGroups(db, ranges, (group, app) => {
    const { apps, users, from, through } = rangeColumns(group)
    return many<PartialRow>(
      db,
      sql`
    select w.app_id, w.user_id, l.seq, l.cause_id, l.overage_attos, l.credit_ids, l.credit_attos::text[] as credit_attos,
           l.ticket_count, l.created_at
    from unnest(${apps}::uuid[], ${users}::uuid[], ${from}::bigint[], ${through}::bigint[])
      as w (app_id, user_id, from_seq, through_seq)
    cross join lateral (
      select seq, cause_id, overage_attos, credit_ids, credit_attos, ticket_count, created_at
      from ledger_entries
      where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and seq > w.from_seq and seq <= w.through_seq and kind = 'charge'
        and charged_app_id is null and amount_attos < 0 and overage_attos > 0
      order by seq
      limit ${limit}) l
    order by w.user_id, l.seq`,
    )
  })
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    seq: row.seq,
    id: row.cause_id,
    overage: usdAttos(BigInt(row.overage_attos)),
    draws: row.credit_ids.map((creditId, i) => ({
      creditId,
      amount: usdAttos(BigInt(row.credit_attos[i] ?? '0')),
    })),
    tickets: row.ticket_count,
    bookedAt: row.created_at,
  }))
}

/** A charge with the time from which its tickets are looked for; null for all tickets. */
export interface SearchedCharge extends UserKey {
  readonly id: string
  readonly signedSince: Date | null
}

/** Names a charge. Its id alone may name the charges of many users, which were booked together. */
export const chargeKey = ({ userId: user, id }: Pick<SearchedCharge, 'userId' | 'id'>): string =>
  `${user} ${id}`

interface ChargedRow {
  app_id: string
  user_id: string
  charge_id: string
  event_id: string
  signed_at: Date
  pipeline: string
  model_id: string
  cost: string
}

/** Returns the tickets of charges, by `chargeKey`. Searches since the earliest time of each user. */
export async function ticketsOfCharges(
  db: Db,
  charges: readonly SearchedCharge[],
): Promise<ReadonlyMap<string, TicketCharge[]>> {
  const rows = await inAppGroups(db, charges, (group, app) =>
    many<ChargedRow>(
      db,
      sql`
    select w.app_id, w.user_id, t.charge_id, t.event_id, t.signed_at, t.pipeline, t.model_id, t.cost
    from (
      select app_id, user_id, min(coalesce(since, '-infinity')) as since, array_agg(charge_id) as charges
      from unnest(${group.map((one) => one.appId)}::uuid[], ${group.map((one) => one.userId)}::uuid[],
                  ${group.map(({ id }) => id)}::uuid[], ${group.map(({ signedSince }) => signedSince)}::timestamptz[])
        as c (app_id, user_id, charge_id, since)
      group by 1, 2) w
    cross join lateral (
      select charge_id, event_id, signed_at, pipeline, model_id, coalesce(retail_attos, cost_attos) as cost
      from tickets
      where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and signed_at >= w.since and charge_id = any(w.charges)
      offset 0) t`,
    ),
  )
  const byCharge = new Map<string, TicketCharge[]>()
  for (const row of rows) {
    const ticket = {
      appId: appId(row.app_id),
      userId: userId(row.user_id),
      eventId: row.event_id,
      signedAt: row.signed_at,
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: usdAttos(BigInt(row.cost)),
    }
    const key = chargeKey({ userId: ticket.userId, id: row.charge_id })
    const same = byCharge.get(key)
    if (same) same.push(ticket)
    else byCharge.set(key, [ticket])
  }
  return byCharge
}
