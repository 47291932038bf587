import type { Pool } from '../../../core/lib/sql.ts'

/** Rows written so far by table and kind, transactions and bytes of write-ahead log. */
export type Writes = ReadonlyMap<string, number>

/** As the backends have published them: a busy one does so every second. */
export async function readWrites(pool: Pool): Promise<Writes> {
  const { rows } = await pool.query<{ name: string; value: number }>(
    `select relname || ' ' || kind as name, sum(n)::double precision as value
     from pg_stat_user_tables
     cross join lateral (values ('inserted', n_tup_ins), ('updated', n_tup_upd), ('deleted', n_tup_del),
                                ('read by index', idx_tup_fetch), ('read by scan', seq_tup_read)) as of (kind, n)
     group by 1
     union all
     select 'transactions', xact_commit::double precision from pg_stat_database where datname = current_database()
     union all
     select 'log bytes', (pg_current_wal_lsn() - '0/0'::pg_lsn)::double precision`,
  )
  return new Map(rows.map(({ name, value }) => [name, value]))
}

/** What was written between two readings, for each of `calls`. */
export const writesEach = (before: Writes, now: Writes, calls: number): Writes =>
  new Map([...now].map(([name, value]) => [name, (value - (before.get(name) ?? 0)) / calls]))

/** Lines for people, the most first. */
export const describeWrites = (writes: Writes): string[] =>
  [...writes]
    .filter(([, each]) => each >= 0.001)
    .toSorted(([, a], [, b]) => b - a)
    .map(([name, each]) => `${each.toFixed(3).padStart(10)} ${name}`)
