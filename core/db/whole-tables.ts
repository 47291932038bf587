import { type Db, type Pool, many, one, sql } from '../lib/sql.ts'

/** Functions that move whole tables, whatever they hold. Names come from the catalogue. */

export interface Column {
  readonly name: string
  readonly type: string
}

export const quoted = (name: string): string => `"${name}"`

/** Returns the columns of a table, in their order, except `without` and those that are computed. */
export async function listColumns(
  db: Db,
  table: string,
  without: readonly string[] = [],
): Promise<Column[]> {
  return many<Column>(
    db,
    sql`
    select attname as name, format_type(atttypid, atttypmod) as type
    from pg_attribute
    where attrelid = to_regclass(${table}) and attnum > 0 and not attisdropped and attgenerated = ''
      and attname <> all(${without})
    order by attnum`,
  )
}

export async function hasRows(db: Db, table: string): Promise<boolean> {
  const { present } = await one<{ present: boolean }>(db, {
    text: `select exists (select from ${quoted(table)}) as present`,
    values: [],
  })
  return present
}

/** Prepares a transaction that moves tables: no time limits, and one format of values. */
export async function prepareTransfer(db: Db): Promise<void> {
  await db.query(
    `set local idle_in_transaction_session_timeout = 0; set local statement_timeout = 0;
     set local timezone = 'UTC'; set local datestyle = 'ISO'; set local bytea_output = 'hex';
     set local extra_float_digits = 1; set local intervalstyle = 'postgres'`,
  )
}

/** Returns the first months of signing in `tickets`. */
export async function ticketMonths(db: Db): Promise<string[]> {
  const rows = await many<{ month: string }>(
    db,
    sql`
    select replace(substr(c.relname, 9), '_', '-') as month
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass('tickets')
    order by 1`,
  )
  return rows.map(({ month }) => month)
}

/** Returns the id that the cluster gives to its next transaction. */
export async function nextTransaction(db: Db): Promise<bigint> {
  const { id } = await one<{ id: string }>(
    db,
    sql`select pg_snapshot_xmax(pg_current_snapshot())::text as id`,
  )
  return BigInt(id)
}

/** A commit takes 5 µs to 50 µs: up to a quarter of an hour. */
const transactionsMax = 20_000_000n
const transactionsAtOnce = 1_000_000n

/**
 * Uses up transaction ids until the cluster's are behind those of the file. Days of receipts are
 * cut by transaction ids (docs/receipts.md), so new entries must have later ones.
 */
export async function passTransactions(pool: Pool, through: bigint): Promise<void> {
  const missing = through - (await nextTransaction(pool))
  if (missing > transactionsMax)
    throw new Error(
      `the cluster must first pass ${missing} transaction ids, which takes a new cluster: stop it, run ${resetCommand(through)}, and start it`,
    )
  const client = await pool.connect()
  try {
    for (let left = missing; left > 0n; left -= transactionsAtOnce)
      await spendTransactions(client, left < transactionsAtOnce ? left : transactionsAtOnce)
  } finally {
    client.release()
  }
}

const idsOfEpoch = 2n ** 32n
/** Ids of a file of the server's commit log. The server starts only at the beginning of a file. */
const idsOfFile = 2n ** 20n
/** Ids that a new cluster can be ahead of its own rows. It refuses to work from 2^31 on. */
const aheadMax = 1_500_000_000n

/** Returns the command that makes `through` or a later id the next of a new, stopped cluster. */
export function resetCommand(through: bigint): string {
  const file = ((through + idsOfFile - 1n) / idsOfFile) * idsOfFile
  const [epoch, id] = [file / idsOfEpoch, file % idsOfEpoch]
  const isNear = id >= idsOfFile && id <= aheadMax
  const [nextEpoch, next] = isNear ? [epoch, id] : [id === 0n ? epoch : epoch + 1n, idsOfFile]
  return `pg_resetwal --epoch=${nextEpoch} --next-transaction-id=${next} -D DIRECTORY`
}

/** Uses up transaction ids, outside a transaction. Each is a commit that need not reach the disk. */
async function spendTransactions(db: Db, count: bigint): Promise<void> {
  await db.query('set synchronous_commit = off; set statement_timeout = 0')
  await db.query(
    `do $$ begin for i in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`,
  )
  await db.query('reset synchronous_commit; reset statement_timeout')
}
