import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import type { Plane } from '../processor/port.ts'
import type { InvoiceLine, LineKind } from './invoice.ts'
import type { DocumentKind } from './invoice-store.ts'

/** Reads documents for people. */

export const invoiceStatuses = [
  'issued',
  'payment_processing',
  'overdue',
  'paid',
  'uncollectible',
  'void',
] as const
export type InvoiceStatus = (typeof invoiceStatuses)[number]

export interface StoredDocument {
  readonly appId: AppId
  readonly userId: UserId
  readonly externalUserId: string
  readonly issuerName: string
  readonly issuerClientId: string
  readonly id: string
  readonly kind: DocumentKind
  readonly number: bigint
  readonly status: InvoiceStatus
  readonly reason: string
  readonly total: bigint
  readonly carriedIn: UsdAttos
  readonly carried: UsdAttos
  readonly plane: Plane
  readonly periodStart: Date
  readonly periodEnd: Date
  readonly issuedAt: Date
  /** By the clock of the app, as `issuedAt`. The payment has real time. */
  readonly paidAt: Date | null
  /** Sum of its credit notes, in cents. */
  readonly credited: bigint
  readonly invoiceId: string | null
  readonly note: string | null
}

interface DocumentRow {
  app_id: string
  user_id: string
  external_user_id: string
  issuer_name: string
  issuer_client_id: string
  id: string
  kind: DocumentKind
  number: bigint
  status: InvoiceStatus
  reason: string
  total_cents: bigint
  carried_in_attos: string
  carried_attos: string
  plane: Plane
  period_start: Date
  period_end: Date
  issued_at: Date
  paid_at: Date | null
  credited: bigint
  invoice_id: string | null
  note: string | null
}

const fromRow = (row: DocumentRow): StoredDocument => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  externalUserId: row.external_user_id,
  issuerName: row.issuer_name,
  issuerClientId: row.issuer_client_id,
  id: row.id,
  kind: row.kind,
  number: row.number,
  status: row.status,
  reason: row.reason,
  total: row.total_cents,
  carriedIn: usdAttos(BigInt(row.carried_in_attos)),
  carried: usdAttos(BigInt(row.carried_attos)),
  plane: row.plane,
  periodStart: row.period_start,
  periodEnd: row.period_end,
  issuedAt: row.issued_at,
  paidAt: row.paid_at,
  credited: row.credited,
  invoiceId: row.invoice_id,
  note: row.note,
})

/** The documents of an app, or those of one of its users. */
export interface Selection {
  readonly appId: AppId
  readonly userId: UserId | null
}

