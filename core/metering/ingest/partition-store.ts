import { type Db, type Pool, many, sql, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { partitionOf } from '../../shared/database/ticket-months.ts'

/**
 * Tickets are partitioned by the month of signing; a partition is created before its first ticket
 * arrives.
 */

const dayMs = 86_400_000

/** Creates the partitions of `tickets`. */
export function createPartitions(pool: Pool, now: Now) {
  const known = new Set<string>()

  /** Ensures that tickets signed at any of `times` (milliseconds) have a partition. */
  async function ensure(times: Iterable<number>): Promise<void> {
    const days = new Set<number>()
    for (const time of times) days.add(Math.floor(time / dayMs))
    const months = new Set([...days].map((day) => monthOf(day * dayMs)))
    const missing = [...months].filter((month) => !known.has(month)).sort()
    if (missing.length === 0) return
    for (const month of await readMonths(pool)) known.add(month)
    for (const month of missing.filter((month) => !known.has(month))) {
      await createMonth(pool, month)
      known.add(month)
    }
  }

  /** Creates the partitions of this month and the next before they are needed. */
  async function prepare(): Promise<void> {
    const at = now()
    await ensure([at.getTime(), Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1)])
  }

  return { ensure, prepare }
}

export type Partitions = ReturnType<typeof createPartitions>

/** Returns the month of a time in milliseconds, such as `2026-11`. */
const monthOf = (ms: number): string => new Date(ms).toISOString().slice(0, 7)

/** Returns the months that have a partition. */
async function readMonths(pool: Pool): Promise<string[]> {
  const rows = await many<{ name: string }>(
    pool,
    sql`
    select c.relname as name
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'tickets'::regclass`,
  )
  return rows.map((row) => row.name.replace(/^tickets_(\d{4})_(\d{2})$/, '$1-$2'))
}

/** Creates the partition of `month` unless it exists. */
const createMonth = (pool: Pool, month: string): Promise<void> =>
  tx(pool, (db) => createPartition(db, month))

/**
 * Creates the partition of `month` unless it exists: as a separate table, which is then attached.
 * The lock for attaching does not affect other months; `create ... partition of` would block all
 * readers and writers. `db` must be a transaction.
 */
export async function createPartition(db: Db, month: string): Promise<void> {
  const name = partitionOf(month)
  const start = `${month}-01T00:00:00Z`
  const end = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 1)).toISOString()
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.ticket_months'))`)
  const existing = await many(db, sql`select 1 from pg_class where oid = to_regclass(${name})`)
  if (existing.length > 0) return
  // DDL takes no parameters; the name and both instants derive from a month with a checked format.
  await db.query(`create table ${name} (like tickets including defaults including constraints)`)
  await db.query(
    `alter table tickets attach partition ${name} for values from ('${start}') to ('${end}')`,
  )
}
