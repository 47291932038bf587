import { usdAttos, type UsdAttos } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import { type EntryRange, rangeColumns } from './ranges.ts'

/** Reads the ledger entries that invoices cover. One statement serves many users. */

/** The debt in a range of entries, and its kinds. */
export interface EntrySums {
  /** Overage minus what was collected, without the payments and voids of invoices. */
  readonly debt: UsdAttos
  /** Charges of tickets that no credit paid for. */
  readonly whole: WholeCharges
  readonly hasPartial: boolean
  readonly hasOwnerCharges: boolean
  readonly hasOthers: boolean
}

export interface WholeCharges {
  readonly amount: UsdAttos
  readonly tickets: bigint
  /** Booking time of the first; null without one. */
  readonly first: Date | null
}

interface SumRow {
  user_id: string
  debt: string
  whole: string
  whole_tickets: bigint
  whole_first: Date | null
  has_partial: boolean
  has_owner_charges: boolean
  has_others: boolean
}

/**
 * Sums ranges of entries. A payment of an invoice settles that invoice, and so does the credit note
 * that voids one; both are left out.
 */
export async function sumEntries(
  db: Db,
  ranges: readonly EntryRange[],
): Promise<ReadonlyMap<UserId, EntrySums>> {
  const rows = await inAppGroups(db, ranges, (group, app) => {
    const { apps, users, from, through } = rangeColumns(group)
    return many<SumRow>(
      db,
      sql`
    select w.user_id, e.debt, e.whole, e.whole_tickets, e.whole_first, e.has_partial, e.has_owner_charges, e.has_others
    from unnest(${apps}::uuid[], ${users}::uuid[], ${from}::bigint[], ${through}::bigint[])
      as w (app_id, user_id, from_seq, through_seq)
    cross join lateral (
      select coalesce(sum(overage_attos - collected_attos), 0) as debt,
             coalesce(sum(overage_attos) filter (where is_whole), 0) as whole,
             coalesce(sum(ticket_count) filter (where is_whole), 0)::bigint as whole_tickets,
             min(created_at) filter (where is_whole) as whole_first,
             coalesce(bool_or(kind = 'charge' and charged_app_id is null and not is_whole), false) as has_partial,
             coalesce(bool_or(charged_app_id is not null), false) as has_owner_charges,
             coalesce(bool_or(kind <> 'charge'), false) as has_others
      from (
        select kind, overage_attos, collected_attos, ticket_count, created_at, charged_app_id,
               kind = 'charge' and charged_app_id is null and amount_attos = 0 as is_whole
        from ledger_entries l
        where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and seq > w.from_seq and seq <= w.through_seq
          and (overage_attos <> 0 or collected_attos <> 0)
          and not (kind = 'payment' and (
            exists (select from payments where app_id = coalesce(${app}, l.app_id) and id = l.cause_id and invoice_id is not null)
            or exists (select from invoices where app_id = coalesce(${app}, l.app_id) and id = l.cause_id and reason = 'void')))
        offset 0) chosen) e`,
    )
  })
  return new Map(
    rows.map((row) => [
      userId(row.user_id),
      {
        debt: usdAttos(BigInt(row.debt)),
        whole: {
          amount: usdAttos(BigInt(row.whole)),
          tickets: row.whole_tickets,
          first: row.whole_first,
        },
        hasPartial: row.has_partial,
        hasOwnerCharges: row.has_owner_charges,
        hasOthers: row.has_others,
      },
    ]),
  )
}

/** Sums of an owner's charges for one app. */
export interface AppSum {
  readonly userId: UserId
  readonly chargedAppId: AppId
  readonly appName: string
  readonly amount: UsdAttos
  readonly tickets: bigint
  readonly first: Date
  readonly last: Date
}

interface AppSumRow {
  user_id: string
  charged_app_id: string
  name: string | null
  amount: string
  tickets: bigint
  first: Date
  last: Date
}

