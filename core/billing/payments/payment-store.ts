import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Cursor } from '../../shared/cursor.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type Plane, type ProcessorAccount, type UsdCents, usdCents } from '../processor/port.ts'
import { accountColumn } from './customer-store.ts'

/** Writes payments and payment_returns: money that arrived, and money that went back. */

export type PaymentPurpose = 'top_up' | 'plan' | 'invoice'

export interface StoredPayment extends UserKey {
  readonly id: string
  readonly purpose: PaymentPurpose
  readonly amount: UsdCents
  readonly fee: UsdCents
  readonly at: ProcessorAccount
  readonly processorId: string
  readonly checkoutId: string | null
  /** Of a top-up: the credit that it bought. */
  readonly creditId: string | null
  /** The invoice that it pays; null for a top-up. */
  readonly invoiceId: string | null
  readonly createdAt: Date
}

interface PaymentRow {
  app_id: string
  user_id: string
  id: string
  purpose: PaymentPurpose
  amount_cents: bigint
  fee_cents: bigint
  plane: Plane
  account_id: string
  processor_id: string
  checkout_id: string | null
  credit_id: string | null
  invoice_id: string | null
  created_at: Date
}

const fromRow = (row: PaymentRow): StoredPayment => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  purpose: row.purpose,
  amount: usdCents(row.amount_cents),
  fee: usdCents(row.fee_cents),
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  processorId: row.processor_id,
  checkoutId: row.checkout_id,
  creditId: row.credit_id,
  invoiceId: row.invoice_id,
  createdAt: row.created_at,
})

