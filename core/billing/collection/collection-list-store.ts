import { type Db, many, sql } from '../../lib/sql.ts'
import type { Cursor } from '../../shared/cursor.ts'
import type { AppId } from '../../shared/ids.ts'
import type { CollectionReason, CollectionState } from './collection-store.ts'

/** Reads collections for people. */

export interface ListedCollection {
  readonly id: string
  readonly externalUserId: string
  readonly reason: CollectionReason
  readonly state: CollectionState
  readonly invoiceId: string | null
  /** Cents. */
  readonly total: bigint | null
  readonly createdAt: Date
  /** Null after the end. */
  readonly dueAt: Date | null
  readonly failures: number
  readonly failure: string | null
}

export interface CollectionQuery {
  readonly appId: AppId
  /** Null for all users. */
  readonly externalUserId: string | null
  readonly isOpen: boolean
  readonly after: Cursor | null
  readonly limit: number
}

interface ListedRow {
  id: string
  external_user_id: string
  reason: CollectionReason
  state: CollectionState
  invoice_id: string | null
  total_cents: bigint | null
  requested_at: Date
  due_at: Date
  ended_at: Date | null
  failures: number
  failure: string | null
}

/** Lists an app's collections, newest first. */
export async function listCollections(
  db: Db,
  { appId: app, externalUserId, isOpen, after, limit }: CollectionQuery,
): Promise<ListedCollection[]> {
  const rows = await many<ListedRow>(
    db,
    sql`
    select c.id, u.external_user_id, c.reason, c.state, c.invoice_id, i.total_cents, c.requested_at, c.due_at, c.ended_at,
           c.failures, c.failure
    from collections c
    join end_users u on u.app_id = c.app_id and u.id = c.user_id
    left join invoices i on i.app_id = ${app} and i.id = c.invoice_id
    where c.app_id = ${app} and (${externalUserId}::text is null or u.external_user_id = ${externalUserId})
      and (not ${isOpen} or c.ended_at is null)
      and (${after?.id ?? null}::uuid is null
           or (c.requested_at, c.id) < (${after?.createdAt ?? null}, ${after?.id ?? null}::uuid))
    order by c.requested_at desc, c.id desc
    limit ${limit}`,
  )
  return rows.map((row) => ({
    id: row.id,
    externalUserId: row.external_user_id,
    reason: row.reason,
    state: row.state,
    invoiceId: row.invoice_id,
    total: row.total_cents,
    createdAt: row.requested_at,
    dueAt: row.ended_at === null ? row.due_at : null,
    failures: row.failures,
    failure: row.failure,
  }))
}
