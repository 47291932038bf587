import { randomUUID } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { createRoots } from '../../../core/books/receipts/roots.ts'
import { buildTree } from '../../../core/books/receipts/tree.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createPool, tx } from '../../../core/lib/sql.ts'
import { appId } from '../../../core/shared/ids.ts'
import { priceReads } from '../../../core/plans/prices/chain.ts'
import { chainInserted } from '../plans/chain-prices.ts'
import { day, observedRate, serviceToken, until } from '../support.ts'
import { verifyReceipt } from '../../support/usage/receipt-verifier.ts'
import { buildRoots, tollgate } from './support.ts'
import {
  world,
  nextDay,
  book,
  get,
  verify,
  poolOptions,
  json,
  setUpReceipts,
} from './receipts-world.ts'

setUpReceipts()

describe('daily roots', () => {
  it('are recomputed by verify, which reports a missing one', async () => {
    await book(2)
    await nextDay()
    const before = await tollgate('verify')
    expect(before.text).toContain('the books are right')
    const [root] = await world.rows('select day::text from receipt_roots order by day limit 1')
    await world.damage(
      `create table kept as select * from receipt_roots; delete from receipt_roots where day = '${root?.['day']}'`,
    )
    const { text, code } = await tollgate('verify')
    expect(text).toContain(`DIFFERENCE receipts`)
    expect(text).toContain(`day=${root?.['day']}: root is`)
    expect(code).toBe(1)
    await world.damage(
      'delete from receipt_roots; insert into receipt_roots select * from kept; drop table kept',
    )
    expect((await tollgate('verify')).code).toBe(0)
  })

  it('reveal lost checkpoints and prices, even when all references are deleted', async () => {
    const tables = ['checkpoints', 'book_heads', 'price_chain', 'price_heads']
    const each = (text: (table: string) => string) => tables.map(text).join(';')
    await tollgate('verify', '--head')
    await book(1)
    const ended = await nextDay()
    await world.damage(each((table) => `create table kept_${table} as select * from ${table}`))
    await world.damage(each((table) => `delete from ${table}`))
    await chainInserted(world.sql)
    await tollgate('verify', '--head')
    await world.damage(`update price_chain set hash = sha256(hash)`)
    const { text } = await tollgate('verify')
    expect(text).toMatch(
      new RegExp(`receipts .*day=${ended}: checkpoint is .*, should be [0-9a-f]{64}`),
    )
    expect(text).toMatch(new RegExp(`receipts .*day=${ended}: price is .*, should be [0-9a-f]{64}`))
    await world.damage(
      each(
        (table) =>
          `delete from ${table}; insert into ${table} select * from kept_${table}; drop table kept_${table}`,
      ),
    )
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('reveal a deleted latest day, even after it is built again', async () => {
    const tables = ['receipt_days', 'receipt_roots', 'receipt_chunks', 'book_heads']
    const each = (text: (table: string) => string) => tables.map(text).join(';')
    await book(2)
    const ended = await nextDay()
    await world.damage(each((table) => `create table kept_${table} as select * from ${table}`))
    await world.damage(
      ['receipt_days', 'receipt_roots', 'receipt_chunks']
        .map((table) => `delete from ${table} where day = '${ended}'`)
        .join(';'),
    )
    expect((await tollgate('verify')).text).toMatch(
      new RegExp(`DIFFERENCE receipts .*day=${ended}: last is missing, should be [0-9a-f]{64}`),
    )
    // Core cuts the day again, with the same tickets. The new root names the deleted one.
    await buildRoots(world)
    expect((await tollgate('verify')).text).toMatch(
      new RegExp(`DIFFERENCE receipts .*day=${ended}: statement is `),
    )
    await world.damage(
      each(
        (table) =>
          `delete from ${table}; insert into ${table} select * from kept_${table}; drop table kept_${table}`,
      ),
    )
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  /**
   * Starts cores together and waits for this number of attempts at roots, including failed ones.
   */
  async function tryToBuild(count: number, attempts: number): Promise<void> {
    const cores = await Promise.all(
      Array.from({ length: count }, () => world.startAnother(observedRate)),
    )
    await until(async () => {
      const [tried] = await world.rows('select last_value from attempts where is_called')
      return Number(tried?.['last_value'] ?? 0) >= attempts
    })
    await Promise.all(cores.map(({ core }) => core.stop()))
  }

  /** Returns whether the last ended day has roots, and its number of chunks without a root. */
  const rootsAndOrphans = async () => {
    const [of] = await world.rows(
      `select exists (select from receipt_roots r where r.day = d.day) as has_roots,
              (select count(*) from receipt_chunks c left join receipt_roots r using (app_id, day)
               where c.day = d.day and r.app_id is null) as orphans
       from (select max(day) as day from receipt_days) d`,
    )
    return of
  }

  it('are built once by several cores when one is killed meanwhile', async () => {
    const ids = await book(60)
    const other = await world.newApp()
    await book(5, { auth_id: `${other.clientId}:bob` })
    world.clock.advance(day)
    // The second root of the day fails in its first attempts, as when a core is killed.
    await world.sql.query(
      `create sequence attempts; create function fail_often() returns trigger language plpgsql as $$
      begin
        if nextval('attempts') between 2 and 3 then raise exception 'killed'; end if;
        return new;
      end $$;
      create trigger fail_often before insert on receipt_roots for each row execute function fail_often()`,
    )
    await tryToBuild(3, 2)
    expect(await rootsAndOrphans()).toEqual({ has_roots: 'true', orphans: '0' })
    await tryToBuild(1, 3)
    await buildRoots(world)
    await get(ids[7] ?? '', 'many.json')
    const { text } = await verify('many.json')
    expect(text).toContain(', ticket ')
    expect(text).toContain(' of 60.\n')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('have several chunks when the day has many tickets', async () => {
    const ids = await book(600, { computed_fee: '7' })
    ids.push(...(await book(500, { computed_fee: '8' })))
    const ended = await nextDay()
    const chunks = await world.rows('select number from receipt_chunks where day = $1', [ended])
    expect(chunks).toHaveLength(2)
    // All were signed at the same time, so their ids define the order.
    const inOrder = ids.toSorted()
    for (const index of [0, 1023, 1024, 1099]) {
      await get(inOrder[index] ?? '', 'chunk.json')
      expect((await json('chunk.json'))['proof']).toMatchObject({
        leafIndex: index,
        treeSize: 1100,
      })
      expect((await verify('chunk.json')).code).toBe(0)
    }
    await verifyReceipt(await json('chunk.json'), await json('keys.json'))
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('are not built while tickets are missing, but after they are restored', async () => {
    const [id = ''] = await book(3)
    await world.damage(
      `create table gone as select * from tickets where event_id = '${id}'; delete from tickets where event_id = '${id}'`,
    )
    world.clock.advance(day)
    const pool = createPool({ ...poolOptions, url: world.databaseUrl })
    const roots = createRoots({
      pool,
      now: world.clock.now,
      log: silentLog(),
      issuer: 'https://issuer.example',
      signStatement: async () => ({ jws: 'a.b.c', jwk: {} }),
      prices: priceReads,
    })
    await expect(roots.build(new AbortController().signal)).rejects.toThrow(
      /1 tickets of app_\w+ that were booked on [\d-]+ are missing; restore archived ones with `tollgate import`/,
    )
    await pool.end()
    await world.damage('insert into tickets select * from gone; drop table gone')
    await buildRoots(world)
    await get(id, 'back.json')
    expect((await verify('back.json')).text).toContain(' of 3.\n')
  })

  it('are built for other apps while the root of a test app fails', async () => {
    const operator = connectCore({ target: world.core.target, token: serviceToken })
    const trials = [await world.newApp({ isTest: true }), await world.newApp({ isTest: true })]
    for (const { clientId } of trials) {
      await book(2, { auth_id: `${clientId}:ada` })
      world.clock.advance(1_000)
      await operator.testClocks.advanceTestClock({
        clientId,
        move: { to: undefined, advanceSeconds: 86_400 },
      })
    }
    operator.close()
    const [id = ''] = await book(1)
    const ids = trials.map(({ clientId }) => `'${clientId}'`).join()
    const first = `(select app_id from clients where client_id in (${ids}) order by app_id limit 1)`
    await world.damage(
      `create table gone as select * from tickets where app_id = ${first}; delete from tickets where app_id = ${first}`,
    )
    const rootsOf = (apps: string) =>
      `select from receipt_roots join clients using (app_id) where client_id in (${apps}) and day = '${ended}'`
    const build = async (apps: string, count: number): Promise<void> => {
      const { core } = await world.startAnother(observedRate)
      await until(async () => (await world.rows(rootsOf(apps))).length === count)
      await core.stop()
    }
    const ended = world.clock.now().toISOString().slice(0, 10)
    await build(ids, 1)
    world.clock.advance(day)
    await build(`'${world.app.clientId}'`, 1)
    await get(id, 'other.json')
    expect((await verify('other.json')).text).toContain(', ticket 1 of 1.\n')
    await world.damage('insert into tickets select * from gone; drop table gone')
    await build(ids, 2)
    await buildRoots(world)
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('do not prove a ticket that was changed afterwards', async () => {
    const [id = ''] = await book(1)
    await nextDay()
    const change = (by: string) =>
      world.damage(
        `update tickets set received_at = received_at + interval '${by}' where event_id = '${id}'`,
      )
    await change('1 second')
    const { text, code } = await get(id, 'changed.json')
    expect(text).toContain('the ticket differs from the root of ')
    expect(code).toBe(1)
    await change('-1 second')
    expect((await get(id, 'changed.json')).code).toBe(0)
  })

  it('are built with charges of only a few users in memory', async () => {
    const pool = createPool({ ...poolOptions, url: world.databaseUrl })
    const app = { id: appId(randomUUID()), clientId: 'app_busy' }
    const snapshotNow = async (): Promise<string> =>
      String((await world.rows('select pg_current_snapshot() as now'))[0]?.['now'])
    const previous = await snapshotNow()
    await world.damage(
      `insert into ledger_entries (app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
                                   ticket_count, hash)
       select '${app.id}', md5(u::text)::uuid, n, 'charge', -1, 0, 0, gen_random_uuid(), now(), 1, ''
       from generate_series(1, 4) u, generate_series(1, 3000) n`,
    )
    const cutAt = world.clock.now()
    const window = { day: '2026-01-01', cutAt, previous, snapshot: await snapshotNow() }
    let largest = 0
    const tree = await tx(pool, async (db) => {
      const query = db.query.bind(db)
      const seen = vi.spyOn(db, 'query').mockImplementation(async (...args: unknown[]) => {
        const result = await Reflect.apply(query, db, args)
        const values = result.rows.flatMap((row: object) => Object.values(row).flat())
        largest = Math.max(largest, values.length)
        return result
      })
      const { signal } = new AbortController()
      const made = await buildTree(db, { app, window, signal, onChunk: async () => {} })
      seen.mockRestore()
      return made
    })
    await pool.end()
    expect(tree).toMatchObject({ treeSize: 0, charged: 12_000 })
    expect(largest).toBe(1_000)
    await world.damage(`delete from ledger_entries where app_id = '${app.id}'`)
  })

  it('report their delay in a metric', async () => {
    const late = async (): Promise<number | undefined> =>
      (await world.metrics.getSingleMetric('tollgate_core_receipt_roots_late_seconds')?.get())
        ?.values[0]?.value
    expect(await late()).toBe(0)
    const midnight = Math.ceil(world.clock.now().getTime() / day) * day
    world.clock.set(new Date(midnight + 7_000_000))
    expect(await late()).toBe(7_000)
  })
})
