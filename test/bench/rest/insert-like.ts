import { type Pool, type PoolClient, escapeIdentifier } from 'pg'

/** Inserts a row, with values for its fresh columns in their order. */
export type Insert = (db: PoolClient, fresh: readonly unknown[]) => Promise<void>

/**
 * Returns a prepared insert of rows like the one that `where` finds: the same values in all columns
 * except `fresh`. Thus the baseline writes what the service writes, with any set of columns.
 */
export async function insertLike(
  pool: Pool,
  { table, where, fresh }: { table: string; where: string; fresh: readonly string[] },
): Promise<Insert> {
  const { rows } = await pool.query<{ row: Record<string, unknown> }>(
    `select to_jsonb(t) as row from ${table} t where ${where} limit 1`,
  )
  const row = rows[0]?.row
  if (row === undefined) throw new Error(`the service has written no row like that into ${table}`)
  const others = Object.keys(row).filter((column) => !fresh.includes(column))
  const columns = [...fresh, ...others]
  const values = others.map((column) => {
    const value = row[column]
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    return isObject ? JSON.stringify(value) : value
  })
  const text =
    `insert into ${table} (${columns.map(escapeIdentifier).join(', ')}) ` +
    `values (${columns.map((_, index) => `$${index + 1}`).join(', ')})`
  const name = `${table} ${fresh.join(' ')}`
  return async (db, own) => void (await db.query({ name, text, values: [...own, ...values] }))
}
