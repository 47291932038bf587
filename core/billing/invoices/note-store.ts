import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type Plane, type UsdCents, usdCents } from '../processor/port.ts'

/** Reads what credit notes depend on. */

/** An invoice, and what happened to it. */
export interface NotedInvoice extends UserKey {
  readonly id: string
  readonly number: bigint
  readonly price: UsdAttos
  readonly total: UsdCents
  readonly plane: Plane
  readonly isPaid: boolean
  readonly isVoid: boolean
  /** Sum of its credit notes. */
  readonly credited: bigint
}

interface InvoiceRef {
  readonly appId: AppId
  readonly id: string
}

/** Returns the user of an invoice; null for an unknown invoice, and for a credit note. */
export async function findInvoicedUser(
  db: Db,
  { appId: app, id }: InvoiceRef,
): Promise<UserKey | null> {
  const row = await maybeOne<{ user_id: string }>(
    db,
    sql`select user_id from invoices where app_id = ${app} and id = ${id} and kind = 'invoice'`,
  )
  return row && { appId: app, userId: userId(row.user_id) }
}

/** Returns an invoice with its payment and credit notes. The account must be locked. */
export async function findNoted(
  db: Db,
  { appId: app, id }: InvoiceRef,
): Promise<NotedInvoice | null> {
  const row = await maybeOne<{
    app_id: string
    user_id: string
    id: string
    number: bigint
    price_attos: string
    total_cents: bigint
    plane: Plane
    is_paid: boolean
    is_void: boolean
    credited: bigint
  }>(
    db,
    sql`
    select i.app_id, i.user_id, i.id, i.number, i.price_attos, i.total_cents, i.plane,
           exists (select from payments where app_id = ${app} and invoice_id = i.id) as is_paid,
           coalesce(bool_or(n.reason = 'void'), false) as is_void, (-coalesce(sum(n.total_cents), 0))::bigint as credited
    from invoices i
    left join invoices n on n.app_id = ${app} and n.invoice_id = i.id
    where i.app_id = ${app} and i.id = ${id} and i.kind = 'invoice'
    group by i.app_id, i.id`,
  )
  return (
    row && {
      appId: appId(row.app_id),
      userId: userId(row.user_id),
      id: row.id,
      number: row.number,
      price: usdAttos(BigInt(row.price_attos)),
      total: usdCents(row.total_cents),
      plane: row.plane,
      isPaid: row.is_paid,
      isVoid: row.is_void,
      credited: row.credited,
    }
  )
}
