import { type Db, many, one, sql } from '../../lib/sql.ts'

/** Returns the time limits that connections to `db` lack, by the names of their settings. */
export async function missingLimits(db: Db): Promise<string[]> {
  const { missing } = await one<{ missing: string[] }>(
    db,
    sql`
    select coalesce(array_agg(name::text order by name) filter (where setting = '0'), '{}') as missing
    from pg_settings
    where name in ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')`,
  )
  return missing
}

/** Whether the tables are distributed over a Citus cluster (`tickets` is the last one). */
export async function hasDistributedTables(db: Db): Promise<boolean> {
  const { has_citus } = await one<{ has_citus: boolean }>(
    db,
    sql`select to_regclass('pg_catalog.pg_dist_partition') is not null as has_citus`,
  )
  if (!has_citus) return false
  const { is_distributed } = await one<{ is_distributed: boolean }>(
    db,
    sql`
    select exists (
      select from pg_dist_partition
      where logicalrelid = to_regclass('tickets') and partmethod = 'h') as is_distributed`,
  )
  return is_distributed
}

/** Returns the ids of all apps in order. */
export async function listAppIds(db: Db): Promise<string[]> {
  const rows = await many<{ id: string }>(db, sql`select id from apps order by id`)
  return rows.map(({ id }) => id)
}

/** Returns the position in the primary's log up to which a replica has replayed; null at a primary. */
export async function replayedPosition(db: Db): Promise<bigint | null> {
  const { lsn } = await one<{ lsn: string | null }>(
    db,
    sql`select case when pg_is_in_recovery() then (pg_last_wal_replay_lsn() - '0/0')::text end as lsn`,
  )
  return lsn === null ? null : BigInt(lsn)
}

/** Returns the position up to which the primary has written its log. */
export async function writtenPosition(db: Db): Promise<bigint> {
  const { lsn } = await one<{ lsn: string }>(
    db,
    sql`select (pg_current_wal_lsn() - '0/0')::text as lsn`,
  )
  return BigInt(lsn)
}

export interface DatabaseServer {
  connections: number
  connections_max: number
  transaction_seconds: number
  locks_waiting: number
  bytes: bigint
}

/** Returns figures of the database server, as this process's user may see them. */
export const readServer = (db: Db): Promise<DatabaseServer> =>
  one<DatabaseServer>(
    db,
    sql`
    select count(*)::int as connections,
           current_setting('max_connections')::int as connections_max,
           coalesce(max(extract(epoch from clock_timestamp() - xact_start))
             filter (where datname = current_database() and pid <> pg_backend_pid()), 0)::float8 as transaction_seconds,
           (count(*) filter (where datname = current_database() and wait_event_type = 'Lock'))::int as locks_waiting,
           pg_database_size(current_database()) as bytes
    from pg_stat_activity
    where backend_type = 'client backend'`,
  )
