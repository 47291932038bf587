import { setTimeout as sleep } from 'node:timers/promises'
import type { Pool } from '../../../core/lib/sql.ts'
import type { Bench } from '../row.ts'
import { count as inWords } from '../table.ts'
import { type Usage, usedUs } from './paid-call-parts.ts'
import type { Run } from './paid-call-run.ts'

/**
 * The window fits the time between two renewals of a lease, which carry the reports of its calls. A
 * sidecar closes connections that have had no request for ten seconds, and few connections of the
 * load have one.
 */
const [warmMs, windowMs] = [1_000, 7_500]

interface Window {
  readonly used: Usage
  readonly writes: Writes
}

/**
 * Measures the cost of a call while calls continue, because separate rounds would open sessions and
 * leases again. Idle backends publish their figures late, at both ends of the window alike.
 */
export async function observe(
  { circle, call }: Run,
  { perSecond, tickets }: { readonly perSecond: number; readonly tickets: 'pushed' | 'kept' },
): Promise<Window> {
  const running = call({ calls: (perSecond * (2 * warmMs + windowMs)) / 1_000, perSecond, tickets })
  await sleep(warmMs)
  const [before, writes, at] = [circle.usage(), await readWrites(circle.pool), performance.now()]
  await sleep(windowMs)
  const calls = (perSecond * (performance.now() - at)) / 1000
  const used = usedUs(before, circle.usage(), calls)
  const written = writesEach(writes, await readWrites(circle.pool), calls)
  await running
  return { used, writes: written }
}

/** Prints the time per call of each step and process, and the rows that each step writes. */
export async function profile(bench: Bench, run: Run, perSecond: number) {
  const print = (name: string, { used, writes }: Window): void =>
    bench.say(
      [
        `\n${name} at ${inWords(perSecond)}/s, for a call:`,
        ...[...used].map(([kind, us]) => `${us.toFixed(1).padStart(10)} us ${kind}`),
        ...describeWrites(writes),
      ].join('\n'),
    )

  const decided = await observe(run, { perSecond, tickets: 'kept' })
  await run.push()
  const paid = await observe(run, { perSecond, tickets: 'pushed' })
  await run.settle()
  print('decision and report', decided)
  print('ticket and settlement, the difference', {
    used: difference(paid.used, decided.used),
    writes: difference(paid.writes, decided.writes),
  })
  print('paid call', paid)
}

export const difference = (all: Usage, part: Usage): Usage =>
  new Map([...all].map(([name, value]) => [name, value - (part.get(name) ?? 0)]))

/** Rows written so far by table and kind, transactions and bytes of write-ahead log. */
type Writes = ReadonlyMap<string, number>

/** Reads what the backends have published; a busy backend publishes every second. */
async function readWrites(pool: Pool): Promise<Writes> {
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

/** Returns the writes per call between two readings. */
const writesEach = (before: Writes, now: Writes, calls: number): Writes =>
  new Map([...now].map(([name, value]) => [name, (value - (before.get(name) ?? 0)) / calls]))

/** Formats the writes for people, the largest first. */
const describeWrites = (writes: Writes): string[] =>
  [...writes]
    .filter(([, each]) => each >= 0.001)
    .toSorted(([, a], [, b]) => b - a)
    .map(([name, each]) => `${each.toFixed(3).padStart(10)} ${name}`)