/** Counts documents. */
export async function countDocuments(
  db: Db,
  { appId: app, userId: user }: Selection,
): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count
    from invoices
    where app_id = ${app} and (${user}::uuid is null or user_id = ${user})`,
  )
  return count
}

export interface DocumentPage {
  readonly offset: number
  readonly limit: number
}

/** Returns a page of documents, newest first. */
export const listDocuments = (
  db: Db,
  selection: Selection,
  page: DocumentPage,
): Promise<StoredDocument[]> => readDocuments(db, { ...selection, ids: null, ...page })

/** Returns these documents of an app, newest first. */
export const findDocuments = (
  db: Db,
  { appId: app, ids }: { readonly appId: AppId; readonly ids: readonly string[] },
): Promise<StoredDocument[]> =>
  readDocuments(db, { appId: app, userId: null, ids, offset: 0, limit: ids.length })

/** Returns a document of an app; null for an unknown one. */
export async function findDocument(
  db: Db,
  { appId: app, id }: { readonly appId: AppId; readonly id: string },
): Promise<StoredDocument | null> {
  return (await findDocuments(db, { appId: app, ids: [id] }))[0] ?? null
}

/** Of invoice `i`, its payment `p`, its credit notes `n` and its latest collection `k`. */
const statusColumn = `
           case
             when i.kind = 'credit_note' then 'issued'
             when p.created_at is not null then 'paid'
             when n.is_void then 'void'
             when i.total_cents = 0 then 'paid'
             when k.state = 'charging' then 'payment_processing'
             when k.state = 'retrying' then 'overdue'
             when k.state = 'uncollectible' then 'uncollectible'
             else 'issued'
           end`

async function readDocuments(
  db: Db,
  {
    appId: app,
    userId: user,
    ids,
    offset,
    limit,
  }: Selection & DocumentPage & { readonly ids: readonly string[] | null },
): Promise<StoredDocument[]> {
  const rows = await many<DocumentRow>(db, {
    text: `
    with page as materialized (
      select *
      from invoices
      where app_id = $1 and ($2::uuid is null or user_id = $2) and ($3::uuid[] is null or id = any($3))
      order by issued_at desc, id desc
      limit $4
      offset $5
    )
    select i.app_id, i.user_id, u.external_user_id, a.name as issuer_name, c.client_id as issuer_client_id, i.id, i.kind, i.number,
           ${statusColumn} as status,
           i.reason, i.total_cents, i.carried_in_attos, i.carried_attos, i.plane, i.period_start, i.period_end, i.issued_at,
           p.created_at + coalesce(m.ahead_ms, 0) * interval '1 millisecond' as paid_at, n.credited, i.invoice_id, i.note
    from page i
    join end_users u on u.app_id = i.app_id and u.id = i.user_id
    join apps a on a.id = i.app_id
    join clients c on c.app_id = i.app_id and c.kind = 'public'
    left join payments p on p.app_id = $1 and p.invoice_id = i.id
    left join lateral (
      select ahead_ms
      from test_clock_moves
      where app_id = p.app_id and since <= p.created_at
      order by since desc
      limit 1) m on true
    left join lateral (
      select state
      from collections
      where app_id = $1 and invoice_id = i.id
      order by requested_at desc
      limit 1) k on true
    cross join lateral (
      select coalesce(bool_or(reason = 'void'), false) as is_void, (-coalesce(sum(total_cents), 0))::bigint as credited
      from invoices
      where app_id = $1 and invoice_id = i.id) n
    order by i.issued_at desc, i.id desc`,
    values: [app, user, ids, limit, offset],
  })
  return rows.map(fromRow)
}

/** What a list of documents is filtered by. Null is any. */
export interface DocumentFilter {
  readonly status: InvoiceStatus | null
  readonly kind: DocumentKind | null
}

/**
 * Returns the ids of a page of the documents that fit a filter, and the number of all. The status is
 * computed for each document of the selection, from sets, because it is stored nowhere.
 */
export async function listFiltered(
  db: Db,
  { appId: app, userId: user }: Selection,
  { status, kind, offset, limit }: DocumentFilter & DocumentPage,
): Promise<{ readonly ids: readonly string[]; readonly count: number }> {
  return one<{ ids: string[]; count: number }>(db, {
    text: `
    with states as (
      select distinct on (invoice_id) invoice_id, state
      from collections
      where app_id = $1 and invoice_id is not null and ($2::uuid is null or user_id = $2)
      order by invoice_id, requested_at desc
    ), voided as (
      select invoice_id, true as is_void
      from invoices
      where app_id = $1 and reason = 'void' and ($2::uuid is null or user_id = $2)
    ), fitting as materialized (
      select i.id, i.issued_at
      from invoices i
      left join payments p on p.app_id = $1 and p.invoice_id = i.id
      left join states k on k.invoice_id = i.id
      left join voided n on n.invoice_id = i.id
      where i.app_id = $1 and ($2::uuid is null or i.user_id = $2) and ($4::text is null or i.kind = $4)
        and ($3::text is null or $3 = ${statusColumn})
    )
    select (select count(*)::int from fitting) as count,
           array(select id from fitting order by issued_at desc, id desc limit $5 offset $6)::text[] as ids`,
    values: [app, user, status, kind, limit, offset],
  })
}

/** A credit note as its invoice shows it. */
export type NoteOfInvoice = Pick<
  StoredDocument,
  'id' | 'number' | 'issuedAt' | 'total' | 'reason' | 'note'
>

const notesMax = 100

/** Returns the credit notes of an invoice, newest first. */
export async function listNotesOf(
  db: Db,
  { appId: app, id }: { readonly appId: AppId; readonly id: string },
): Promise<NoteOfInvoice[]> {
  return many<NoteOfInvoice>(
    db,
    sql`
    select id, number, issued_at as "issuedAt", total_cents as total, reason, note
    from invoices
    where app_id = ${app} and invoice_id = ${id}
    order by issued_at desc, id desc
    limit ${notesMax}`,
  )
}

/** Returns the number of an invoice; null for an unknown one. */
export async function findInvoiceNumber(
  db: Db,
  { appId: app, id }: { readonly appId: AppId; readonly id: string },
): Promise<bigint | null> {
  const row = await maybeOne<{ number: bigint }>(
    db,
    sql`select number from invoices where app_id = ${app} and id = ${id} and kind = 'invoice'`,
  )
  return row && row.number
}

export interface StoredLine extends InvoiceLine {
  readonly position: number
  readonly chargedClientId: string | null
}

/** Returns the lines of a document in order. */
export async function readLines(
  db: Db,
  { appId: app, id }: { readonly appId: AppId; readonly id: string },
): Promise<StoredLine[]> {
  const rows = await many<{
    position: number
    kind: LineKind
    description: string
    amount_attos: string
    plan_id: string | null
    pipeline: string | null
    model_id: string | null
    charged_app_id: string | null
    client_id: string | null
    tickets: bigint | null
    units: string | null
    period_start: Date
    period_end: Date
  }>(
    db,
    sql`
    select l.position, l.kind, l.description, l.amount_attos, l.plan_id, l.pipeline, l.model_id, l.charged_app_id, c.client_id,
           l.tickets, l.units, l.period_start, l.period_end
    from invoice_lines l
    left join clients c on c.app_id = l.charged_app_id and c.kind = 'public'
    where l.app_id = ${app} and l.invoice_id = ${id}
    order by l.position`,
  )
  return rows.map((row) => ({
    position: row.position,
    kind: row.kind,
    description: row.description,
    amount: usdAttos(BigInt(row.amount_attos)),
    planId: row.plan_id,
    pipeline: row.pipeline,
    modelId: row.model_id,
    chargedAppId: row.charged_app_id === null ? null : appId(row.charged_app_id),
    chargedClientId: row.client_id,
    tickets: row.tickets,
    units: row.units === null ? null : BigInt(row.units),
    periodStart: row.period_start,
    periodEnd: row.period_end,
  }))
}

/** Returns the app of a document; null for an unknown one. */
export async function findInvoiceApp(db: Db, id: string): Promise<AppId | null> {
  const [row] = await many<{ app_id: string }>(
    db,
    sql`select app_id from invoices where id = ${id}`,
  )
  return row ? appId(row.app_id) : null
}
