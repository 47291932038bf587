import { type Column, quoted } from '../../db/whole-tables.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'
import type { HistoryTable } from './tables.ts'

/** Reads and writes whole tables. Names come from `tables.ts` and from the catalogue. */

async function primaryKey(db: Db, table: string): Promise<string> {
  const { columns } = await one<{ columns: string }>(
    db,
    sql`
    select string_agg(quote_ident(a.attname), ', ' order by k.place) as columns
    from pg_index i
    cross join lateral unnest(i.indkey::int[]) with ordinality k (attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = to_regclass(${table}) and i.indisprimary`,
  )
  return columns
}

/** Opens the cursor `books` over the rows of a table, each a JSON array of texts. */
export async function openRows(
  db: Db,
  table: string,
  {
    definition,
    columns,
  }: { readonly definition: HistoryTable; readonly columns: readonly Column[] },
): Promise<void> {
  const fields = columns.map(({ name }) => `${quoted(name)}::text`).join(', ')
  const order = definition.order ?? (await primaryKey(db, table))
  await db.query(
    `declare books no scroll cursor for select json_build_array(${fields})::text as line
     from ${quoted(table)} where ${definition.where ?? 'true'} order by ${order}`,
  )
}

export async function fetchRows(db: Db, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ line: string }>(`fetch ${Math.trunc(limit)} from books`)
  return rows.map(({ line }) => line)
}

export const closeRows = async (db: Db): Promise<void> => {
  await db.query('close books')
}

/** Inserts rows as `openRows` returns them. Throws for a text that the column's type rejects. */
export async function insertRows(
  db: Db,
  table: string,
  { columns, lines }: { readonly columns: readonly Column[]; readonly lines: readonly string[] },
): Promise<void> {
  const names = columns.map(({ name }) => quoted(name)).join(', ')
  const values = columns.map(({ type }, at) => `(r.line ->> ${at})::${type}`).join(', ')
  await db.query({
    text: `insert into ${quoted(table)} (${names}) overriding system value
           select ${values} from unnest($1::jsonb[]) with ordinality r (line, place) order by r.place`,
    values: [lines],
  })
}

/** Continues the generated ids of a table after its rows. */
export async function continueIds(db: Db, table: string): Promise<void> {
  const generated = await many<{ name: string }>(
    db,
    sql`
    select attname as name
    from pg_attribute
    where attrelid = to_regclass(${table}) and attnum > 0 and not attisdropped
      and pg_get_serial_sequence(${table}, attname) is not null`,
  )
  for (const { name } of generated)
    await db.query({
      text: `select setval(pg_get_serial_sequence($1, $2), greatest(1, max(${quoted(name)})), count(*) > 0) from ${quoted(table)}`,
      values: [table, name],
    })
}
