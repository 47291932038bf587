import { setTimeout as sleep } from 'node:timers/promises'
import type { Pool } from '../../core/lib/sql.ts'
import type { CoreClient } from '../../deploy/cli/client.ts'

/** What the database has of the signed tickets. */
export interface Booked {
  readonly tickets: number
  readonly doubled: number
  readonly quarantined: number
}

const bookedMs = 180_000

/** Waits until the tickets are in the database, at most three minutes. */
export async function untilBooked(pool: Pool, tickets: number): Promise<Booked> {
  for (const until = Date.now() + bookedMs; ; await sleep(200)) {
    const { rows } = await pool.query<{ tickets: number }>(
      'select count(*)::int as tickets from tickets',
    )
    if ((rows[0]?.tickets ?? 0) >= tickets || Date.now() > until) return readBooked(pool)
  }
}

async function readBooked(pool: Pool): Promise<Booked> {
  const { rows } = await pool.query<Booked>(
    `select count(*)::int as tickets, (count(*) - count(distinct event_id))::int as doubled,
            (select count(*)::int from quarantine) as quarantined from tickets`,
  )
  if (!rows[0]) throw new Error('the database has no count of tickets')
  return rows[0]
}

const linesMax = 20

/** Returns the differences that `verify` finds in all books, at most twenty. */
export async function verifyAll({ books }: CoreClient): Promise<string[]> {
  const differences: string[] = []
  for await (const { clientId, difference } of books.verifyBooks({ clientId: undefined }))
    if (difference && differences.length < linesMax)
      differences.push(`${clientId} ${JSON.stringify(difference)}`)
  return differences
}

/** Tables with a row for each ticket, session, user, request, refusal or minute. Others stay small. */
const growing =
  /^(tickets|ticket_.*|envelopes|ledger_entries|usage_hourly|authorised_sessions|idempotency_.*|end_users|api_keys|grants|grant_ends|balances|periods|subscriptions|subscription_history|audit_log|stream_offsets|receipt_.*|checkpoints|book_heads|rates|starter_raises|decisions|owner_holds|credit_quotas)(_\d.*|_p.*)?$/

export type TableSizes = ReadonlyMap<string, number>

/** Returns the rows of each table that should not grow. */
export async function readTableSizes(pool: Pool): Promise<TableSizes> {
  const { rows } = await pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relkind = 'r' and relnamespace = current_schema()::regnamespace order by 1`,
  )
  const sizes = new Map<string, number>()
  for (const { name } of rows.filter((table) => !growing.test(table.name))) {
    const counted = await pool.query<{ rows: number }>(
      `select count(*)::int as rows from "${name}"`,
    )
    sizes.set(name, counted.rows[0]?.rows ?? 0)
  }
  return sizes
}

const rowsMax = 1_000
const shareMax = 1.25

/** Returns the tables that grew by more than a quarter and a thousand rows. */
export const grownTables = (before: TableSizes, after: TableSizes): string[] =>
  [...after]
    .map(([name, rows]) => ({ name, rows, earlier: before.get(name) ?? 0 }))
    .filter(({ rows, earlier }) => rows > Math.max(earlier * shareMax, earlier + rowsMax))
    .map(({ name, rows, earlier }) => `${name}: ${earlier} to ${rows} rows`)
