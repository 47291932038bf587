import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import { quoted } from '../../db/whole-tables.ts'
import type { SequenceState } from './backup-file.ts'

/** Reads and changes the schema that a backup is made of, or restored to. */

/** Returns every table of the schema by name, without partitions and without `migrations`. */
export async function listTables(db: Db): Promise<{ name: string; bytes: bigint }[]> {
  return many<{ name: string; bytes: bigint }>(
    db,
    sql`
    select c.relname as name,
           (select coalesce(sum(pg_table_size(t.relid)), 0)::bigint from pg_partition_tree(c.oid) t)
             + case when c.relkind = 'r' then pg_table_size(c.oid) else 0 end as bytes
    from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname <> 'migrations'
    order by c.relname`,
  )
}

/** Returns the applied migrations, in their order; null for a database without that table. */
export async function listMigrations(db: Db): Promise<string[] | null> {
  const table = await maybeOne(
    db,
    sql`select 1 from pg_class where oid = to_regclass('migrations')`,
  )
  if (!table) return null
  const rows = await many<{ name: string }>(db, sql`select name from migrations order by name`)
  return rows.map(({ name }) => name)
}

/** Returns the sequences that have returned a value. */
export const listSequences = (db: Db): Promise<SequenceState[]> =>
  many<SequenceState>(
    db,
    sql`
    select sequencename as name, last_value::text as last
    from pg_sequences
    where schemaname = current_schema() and last_value is not null
    order by sequencename`,
  )

export async function setSequence(db: Db, { name, last }: SequenceState): Promise<void> {
  await db.query(sql`select setval(quote_ident(${name})::regclass, ${last}::bigint)`)
}

export interface ForeignKey {
  readonly table: string
  readonly name: string
  readonly definition: string
}

/** Drops every foreign key, so that tables can be filled in any order. Returns them. */
export async function dropForeignKeys(db: Db): Promise<ForeignKey[]> {
  const keys = await many<ForeignKey>(
    db,
    sql`
    select c.relname as table, k.conname as name, pg_get_constraintdef(k.oid) as definition
    from pg_constraint k
    join pg_class c on c.oid = k.conrelid
    where k.contype = 'f' and k.conparentid = 0 and c.relnamespace = current_schema()::regnamespace
    order by c.relname, k.conname`,
  )
  for (const { table, name } of keys)
    await db.query(`alter table ${quoted(table)} drop constraint ${quoted(name)}`)
  return keys
}

/** Creates foreign keys. Throws if a row violates one. */
export async function addForeignKeys(db: Db, keys: readonly ForeignKey[]): Promise<void> {
  for (const { table, name, definition } of keys)
    await db.query(`alter table ${quoted(table)} add constraint ${quoted(name)} ${definition}`)
}

/** Returns the tables whose rows name the pepper of a hash. */
export async function listPepperedTables(db: Db): Promise<string[]> {
  const rows = await many<{ name: string }>(
    db,
    sql`
    select c.relname as name
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    where a.attname = 'pepper_id' and not a.attisdropped and c.relkind in ('r', 'p') and not c.relispartition
      and c.relnamespace = current_schema()::regnamespace
    order by 1`,
  )
  return rows.map(({ name }) => name)
}

/** Returns the ids of the peppers that rows of `tables` name. */
export async function listPepperIds(db: Db, tables: readonly string[]): Promise<string[]> {
  if (tables.length === 0) return []
  const each = tables.map((table) => `select pepper_id from ${quoted(table)}`).join(' union ')
  const { rows } = await db.query<{ pepper_id: string }>(each)
  return rows.map((row) => row.pepper_id)
}

/** Returns the ids of the peppers of restored backups. */
export async function listRestoredPepperIds(db: Db): Promise<string[]> {
  const rows = await many<{ id: string }>(db, sql`select id from restored_peppers`)
  return rows.map(({ id }) => id)
}

/** Replaces ids of peppers in the rows of `table`, all at once. */
export async function renamePeppers(
  db: Db,
  table: string,
  names: ReadonlyMap<string, string>,
): Promise<void> {
  await db.query({
    text: `update ${quoted(table)} t set pepper_id = n.fresh
           from unnest($1::text[], $2::text[]) n (old, fresh) where t.pepper_id = n.old`,
    values: [[...names.keys()], [...names.values()]],
  })
}
