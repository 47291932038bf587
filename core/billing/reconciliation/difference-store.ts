import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Cursor } from '../../shared/cursor.ts'
import { accountColumn } from '../payments/customer-store.ts'
import type { PaymentProcessor, Plane, ProcessorAccount } from '../processor/port.ts'
import type { Difference, Problem, Subject } from './differences.ts'
import type { Place } from './progress-store.ts'

/** Writes processor_differences. */

export interface StoredDifference extends Difference {
  readonly id: string
  readonly processor: PaymentProcessor['kind']
  readonly at: ProcessorAccount
  readonly appId: string | null
  /** The processor's id of the payment. */
  readonly processorPaymentId: string
  /** Our payment; null if we have none. */
  readonly paymentId: string | null
  readonly foundAt: Date
  readonly resolvedAt: Date | null
  readonly resolution: string | null
  /** Null if a later comparison resolved it. */
  readonly resolvedBy: string | null
}

interface DifferenceRow {
  id: string
  processor: PaymentProcessor['kind']
  plane: Plane
  account_id: string
  app_id: string | null
  subject: Subject
  problem: Problem
  processor_payment_id: string
  payment_id: string | null
  ours: bigint | null
  theirs: bigint | null
  currency: string
  found_at: Date
  resolved_at: Date | null
  resolution: string | null
  resolved_by: string | null
}

const columns = `id, processor, plane, account_id, app_id, subject, problem, processor_payment_id, payment_id, ours, theirs, currency,
  found_at, resolved_at, resolution, resolved_by`

const fromRow = (row: DifferenceRow): StoredDifference => ({
  id: row.id,
  processor: row.processor,
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  appId: row.app_id,
  subject: row.subject,
  problem: row.problem,
  processorPaymentId: row.processor_payment_id,
  paymentId: row.payment_id,
  ours: row.ours,
  theirs: row.theirs,
  currency: row.currency,
  foundAt: row.found_at,
  resolvedAt: row.resolved_at,
  resolution: row.resolution,
  resolvedBy: row.resolved_by,
})

/**
 * Inserts a difference. Returns false if the same one is open, or an operator has resolved one with
 * the same figures.
 */
export async function insertDifference(db: Db, difference: StoredDifference): Promise<boolean> {
  const account = accountColumn(difference.at)
  const { rowCount } = await db.query(sql`
    insert into processor_differences (id, processor, plane, account_id, app_id, subject, problem, processor_payment_id,
                                       payment_id, ours, theirs, currency, found_at)
    select ${difference.id}::uuid, ${difference.processor}, ${difference.at.plane}, ${account}, ${difference.appId}::uuid, ${difference.subject}, ${difference.problem},
           ${difference.processorPaymentId}, ${difference.paymentId}::uuid, ${difference.ours}::bigint, ${difference.theirs}::bigint,
           ${difference.currency}, ${difference.foundAt}::timestamptz
    where not exists (
      select from processor_differences
      where processor_payment_id = ${difference.processorPaymentId} and processor = ${difference.processor} and plane = ${difference.at.plane}
        and account_id = ${account} and subject = ${difference.subject} and problem = ${difference.problem}
        and ours is not distinct from ${difference.ours}::bigint and theirs is not distinct from ${difference.theirs}::bigint
        and resolved_by is not null)
    on conflict do nothing`)
  return rowCount === 1
}

/** Returns the open differences of payments of an account. */
export async function findOpen(
  db: Db,
  { processor, at }: Place,
  ids: readonly string[],
): Promise<StoredDifference[]> {
  const rows = await many<DifferenceRow>(db, {
    text: `
    select ${columns}
    from processor_differences
    where processor_payment_id = any($1::text[]) and processor = $2 and plane = $3 and account_id = $4 and resolved_at is null`,
    values: [ids, processor, at.plane, accountColumn(at)],
  })
  return rows.map(fromRow)
}

/** Lists the payments of an account with open differences, by the processor's id. */
export async function listOpenPayments(
  db: Db,
  { processor, at }: Place,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    select distinct processor_payment_id as id
    from processor_differences
    where processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)} and resolved_at is null
      and problem <> 'unknown' and processor_payment_id > ${after}
    order by id
    limit ${limit}`,
  )
  return rows.map(({ id }) => id)
}

/** Resolves an open difference. Returns it; null if it is not open. */
export async function resolve(
  db: Db,
  id: string,
  { at, resolution, by }: { readonly at: Date; readonly resolution: string; by: string | null },
): Promise<StoredDifference | null> {
  const row = await maybeOne<DifferenceRow>(db, {
    text: `
    update processor_differences
    set resolved_at = $2, resolution = $3, resolved_by = $4
    where id = $1 and resolved_at is null
    returning ${columns}`,
    values: [id, at, resolution, by],
  })
  return row && fromRow(row)
}

export async function findDifference(db: Db, id: string): Promise<StoredDifference | null> {
  const row = await maybeOne<DifferenceRow>(db, {
    text: `select ${columns} from processor_differences where id = $1`,
    values: [id],
  })
  return row && fromRow(row)
}

/** Lists differences, newest first. */
export async function listDifferences(
  db: Db,
  { open, after, limit }: { open: boolean; readonly after: Cursor | null; readonly limit: number },
): Promise<StoredDifference[]> {
  const rows = await many<DifferenceRow>(db, {
    text: `
    select ${columns}
    from processor_differences
    where (not $1::boolean or resolved_at is null)
      and ($2::timestamptz is null or (found_at, id) < ($2, $3::uuid))
    order by found_at desc, id desc
    limit $4`,
    values: [open, after?.createdAt ?? null, after?.id ?? null, limit],
  })
  return rows.map(fromRow)
}

/** Counts open differences by subject. */
export const countOpen = (
  db: Db,
): Promise<{ readonly subject: Subject; readonly count: number }[]> =>
  many(
    db,
    sql`
    select subject, count(*)::int as count
    from processor_differences
    where resolved_at is null
    group by subject`,
  )
