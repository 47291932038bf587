import { type Client, escapeIdentifier } from 'pg'
import { type TableKind, tableKinds } from './tables.ts'

/** A table that is not yet stored as its kind wants. */
export interface Placement {
  readonly table: string
  readonly kind: Exclude<TableKind, 'local'>
}

/** Whether the database has the extension, so that its tables can be distributed. */
export async function hasCitus(client: Client): Promise<boolean> {
  const { rowCount } = await client.query(`select from pg_extension where extname = 'citus'`)
  return rowCount === 1
}

/** Whether every table of this database was distributed once (`tickets` is the last). */
export async function isDistributed(client: Client): Promise<boolean> {
  if (!(await hasCitus(client))) return false
  const { rowCount } = await client.query(
    `select from pg_dist_partition where logicalrelid = to_regclass('tickets') and partmethod = 'h'`,
  )
  return rowCount === 1
}

/** Returns the tables to place, in the order in which they can be. */
export async function listPlacements(client: Client): Promise<Placement[]> {
  const { rows } = await client.query<{ table: string; is_hashed: boolean; is_reference: boolean }>(
    `
    select c.relname as table, coalesce(p.partmethod = 'h', false) as is_hashed,
           coalesce(p.partmethod = 'n' and p.repmodel = 't', false) as is_reference
    from pg_class c
    left join pg_dist_partition p on p.logicalrelid = c.oid
    where c.relnamespace = current_schema()::regnamespace and c.relname = any($1)`,
    [Object.keys(tableKinds)],
  )
  const present = new Map(rows.map((row) => [row.table, row]))
  return Object.entries(tableKinds).flatMap(([table, kind]) => {
    const row = present.get(table)
    if (!row || kind === 'local') return []
    const isPlaced = kind === 'distributed' ? row.is_hashed : row.is_reference
    return isPlaced ? [] : { table, kind }
  })
}

/**
 * Places tables, with their rows, each in a transaction of its own: a crash leaves complete tables
 * only, and the next call continues. `shards` is the number of a table's shards, if none is
 * distributed. Settings of the database, for later sessions, come first.
 */
export async function placeTables(
  client: Client,
  placements: readonly Placement[],
  shards?: number,
): Promise<void> {
  await client.query('set statement_timeout = 0; set client_min_messages = warning')
  for (const { name, value } of settings) {
    const { rows } = await client.query<{ name: string }>('select current_database() as name')
    await client.query(
      `alter database ${escapeIdentifier(rows[0]?.name ?? '')} set ${name} to ${value}; set ${name} to ${value}`,
    )
  }
  if (shards !== undefined) await client.query(`set citus.shard_count to ${shards}`)
  for (const { table, kind } of placements) {
    if (kind === 'reference') await client.query('select create_reference_table($1)', [table])
    else
      await client.query(`select create_distributed_table($1, 'app_id', colocate_with => $2)`, [
        table,
        table === anchor ? 'none' : anchor,
      ])
  }
}

/** The first distributed table; the shards of the others are beside its shards. */
const anchor = 'balances'

const settings = [
  // Otherwise a transaction cannot write a reference table after it read several shards.
  { name: 'citus.multi_shard_modify_mode', value: 'sequential' },
  // The triggers of the schema only refuse changes of their own row.
  { name: 'citus.enable_unsafe_triggers', value: 'on' },
] as const
