import { type Pool, many, sql, tx } from '../../lib/sql.ts'

/** Tickets are kept by the month of their signing; a month is made before its first ticket comes. */

/** `2026-11` of a time in milliseconds. */
export const monthOf = (ms: number): string => new Date(ms).toISOString().slice(0, 7)

const monthName = /^\d{4}-\d{2}$/

/** Months that have a partition. */
export async function readMonths(pool: Pool): Promise<string[]> {
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

/**
 * Makes the partition of `month` unless it is there. It is made apart and then attached: that takes a lock which
 * readers and writers of the other months do not notice, where `create ... partition of` would stop them all.
 */
export async function createMonth(pool: Pool, month: string): Promise<void> {
  if (!monthName.test(month)) throw new Error(`not a month: ${month}`)
  const name = `tickets_${month.replace('-', '_')}`
  const start = `${month}-01T00:00:00Z`
  const end = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 1)).toISOString()
  await tx(pool, async (db) => {
    await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.ticket_months'))`)
    const found = await many(db, sql`select 1 from pg_class where oid = to_regclass(${name})`)
    if (found.length > 0) return
    // DDL takes no parameters; the name and both instants are made of a checked month.
    await db.query(`create table ${name} (like tickets including defaults including constraints)`)
    await db.query(
      `alter table tickets attach partition ${name} for values from ('${start}') to ('${end}')`,
    )
  })
}