/** Sums the owner charges in ranges by app. */
export async function sumOwnerCharges(db: Db, ranges: readonly EntryRange[]): Promise<AppSum[]> {
  const rows = await inAppGroups(db, ranges, (group, app) => {
    const { apps, users, from, through } = rangeColumns(group)
    return many<AppSumRow>(
      db,
      sql`
    select w.user_id, e.charged_app_id, a.name, e.amount, e.tickets, e.first, e.last
    from unnest(${apps}::uuid[], ${users}::uuid[], ${from}::bigint[], ${through}::bigint[])
      as w (app_id, user_id, from_seq, through_seq)
    cross join lateral (
      select charged_app_id, sum(overage_attos) as amount, sum(ticket_count)::bigint as tickets,
             min(created_at) as first, max(created_at) as last
      from ledger_entries
      where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id and seq > w.from_seq and seq <= w.through_seq
        and charged_app_id is not null and overage_attos > 0
      group by charged_app_id) e
    left join apps a on a.id = e.charged_app_id
    order by w.user_id, e.amount desc, e.charged_app_id`,
    )
  })
  return rows.map((row) => ({
    userId: userId(row.user_id),
    chargedAppId: appId(row.charged_app_id),
    appName: row.name ?? row.charged_app_id,
    amount: usdAttos(BigInt(row.amount)),
    tickets: row.tickets,
    first: row.first,
    last: row.last,
  }))
}

export type OtherCause =
  | 'estimate'
  | 'estimate_returned'
  | 'top_up_returned'
  | 'correction'
  | 'credit_note'
  | 'payment_returned'
  | 'application_fee'

export interface OtherSum {
  readonly userId: UserId
  readonly cause: OtherCause
  readonly amount: UsdAttos
  readonly count: bigint
  readonly first: Date
  readonly last: Date
}

interface OtherSumRow {
  user_id: string
  cause: OtherCause
  amount: string
  count: bigint
  first: Date
  last: Date
}

/** Sums corrections and payments in ranges by their cause. */
export async function sumOthers(db: Db, ranges: readonly EntryRange[]): Promise<OtherSum[]> {
  const rows = await inAppGroups(db, ranges, (group, app) => {
    const { apps, users, from, through } = rangeColumns(group)
    return many<OtherSumRow>(
      db,
      sql`
    select w.user_id, e.cause, e.amount, e.count, e.first, e.last
    from unnest(${apps}::uuid[], ${users}::uuid[], ${from}::bigint[], ${through}::bigint[])
      as w (app_id, user_id, from_seq, through_seq)
    cross join lateral (
      select cause, sum(overage_attos - collected_attos) as amount, count(*) as count, min(created_at) as first,
             max(created_at) as last
      from (
        select l.overage_attos, l.collected_attos, l.created_at,
               case
                 when l.kind = 'payment' then
                   case
                     when n.id is not null then 'credit_note'
                     when r.id is not null then 'payment_returned'
                     else 'application_fee'
                   end
                 when a.author = 'tollgate' then case when l.overage_attos > 0 then 'estimate' else 'estimate_returned' end
                 when a.author = 'payment processor' then 'top_up_returned'
                 else 'correction'
               end as cause
        from ledger_entries l
        left join adjustments a on a.app_id = coalesce(${app}, l.app_id) and a.user_id = l.user_id and a.id = l.cause_id
        left join invoices n on n.app_id = coalesce(${app}, l.app_id) and n.id = l.cause_id
        left join payment_returns r on r.app_id = coalesce(${app}, l.app_id) and r.id = l.cause_id
        where l.app_id = coalesce(${app}, w.app_id) and l.user_id = w.user_id and l.seq > w.from_seq and l.seq <= w.through_seq
          and l.kind <> 'charge' and (l.overage_attos <> 0 or l.collected_attos <> 0)
          and n.reason is distinct from 'void'
          and not exists (select from payments where app_id = coalesce(${app}, l.app_id) and id = l.cause_id and invoice_id is not null)
        offset 0) chosen
      group by cause) e
    order by w.user_id, e.cause`,
    )
  })
  return rows.map((row) => ({
    userId: userId(row.user_id),
    cause: row.cause,
    amount: usdAttos(BigInt(row.amount)),
    count: row.count,
    first: row.first,
    last: row.last,
  }))
}
