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
 * Places tables, with their rows, each in a transaction of its own, or with the tables that its
 * foreign keys connect it to: a crash leaves complete tables only, and the next call continues.
 * `shards` is the number of a table's shards, if none is distributed. Settings of the database, for
 * later sessions, come first.
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
  const keys = await listForeignKeys(client)
  for (const group of groupConnected(placements, keys)) await placeGroup(client, group, keys)
}

/** A foreign key between two distributed tables. */
interface ForeignKey {
  readonly table: string
  readonly referenced: string
  readonly name: string
  readonly definition: string
}

async function listForeignKeys(client: Client): Promise<ForeignKey[]> {
  const { rows } = await client.query<ForeignKey>(
    `
    select t.relname as table, r.relname as referenced, k.conname as name, pg_get_constraintdef(k.oid) as definition
    from pg_constraint k
    join pg_class t on t.oid = k.conrelid
    join pg_class r on r.oid = k.confrelid
    where k.contype = 'f' and k.connamespace = current_schema()::regnamespace
      and t.relname = any($1) and r.relname = any($1) and t.oid <> r.oid
    order by k.conname`,
    [Object.keys(tableKinds).filter((table) => tableKinds[table] === 'distributed')],
  )
  return rows
}

/** Groups tables that the foreign keys connect, in the order of their first tables. */
export function groupConnected(
  placements: readonly Placement[],
  keys: readonly Pick<ForeignKey, 'table' | 'referenced'>[],
): Placement[][] {
  const groups: Placement[][] = []
  for (const placement of placements) {
    const isConnected = (other: Placement): boolean =>
      keys.some(
        ({ table, referenced }) =>
          (table === placement.table && referenced === other.table) ||
          (table === other.table && referenced === placement.table),
      )
    const [first, ...others] = groups.filter((group) => group.some(isConnected))
    if (!first) groups.push([placement])
    else {
      first.push(...others.flat(), placement)
      for (const other of others) groups.splice(groups.indexOf(other), 1)
    }
  }
  return groups
}

/**
 * Places connected tables. Citus accepts a foreign key only between two distributed tables, so that
 * the keys of several tables are dropped before and added afterwards, in the same transaction.
 */
async function placeGroup(
  client: Client,
  group: readonly Placement[],
  keys: readonly ForeignKey[],
): Promise<void> {
  const connecting = keys.filter(({ table }) =>
    group.some((placement) => placement.table === table),
  )
  if (connecting.length === 0) {
    for (const placement of group) await place(client, placement)
    return
  }
  await client.query('begin')
  for (const { table, name } of connecting)
    await client.query(`alter table ${table} drop constraint ${name}`)
  for (const placement of group) await place(client, placement)
  for (const { table, name, definition } of connecting)
    await client.query(`alter table ${table} add constraint ${name} ${definition}`)
  await client.query('commit')
}

async function place(client: Client, { table, kind }: Placement): Promise<void> {
  if (kind === 'reference') await client.query('select create_reference_table($1)', [table])
  else
    await client.query(`select create_distributed_table($1, 'app_id', colocate_with => $2)`, [
      table,
      table === anchor ? 'none' : anchor,
    ])
}

/** The first distributed table; the shards of the others are beside its shards. */
const anchor = 'balances'

const settings = [
  // Otherwise a transaction cannot write a reference table after it read several shards.
  { name: 'citus.multi_shard_modify_mode', value: 'sequential' },
  // The triggers of the schema only refuse changes of their own row.
  { name: 'citus.enable_unsafe_triggers', value: 'on' },
] as const
