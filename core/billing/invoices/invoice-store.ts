import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import type { Plane, UsdCents } from '../processor/port.ts'
import type { InvoiceLine, InvoiceReason } from './invoice.ts'

/** Writes invoices, invoice_lines and invoice_numbers. */

/** What a user's documents cover so far. */
export interface InvoicedState {
  /** The last covered ledger entry; 0 without an invoice. */
  readonly throughSeq: bigint
  readonly carried: UsdAttos
  /** The period that ran when usage was last invoiced; null before. */
  readonly periodStart: Date | null
  readonly issuedAt: Date | null
}

interface StateRow {
  user_id: string
  through_seq: bigint
  carried: string
  period_start: Date | null
  issued_at: Date | null
}

/** Returns what the documents of each user cover. */
export async function readStates(
  db: Db,
  users: readonly UserKey[],
): Promise<ReadonlyMap<UserId, InvoicedState>> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<StateRow>(
      db,
      sql`
    select w.user_id, i.through_seq, i.carried, i.period_start, i.issued_at
    from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    cross join lateral (
      select coalesce(max(through_seq), 0)::bigint as through_seq, coalesce(sum(carried_attos - carried_in_attos), 0) as carried,
             max(period_start) filter (where through_seq > from_seq) as period_start,
             max(issued_at) filter (where through_seq > from_seq) as issued_at
      from invoices
      where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id) i`,
    ),
  )
  return new Map(
    rows.map((row) => [
      userId(row.user_id),
      {
        throughSeq: row.through_seq,
        carried: usdAttos(BigInt(row.carried)),
        periodStart: row.period_start,
        issuedAt: row.issued_at,
      },
    ]),
  )
}

export interface UnpaidPrice extends UserKey {
  readonly planId: string
  readonly planName: string
  readonly price: UsdAttos
  readonly start: Date
  readonly end: Date
}

interface PriceRow {
  app_id: string
  user_id: string
  plan_id: string
  name: string
  price_attos: string
  starts_at: Date
  ends_at: Date
}

/** Returns the entered periods whose price is on no invoice. */
export async function findUnpaidPrices(db: Db, users: readonly UserKey[]): Promise<UnpaidPrice[]> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<PriceRow>(
      db,
      sql`
    select p.app_id, p.user_id, p.plan_id, n.name, p.price_attos, p.starts_at, p.ends_at
    from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join periods p on p.app_id = coalesce(${app}, w.app_id) and p.user_id = w.user_id and p.price_attos > 0
    join plans n on n.app_id = p.app_id and n.id = p.plan_id
    where not exists (
      select from invoice_lines
      where app_id = coalesce(${app}, p.app_id) and user_id = p.user_id and kind = 'subscription' and period_start = p.starts_at)
    order by p.user_id, p.starts_at`,
    ),
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    planId: row.plan_id,
    planName: row.name,
    price: usdAttos(BigInt(row.price_attos)),
    start: row.starts_at,
    end: row.ends_at,
  }))
}

export interface UnbilledProration extends UserKey {
  /** The plan of the period that ended early. */
  readonly planId: string
  readonly planName: string
  /** Lowers the price. Negative if an invoice has lowered it too much. */
  readonly amount: UsdAttos
  readonly start: Date
  readonly end: Date
}

interface ProrationRow {
  app_id: string
  user_id: string
  plan_id: string
  name: string
  amount: string
  starts_at: Date
  ends_at: Date
}

/** Returns the prorations, as far as no invoice has them. */
export async function findUnbilledProrations(
  db: Db,
  users: readonly UserKey[],
): Promise<UnbilledProration[]> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<ProrationRow>(
      db,
      sql`
    select r.app_id, r.user_id, r.plan_id, n.name, r.amount_attos + l.billed as amount, p.starts_at, p.ends_at
    from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join prorations r on r.app_id = coalesce(${app}, w.app_id) and r.user_id = w.user_id
    join periods p on p.app_id = coalesce(${app}, r.app_id) and p.user_id = r.user_id and p.starts_at = r.period_start
    join plans n on n.app_id = r.app_id and n.id = r.plan_id
    cross join lateral (
      select coalesce(sum(amount_attos), 0) as billed
      from invoice_lines
      where app_id = coalesce(${app}, r.app_id) and user_id = r.user_id and kind = 'proration' and period_start = r.period_start) l
    where r.amount_attos + l.billed <> 0
    order by r.user_id, p.starts_at`,
    ),
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    planId: row.plan_id,
    planName: row.name,
    amount: usdAttos(BigInt(row.amount)),
    start: row.starts_at,
    end: row.ends_at,
  }))
}

/** Returns the names of plans by id. */
export async function readPlanNames(
  db: Db,
  plans: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (plans.length === 0) return new Map()
  const rows = await many<{ id: string; name: string }>(
    db,
    sql`select id, name from plans where id = any(${plans}::uuid[])`,
  )
  return new Map(rows.map((row) => [row.id, row.name]))
}

/** Returns the processor's plane of each app. */
export async function readPlanes(
  db: Db,
  apps: readonly AppId[],
): Promise<ReadonlyMap<AppId, Plane>> {
  const rows = await many<{ id: string; is_test: boolean }>(
    db,
    sql`select id, is_test from apps where id = any(${apps}::uuid[])`,
  )
  return new Map(rows.map((row) => [appId(row.id), row.is_test ? 'test' : 'live']))
}

