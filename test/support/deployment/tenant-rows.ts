import { createHash } from 'node:crypto'
import type { Pool } from 'pg'

/**
 * Returns a digest of a tenant's rows by table name. A row is the tenant's if its text contains one
 * of `ids`, so new tables are included automatically. Left out are traces of refusals (in the audit
 * log, at a key and in the decisions) and the times of the last use of credentials.
 */
export async function digestRows(
  database: Pool,
  ids: readonly string[],
): Promise<Readonly<Record<string, string>>> {
  const { rows: tables } = await database.query<{ name: string }>(
    `select table_name as name from information_schema.tables
    where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'decisions' order by 1`,
  )
  const digests: Record<string, string> = {}
  for (const { name } of tables) {
    const { rows } = await database.query<{ row: string }>(
      `select (to_jsonb(t) - '{refused_at,last_used_at}'::text[])::text as row from "${name}" t
      where exists (select from unnest($1::text[]) id where strpos(t::text, id) > 0)
        and not ($2 and to_jsonb(t) ->> 'status' = 'refused')
      order by 1`,
      [ids, name === 'audit_log'],
    )
    const hash = createHash('sha256')
    for (const { row } of rows) hash.update(row)
    if (rows.length > 0) digests[name] = `${rows.length} rows, ${hash.digest('hex')}`
  }
  return digests
}

/** Returns the internal ids of an app, its users and its people. */
export async function internalIds(database: Pool, clientId: string): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    `with app as (select app_id as id from clients where client_id = $1)
    select id::text from app
    union select u.id::text from end_users u join app on u.app_id = app.id
    union select m.account_id::text from members m join app on m.app_id = app.id`,
    [clientId],
  )
  return rows.map(({ id }) => id)
}
