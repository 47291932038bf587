import { type Db, many, sql } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'

/** Reads what a payer was invoiced and paid. These documents do not change its balance. */

export interface PayerDocument {
  readonly kind:
    'invoice' | 'credit_note' | 'payment' | 'refund' | 'refund_failed' | 'dispute' | 'dispute_won'
  readonly id: string
  /** By the clock of the app, as in the ledger. */
  readonly at: Date
  readonly rank: number
  readonly cents: bigint
  /** The document itself, or the invoice that it pays or corrects; null without an invoice. */
  readonly invoiceId: string | null
  readonly number: bigint | null
  /** Number of a credit note. */
  readonly noteNumber: bigint | null
}

export interface DocumentPlace {
  readonly at: Date
  /** Order of documents of one time: causes before effects. */
  readonly rank: number
  readonly id: string
}

interface DocumentRow {
  kind: PayerDocument['kind']
  id: string
  at: Date
  rank: number
  cents: bigint
  invoice_id: string | null
  number: bigint | null
  note_number: bigint | null
}

/**
 * Lists invoices and credit notes, payments of invoices and plans, and what went back of them,
 * newest first. Top-ups are in the ledger.
 */
export async function listDocuments(
  db: Db,
  { appId: app, userId }: UserKey,
  { before, limit }: { readonly before: DocumentPlace | null; readonly limit: number },
): Promise<PayerDocument[]> {
  const { at, rank, id } = before ?? { at: null, rank: null, id: null }
  const rows = await many<DocumentRow>(
    db,
    sql`
    with paid as (
      select p.id, p.created_at, p.amount_cents, p.invoice_id
      from payments p
      where p.app_id = ${app} and p.user_id = ${userId} and p.purpose <> 'top_up'
    ), moved as (
      select 'payment' as kind, 2 as rank, p.id, p.created_at, p.amount_cents, p.invoice_id
      from paid p
      union all
      select r.kind, 3, r.id, r.created_at, r.amount_cents, p.invoice_id
      from paid p
      join payment_returns r on r.app_id = ${app} and r.payment_id = p.id
    ), documents as (
      select kind, case kind when 'invoice' then 1 else 4 end as rank, id, issued_at as at, abs(total_cents) as cents, coalesce(invoice_id, id) as invoice_id,
             case kind when 'credit_note' then number end as note_number
      from invoices
      where app_id = ${app} and user_id = ${userId}
      union all
      -- The ledger and invoices are dated by the clock of the app, money by real time.
      select m.kind, m.rank, m.id,
             m.created_at + coalesce((
               select ahead_ms
               from test_clock_moves
               where app_id = ${app} and since <= m.created_at
               order by since desc
               limit 1), 0) * interval '1 millisecond',
             m.amount_cents, m.invoice_id, null
      from moved m
    )
    select d.kind, d.id, d.at, d.rank, d.cents, d.invoice_id, i.number, d.note_number
    from documents d
    left join invoices i on i.app_id = ${app} and i.id = d.invoice_id
    where ${at}::timestamptz is null or (d.at, d.rank, d.id) < (${at}::timestamptz, ${rank}::int, ${id}::uuid)
    order by d.at desc, d.rank desc, d.id desc
    limit ${limit}`,
  )
  return rows.map((row) => ({
    kind: row.kind,
    id: row.id,
    at: row.at,
    rank: row.rank,
    cents: row.cents,
    invoiceId: row.invoice_id,
    number: row.number,
    noteNumber: row.note_number,
  }))
}
