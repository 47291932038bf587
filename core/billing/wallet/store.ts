import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'

/** Reads ledgers and plans for wallets. */

export interface PayPerUsePlan {
  readonly id: string
  readonly name: string
  /** Null is charged at the end of each period. */
  readonly threshold: UsdAttos | null
}

/**
 * Lists an app's active plans of type usage, the one that changed last first. Starter is never
 * charged.
 */
export async function listPayPerUse(db: Db, app: AppId): Promise<PayPerUsePlan[]> {
  const rows = await many<{ id: string; name: string; threshold: string | null }>(
    db,
    sql`
    select p.id, p.name, v.charge_threshold_attos as threshold
    from plans p
    join lateral (
      select type, charge_threshold_attos
      from plan_versions
      where app_id = p.app_id and plan_id = p.id
      order by version desc
      limit 1) v on v.type = 'usage'
    where p.app_id = ${app} and p.status = 'active' and p.deleted_at is null
      and not p.is_network_default and not p.is_starter_default
    order by p.updated_at desc, p.id
    limit 100`,
  )
  return rows.map(({ id, name, threshold }) => ({
    id,
    name,
    threshold: threshold === null ? null : usdAttos(BigInt(threshold)),
  }))
}

/** Makes this transaction a read-only snapshot. */
export async function readAtOnce(db: Db): Promise<void> {
  await db.query(sql`set transaction isolation level repeatable read, read only`)
}

export interface LedgerLine {
  readonly seq: bigint
  readonly kind: string
  readonly amount: bigint
  readonly overage: bigint
  /** Debt that a payment settled. */
  readonly collected: bigint
  readonly balanceAfter: bigint
  readonly tickets: number
  /** Of a grant: `included` or `grant`; null for other entries. */
  readonly creditKind: string | null
  readonly isPaid: boolean
  /** Of a payment: whether the app's owner took over the debt. */
  readonly isTakenOver: boolean
  readonly reason: string | null
  readonly author: string | null
  readonly createdAt: Date
}

interface LineRow {
  seq: bigint
  kind: string
  amount_attos: string
  overage_attos: string
  collected_attos: string
  balance_after_attos: string
  ticket_count: number | null
  credit_kind: string | null
  is_paid: boolean
  is_taken_over: boolean
  reason: string | null
  author: string | null
  created_at: Date
}

/**
 * Lists a user's ledger entries with a lower number than `before`, newest first. Leaves out payments
 * that have a document (document-store.ts).
 */
export async function listLines(
  db: Db,
  { appId: app, userId }: UserKey,
  { before, limit }: { readonly before: bigint | null; readonly limit: number },
): Promise<LedgerLine[]> {
  const rows = await many<LineRow>(
    db,
    sql`
    select e.seq, e.kind, e.amount_attos, e.overage_attos, e.collected_attos, e.balance_after_attos, e.ticket_count, g.kind as credit_kind,
           exists (select from payments where app_id = ${app} and credit_id = g.id) as is_paid,
           exists (select from billing_mode_changes where app_id = ${app} and id = e.cause_id) as is_taken_over,
           a.reason, a.author, e.created_at
    from ledger_entries e
    left join grants g on e.kind = 'grant' and g.app_id = ${app} and g.user_id = e.user_id and g.id = e.cause_id
    left join adjustments a on e.kind = 'adjustment' and a.app_id = ${app} and a.user_id = e.user_id and a.id = e.cause_id
    where e.app_id = ${app} and e.user_id = ${userId} and (${before}::bigint is null or e.seq < ${before})
      and e.kind <> 'unpriced'
      and not (e.kind = 'payment' and (
        exists (select from payments where app_id = ${app} and id = e.cause_id)
        or exists (select from payment_returns where app_id = ${app} and id = e.cause_id)
        or exists (select from invoices where app_id = ${app} and id = e.cause_id)))
    order by e.seq desc
    limit ${limit}`,
  )
  return rows.map((row) => ({
    seq: row.seq,
    kind: row.kind,
    amount: BigInt(row.amount_attos),
    overage: BigInt(row.overage_attos),
    collected: BigInt(row.collected_attos),
    balanceAfter: BigInt(row.balance_after_attos),
    tickets: row.ticket_count ?? 0,
    creditKind: row.credit_kind,
    isPaid: row.is_paid,
    isTakenOver: row.is_taken_over,
    reason: row.reason,
    author: row.author,
    createdAt: row.created_at,
  }))
}
