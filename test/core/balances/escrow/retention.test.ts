import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createRetention } from '../../../../core/balances/escrow/retention.ts'
import { heldMoney } from '../../../../core/balances/escrow/stores/hold-store.ts'
import { type Pool, createPool } from '../../../../core/lib/sql.ts'
import { type TestCore, day, second, startTestCore } from '../../support.ts'
import { emptyEscrow, escrowUser, usd } from './support.ts'

let core: TestCore
let pool: Pool
let ada: Awaited<ReturnType<typeof escrowUser>>
beforeAll(async () => {
  // With these settings, core's own rounds end nothing.
  core = await startTestCore({ EVENT_LAG_SECONDS: '3600', HOLD_MAX_SECONDS: '86400' })
  pool = createPool({ url: core.databaseUrl, max: 2, name: 'test', statementTimeoutMs: 10_000 })
})
afterAll(async () => {
  await pool.end()
  await core.stop()
})
beforeEach(async () => {
  await emptyEscrow(core)
  ada = await escrowUser(core, await core.newApp())
})

const forget = (afterMs: number) =>
  createRetention({ pool, now: () => new Date(ada.begin + afterMs) }).forgetUnused()
async function column(query: string): Promise<unknown[]> {
  const { rows } = await core.sql.query<{ value: unknown }>(query)
  return rows.map(({ value }) => value)
}
const sidecars = () => column('select id as value from sidecars order by id')
const clocks = () => column('select sidecar_id as value from sidecar_clocks order by sidecar_id')
const sessions = () => column('select session_id as value from authorised_sessions order by 1')

/** Authorises one call of a session, by a separate sidecar. */
const authorise = (name: string, sessionType: string) =>
  ada.authorise({ session: name, sequence: 0, ms: 0 }, { sidecarId: name, sessionType })
const end = (name: string) =>
  core.sql.query('delete from authorisations where session_id = $1', [name])
const clock = (name: string) =>
  core.sql.query('insert into sidecar_clocks values ($1, $2)', [name, new Date(ada.begin)])

describe('forgetUnused', () => {
  it('deletes sidecars and their clocks after thirty days unless they hold money', async () => {
    for (const name of ['gone', 'lending', 'pending', 'seen']) {
      await authorise(name, 'fixed')
      await clock(name)
      if (name !== 'pending') await end(name)
    }
    await ada.lend(0.1, 30 * second, { sidecarId: 'lending' })
    await core.sql.query('update sidecars set seen_at = $1 where id = $2', [
      new Date(ada.begin + 2 * second),
      'seen',
    ])
    await forget(30 * day)
    expect(await sidecars()).toEqual(['gone', 'lending', 'pending', 'seen'])
    await forget(30 * day + second)
    expect(await sidecars()).toEqual(['lending', 'pending', 'seen'])
    expect(await clocks()).toEqual(['lending', 'pending', 'seen'])
  })

  it('deletes sessions that no bound needs and that have no stored calls', async () => {
    await authorise('fixed', 'fixed')
    await authorise('untyped', '')
    await authorise('kept', 'fixed')
    await authorise('live', 'live')
    await authorise('lv2v', 'lv2v')
    for (const name of ['fixed', 'untyped', 'live', 'lv2v']) await end(name)
    await forget(30 * day)
    expect(await sessions()).toHaveLength(5)
    await forget(30 * day + second)
    expect(await sessions()).toEqual(['kept', 'live', 'lv2v'])
  })

  it('deletes more than one batch at once', async () => {
    await core.sql.query(
      `insert into sidecars (id, instance, started_at, seen_at)
       select 'old-' || n, gen_random_uuid(), $1, $1 from generate_series(1, 2500) n`,
      [new Date(ada.begin)],
    )
    await forget(31 * day)
    expect(await sidecars()).toEqual([])
  })
})

describe('heldMoney', () => {
  it('counts calls that wait for a ticket or for a price, by indexes alone', async () => {
    for (const sequence of [0, 1, 2]) await ada.authorise({ sequence, ms: sequence })
    await core.sql.query('update authorisations set ticketed = true where sequence_number = 1')
    await core.sql.query(
      `update authorisations set state = 'lost', state_at = $1 where sequence_number = 2`,
      [new Date(ada.begin)],
    )
    expect(await heldMoney(pool, new Date(ada.begin))).toMatchObject({ pending: usd(0.2) })
    const plan = async (ticketed: string) => {
      await core.sql.query('set enable_seqscan = off')
      const { rows } = await core.sql.query(
        `explain select sum(bound_attos) from authorisations where state = 'pending' and ${ticketed}`,
      )
      return JSON.stringify(rows)
    }
    // Drops the index for the sums of an app: in a table of three rows every partial index costs
    // the same.
    await core.sql.query('drop index authorisations_held')
    expect(await plan('ticketed')).toContain('authorisations_ticketed')
    expect(await plan('not ticketed')).toContain('authorisations_pending')
  })
})

describe('authorised_sessions', () => {
  it('stores a call without a write to an index', async () => {
    await authorise('s1', 'live')
    const db = await core.sql.connect()
    const hotUpdates = async () => {
      const { rows } = await db.query<{ count: bigint }>(
        `select pg_stat_get_xact_tuples_hot_updated('authorised_sessions'::regclass) as count`,
      )
      return rows[0]?.count ?? 0n
    }
    await db.query('begin')
    const before = await hotUpdates()
    await db.query(
      `update authorised_sessions
       set last_at = last_at + interval '1 second', top_sequence = 1, authorised_count = 2, ticketed_count = 1`,
    )
    expect(await hotUpdates()).toBe(before + 1n)
    await db.query('rollback')
    db.release()
  })
})