/** Records a payment. Returns false if the processor's payment is recorded already. */
export async function insertPayment(db: Db, payment: StoredPayment): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into payments (app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, checkout_id,
                          credit_id, invoice_id, created_at)
    values (${payment.appId}, ${payment.userId}, ${payment.id}, ${payment.purpose}, ${payment.amount}, ${payment.fee},
            ${payment.at.plane}, ${accountColumn(payment.at)}, ${payment.processorId}, ${payment.checkoutId},
            ${payment.creditId}, ${payment.invoiceId}, ${payment.createdAt})
    on conflict (app_id, processor_id) do nothing`)
  return rowCount === 1
}

/** Money as it arrived, before it is booked. */
export type NewMoney = Pick<StoredPayment, 'amount' | 'fee' | 'at' | 'processorId' | 'checkoutId'>

/** Like `insertPayment`, but throws for a recorded payment, so that it is booked only once. */
export async function insertMoney(db: Db, payment: StoredPayment): Promise<void> {
  if (!(await insertPayment(db, payment)))
    throw new Error(`payment ${payment.processorId} is recorded already`)
}

/** Returns the payment that the processor knows by this id in that account. */
export async function findByProcessorId(
  db: Db,
  processorId: string,
  at: ProcessorAccount,
): Promise<StoredPayment | null> {
  const row = await maybeOne<PaymentRow>(
    db,
    sql`
    select app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, checkout_id, credit_id,
           invoice_id, created_at
    from payments
    where processor_id = ${processorId} and plane = ${at.plane} and account_id = ${accountColumn(at)}`,
  )
  return row && fromRow(row)
}

/** Returns an app's payment; null for an unknown one. */
export async function findPayment(
  db: Db,
  { appId: app, id }: Pick<StoredPayment, 'appId' | 'id'>,
): Promise<StoredPayment | null> {
  const row = await maybeOne<PaymentRow>(
    db,
    sql`
    select app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, checkout_id, credit_id,
           invoice_id, created_at
    from payments
    where app_id = ${app} and id = ${id}`,
  )
  return row && fromRow(row)
}

export interface ListedPayment extends StoredPayment {
  readonly externalUserId: string
  readonly refunded: bigint
  /** Disputes that were not won. */
  readonly disputed: bigint
  readonly state: PaymentState
}

interface ListedRow extends PaymentRow {
  external_user_id: string
  refunded: bigint
  disputed: bigint
  state: PaymentState
}

/** `disputed` has precedence: something of the payment is in a dispute that was not won. */
export const paymentStates = ['received', 'partly_refunded', 'refunded', 'disputed'] as const
export type PaymentState = (typeof paymentStates)[number]

export interface PaymentQuery {
  readonly appId: AppId
  /** Null for all users. */
  readonly externalUserId: string | null
  /** Null for all states. */
  readonly state: PaymentState | null
  /** Included; null for no bound. */
  readonly since: Date | null
  /** Excluded; null for no bound. */
  readonly until: Date | null
  readonly after: Cursor | null
  readonly limit: number
}

/** Lists an app's payments, newest first. */
export async function listPayments(
  db: Db,
  { appId: app, externalUserId, state, since, until, after, limit }: PaymentQuery,
): Promise<ListedPayment[]> {
  const rows = await many<ListedRow>(
    db,
    sql`
    select p.app_id, p.user_id, p.id, p.purpose, p.amount_cents, p.fee_cents, p.plane, p.account_id, p.processor_id,
           p.checkout_id, p.credit_id, p.invoice_id, p.created_at, u.external_user_id, r.refunded, r.disputed, s.state
    from payments p
    join end_users u on u.app_id = p.app_id and u.id = p.user_id
    cross join lateral (
      select (coalesce(sum(amount_cents) filter (where kind = 'refund'), 0)
              - coalesce(sum(amount_cents) filter (where kind = 'refund_failed'), 0))::bigint as refunded,
             (coalesce(sum(amount_cents) filter (where kind = 'dispute'), 0)
              - coalesce(sum(amount_cents) filter (where kind = 'dispute_won'), 0))::bigint as disputed
      from payment_returns
      where app_id = ${app} and payment_id = p.id) r
    cross join lateral (
      select case when r.disputed > 0 then 'disputed' when r.refunded >= p.amount_cents then 'refunded'
                  when r.refunded > 0 then 'partly_refunded' else 'received' end as state) s
    where p.app_id = ${app} and (${externalUserId}::text is null or u.external_user_id = ${externalUserId})
      and (${state}::text is null or s.state = ${state})
      and (${since}::timestamptz is null or p.created_at >= ${since})
      and (${until}::timestamptz is null or p.created_at < ${until})
      and (${after?.id ?? null}::uuid is null or (p.created_at, p.id) < (${after?.createdAt ?? null}, ${after?.id ?? null}::uuid))
    order by p.created_at desc, p.id desc
    limit ${limit}`,
  )
  return rows.map((row) => ({
    ...fromRow(row),
    externalUserId: row.external_user_id,
    refunded: row.refunded,
    disputed: row.disputed,
    state: row.state,
  }))
}

/** `refund_failed` and `dispute_won` bring the money of an earlier return back. */
export type ReturnKind = 'refund' | 'refund_failed' | 'dispute' | 'dispute_won'

export interface StoredReturn extends UserKey {
  readonly id: string
  readonly paymentId: string
  readonly kind: ReturnKind
  readonly amount: UsdCents
  readonly createdAt: Date
}

/** Sums of what went back of a payment, by kind. */
export async function sumReturns(
  db: Db,
  { appId: app, id }: Pick<StoredPayment, 'appId' | 'id'>,
): Promise<Readonly<Record<ReturnKind, bigint>>> {
  return one<Record<ReturnKind, bigint>>(
    db,
    sql`
    select coalesce(sum(amount_cents) filter (where kind = 'refund'), 0)::bigint as refund,
           coalesce(sum(amount_cents) filter (where kind = 'refund_failed'), 0)::bigint as refund_failed,
           coalesce(sum(amount_cents) filter (where kind = 'dispute'), 0)::bigint as dispute,
           coalesce(sum(amount_cents) filter (where kind = 'dispute_won'), 0)::bigint as dispute_won
    from payment_returns
    where app_id = ${app} and payment_id = ${id}`,
  )
}

/** Locks a payment against concurrent returns until the transaction ends. */
export async function lockPayment(
  db: Db,
  { appId: app, id }: Pick<StoredPayment, 'appId' | 'id'>,
): Promise<void> {
  await db.query(sql`select from payments where app_id = ${app} and id = ${id} for update`)
}

export async function insertReturn(db: Db, paymentReturn: StoredReturn): Promise<void> {
  await db.query(sql`
    insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at)
    values (${paymentReturn.appId}, ${paymentReturn.userId}, ${paymentReturn.id}, ${paymentReturn.paymentId}, ${paymentReturn.kind}, ${paymentReturn.amount}, ${paymentReturn.createdAt})`)
}

/** A return that the ledger has not taken yet, with the credit that its payment bought. */
export interface OpenReturn extends StoredReturn {
  readonly creditId: string | null
  /** The invoice that its payment paid. */
  readonly invoiceId: string | null
}

interface OpenReturnRow {
  app_id: string
  user_id: string
  id: string
  payment_id: string
  kind: ReturnKind
  amount_cents: bigint
  created_at: Date
  credit_id: string | null
  invoice_id: string | null
}

const openFromRow = (row: OpenReturnRow): OpenReturn => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  paymentId: row.payment_id,
  kind: row.kind,
  amount: usdCents(row.amount_cents),
  createdAt: row.created_at,
  creditId: row.credit_id,
  invoiceId: row.invoice_id,
})

/** Lists a payment's returns that the ledger has not taken, oldest first. */
export async function listReturnsToBook(
  db: Db,
  { appId: app, id }: Pick<StoredPayment, 'appId' | 'id'>,
): Promise<OpenReturn[]> {
  const rows = await many<OpenReturnRow>(
    db,
    sql`
    select r.app_id, r.user_id, r.id, r.payment_id, r.kind, r.amount_cents, r.created_at, p.credit_id, p.invoice_id
    from payment_returns r
    join payments p on p.app_id = ${app} and p.id = ${id}
    where r.app_id = ${app} and r.payment_id = ${id} and r.booked_at is null
    order by r.created_at, r.id`,
  )
  return rows.map(openFromRow)
}

/** Lists returns that the ledger has not taken. The one whose last try is oldest comes first. */
export async function listOpenReturns(db: Db, limit: number): Promise<OpenReturn[]> {
  const rows = await many<OpenReturnRow>(
    db,
    sql`
    select r.app_id, r.user_id, r.id, r.payment_id, r.kind, r.amount_cents, r.created_at, p.credit_id, p.invoice_id
    from payment_returns r
    join payments p on p.app_id = r.app_id and p.id = r.payment_id
    where r.booked_at is null
    order by coalesce(r.tried_at, r.created_at), r.id
    limit ${limit}`,
  )
  return rows.map(openFromRow)
}

/** Marks a return as booked. Returns false if another core was faster. */
export async function markBooked(
  db: Db,
  { appId: app, id }: Pick<StoredReturn, 'appId' | 'id'>,
  at: Date,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update payment_returns
    set booked_at = ${at}
    where app_id = ${app} and id = ${id} and booked_at is null`)
  return rowCount === 1
}

/** Marks a return as not booked, in the transaction that marked it as booked. */
export async function markOpen(
  db: Db,
  { appId: app, id }: Pick<StoredReturn, 'appId' | 'id'>,
  at: Date,
): Promise<void> {
  await db.query(
    sql`update payment_returns set booked_at = null, tried_at = ${at} where app_id = ${app} and id = ${id}`,
  )
}

/** Notes that a return could not be booked, so that others come first. */
export async function saveTried(
  db: Db,
  { appId: app, id }: Pick<StoredReturn, 'appId' | 'id'>,
  at: Date,
): Promise<void> {
  await db.query(
    sql`update payment_returns set tried_at = ${at} where app_id = ${app} and id = ${id}`,
  )
}

/** Returns when the oldest return was recorded that the ledger has not taken; null without one. */
export async function openReturnsSince(db: Db): Promise<Date | null> {
  const { since } = await one<{ since: Date | null }>(
    db,
    sql`select min(created_at) as since from payment_returns where booked_at is null`,
  )
  return since
}