export type DocumentKind = 'invoice' | 'credit_note'

/**
 * Takes the next `count` numbers of an app. Returns the first. Holds the issuer's lock until the
 * transaction ends, so that a rollback returns the numbers.
 */
export async function takeNumbers(
  db: Db,
  {
    app,
    kind,
    count,
  }: { readonly app: AppId; readonly kind: DocumentKind; readonly count: number },
): Promise<bigint> {
  const [invoices, notes] = kind === 'invoice' ? [count, 0] : [0, count]
  const rows = await many<{ last_invoice: bigint; last_credit_note: bigint }>(
    db,
    sql`
    insert into invoice_numbers as n (app_id, last_invoice, last_credit_note)
    values (${app}, ${invoices}, ${notes})
    on conflict (app_id) do update
      set last_invoice = n.last_invoice + excluded.last_invoice,
          last_credit_note = n.last_credit_note + excluded.last_credit_note
    returning last_invoice, last_credit_note`,
  )
  const [row] = rows
  if (!row) throw new Error('an issuer has no numbers')
  return (kind === 'invoice' ? row.last_invoice : row.last_credit_note) - BigInt(count) + 1n
}

export interface NewDocument extends UserKey {
  readonly id: string
  readonly kind: DocumentKind
  readonly number: bigint
  readonly reason: InvoiceReason | NoteReason
  readonly price: UsdAttos
  readonly debt: UsdAttos
  readonly carriedIn: UsdAttos
  readonly carried: UsdAttos
  readonly total: UsdCents
  readonly plane: Plane
  readonly periodStart: Date
  readonly periodEnd: Date
  readonly issuedAt: Date
  /** Of an invoice. */
  readonly range: { readonly fromSeq: bigint; readonly throughSeq: bigint } | null
  /** Of a credit note. */
  readonly corrects?: {
    readonly invoiceId: string
    readonly note: string
  }
  readonly lines: readonly InvoiceLine[]
}

export const noteReasons = ['void', 'refund', 'credit'] as const
export type NoteReason = (typeof noteReasons)[number]

/** Writes documents with their lines, in two statements. */
export async function insertDocuments(db: Db, documents: readonly NewDocument[]): Promise<void> {
  if (documents.length === 0) return
  const column = <T>(value: (one: NewDocument) => T): T[] => documents.map(value)
  await db.query(sql`
    insert into invoices (app_id, user_id, id, kind, number, invoice_id, reason, note, from_seq, through_seq, price_attos,
                          debt_attos, carried_in_attos, carried_attos, total_cents, plane, period_start, period_end, issued_at)
    select * from unnest(
      ${column((one) => one.appId)}::uuid[], ${column((one) => one.userId)}::uuid[], ${column((one) => one.id)}::uuid[],
      ${column((one) => one.kind)}::text[], ${column((one) => one.number)}::bigint[],
      ${column((one) => one.corrects?.invoiceId ?? null)}::uuid[], ${column((one) => one.reason)}::text[],
      ${column((one) => one.corrects?.note ?? null)}::text[],
      ${column((one) => one.range?.fromSeq ?? null)}::bigint[], ${column((one) => one.range?.throughSeq ?? null)}::bigint[],
      ${column((one) => one.price)}::numeric[], ${column((one) => one.debt)}::numeric[],
      ${column((one) => one.carriedIn)}::numeric[], ${column((one) => one.carried)}::numeric[],
      ${column((one) => one.total)}::bigint[], ${column((one) => one.plane)}::text[],
      ${column((one) => one.periodStart)}::timestamptz[], ${column((one) => one.periodEnd)}::timestamptz[],
      ${column((one) => one.issuedAt)}::timestamptz[])`)
  await insertLines(db, documents)
}

async function insertLines(db: Db, documents: readonly NewDocument[]): Promise<void> {
  const rows = documents.flatMap(({ appId: app, userId: user, id, lines }) =>
    lines.map((line, index) => ({ app, user, id, position: index + 1, ...line })),
  )
  if (rows.length === 0) return
  const column = <T>(value: (row: (typeof rows)[number]) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into invoice_lines (app_id, user_id, invoice_id, position, kind, description, plan_id, pipeline, model_id,
                               charged_app_id, tickets, units, amount_attos, period_start, period_end)
    select * from unnest(
      ${column((row) => row.app)}::uuid[], ${column((row) => row.user)}::uuid[], ${column((row) => row.id)}::uuid[],
      ${column((row) => row.position)}::integer[], ${column((row) => row.kind)}::text[],
      ${column((row) => row.description)}::text[], ${column((row) => row.planId ?? null)}::uuid[],
      ${column((row) => row.pipeline ?? null)}::text[], ${column((row) => row.modelId ?? null)}::text[],
      ${column((row) => row.chargedAppId ?? null)}::uuid[], ${column((row) => row.tickets ?? null)}::bigint[],
      ${column((row) => row.units ?? null)}::numeric[], ${column((row) => row.amount)}::numeric[],
      ${column((row) => row.periodStart)}::timestamptz[], ${column((row) => row.periodEnd)}::timestamptz[])`)
}
