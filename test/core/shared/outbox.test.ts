import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { type Pool, createPool, tx } from '../../../core/lib/sql.ts'
import { createOutbox } from '../../../core/shared/outbox/outbox.ts'
import { enqueue, figures, retrySetAside } from '../../../core/shared/outbox/store.ts'
import type { Destination, Entry, Delivery } from '../../../core/shared/outbox/types.ts'
import { createDatabase, type TestDatabase } from '../../support/run/postgres.ts'
import { createClock, until } from '../support.ts'

let database: TestDatabase
let pool: Pool
let clock: ReturnType<typeof createClock>
beforeEach(async () => {
  database = await createDatabase()
  pool = createPool({ url: database.url, max: 6, name: 'outbox-test', statementTimeoutMs: 20_000 })
  pool.on('error', () => {})
  clock = createClock()
})
afterEach(async () => {
  await pool.end()
  await database.drop()
})

type Verdict = (text: string) => Delivery

function setUp(
  verdict: Verdict,
  more: Partial<Destination> & { idleMs?: number; metrics?: ReturnType<typeof createMetrics> } = {},
) {
  const batches: string[][] = []
  const destination: Destination = {
    kind: 'post',
    itemsAtOnce: 100,
    bytesAtOnce: 1_000,
    ready: () => true,
    deliver: async (entries: readonly Entry[]) => {
      const texts = entries.map((entry) => entry.payload.toString())
      batches.push(texts)
      return texts.map(verdict)
    },
    ...more,
  }
  const outbox = createOutbox({
    pool,
    log: silentLog(),
    metrics: more.metrics ?? createMetrics('test'),
    now: clock.now,
    destinations: [destination],
    idleMs: more.idleMs ?? 10,
  })
  return { outbox, batches }
}

const put = (...texts: string[]) =>
  enqueue(
    pool,
    texts.map((text) => ({ kind: 'post', payload: Buffer.from(text), itemCount: 1 })),
    clock.now(),
  )
const rows = async () =>
  (
    await pool.query('select payload, attempts, last_error, set_aside_at from outbox order by id')
  ).rows.map((row) => ({ ...row, payload: row.payload.toString() }))
const delivered: Verdict = () => ({ kind: 'delivered' })

describe('the outbox', () => {
  it('uses one connection for all its destinations while nothing is due', async () => {
    let polls = 0
    const idle = (kind: string): Destination => ({
      kind,
      itemsAtOnce: 1,
      bytesAtOnce: 1,
      ready: () => ++polls > 0,
      deliver: async () => [],
    })
    const outbox = createOutbox({
      pool,
      log: silentLog(),
      metrics: createMetrics('test'),
      now: clock.now,
      destinations: ['a', 'b', 'c', 'd', 'e'].map(idle),
      idleMs: 5,
    })
    outbox.start()
    await until(() => polls > 50)
    expect(pool.totalCount).toBe(1)
    await outbox.stop()
  })

  it('delivers only committed entries', async () => {
    const { outbox, batches } = setUp(delivered)
    await put('a', 'b')
    await expect(
      tx(pool, async (db) => {
        await enqueue(
          db,
          [{ kind: 'post', payload: Buffer.from('never'), itemCount: 1 }],
          clock.now(),
        )
        throw new Error('no')
      }),
    ).rejects.toThrow('no')
    await outbox.pass()
    await outbox.pass()
    expect(batches).toEqual([['a', 'b']])
    expect(await rows()).toEqual([])
  })

  it('claims entries within its limits, and at least one', async () => {
    const { outbox, batches } = setUp(delivered, { itemsAtOnce: 2, bytesAtOnce: 10 })
    await put('1234567', '1234', '12345678901234567890', 'x', 'y', 'z')
    for (let i = 0; i < 5; i++) await outbox.pass()
    expect(batches).toEqual([['1234567'], ['1234'], ['12345678901234567890'], ['x', 'y'], ['z']])
  })

  it('sets a repeatedly refused row aside, and delivers the others', async () => {
    const metrics = createMetrics('test')
    const { outbox, batches } = setUp(
      (text) => (text === 'bad' ? { kind: 'refused', why: 'too bad' } : { kind: 'delivered' }),
      { metrics },
    )
    await put('bad', 'good')
    for (let i = 0; i < 12; i++) {
      await put(`good ${i}`)
      await outbox.pass()
      clock.advance(600_000)
    }
    expect(await rows()).toEqual([
      { payload: 'bad', attempts: 8, last_error: 'too bad', set_aside_at: expect.any(Date) },
    ])
    expect(batches.flat().filter((text) => text === 'bad')).toHaveLength(8)
    expect(new Set(batches.flat()).size).toBe(14)
    const text = await metrics.metrics()
    expect(text).toMatch(/tollgate_outbox_rows\{state="set_aside".*\} 1\n/)
    expect(text).toMatch(/tollgate_outbox_rows\{state="waiting".*\} 0\n/)
    expect(text).toMatch(/tollgate_outbox_deliveries_total\{kind="post".*\} 13\n/)
    expect(text).toMatch(/tollgate_outbox_failures_total\{kind="post",how="refused".*\} 8\n/)
    expect(await retrySetAside(pool, clock.now())).toBe(1)
    expect(await rows()).toMatchObject([{ attempts: 0, set_aside_at: null }])
  })

  it('counts no attempt while the other system is unavailable', async () => {
    const metrics = createMetrics('test')
    const { outbox } = setUp(() => ({ kind: 'later', why: 'away' }), { metrics })
    await put('a', 'b')
    for (let i = 0; i < 20; i++) {
      expect(await outbox.pass()).toMatchObject([{ claimed: 2, delivered: 0, waitMs: 0 }])
      clock.advance(60_000)
    }
    expect(await rows()).toMatchObject([
      { attempts: 0, last_error: 'away', set_aside_at: null },
      { attempts: 0 },
    ])
    expect(await metrics.metrics()).toMatch(/tollgate_outbox_age_seconds\{.*\} 1200\n/)
  })

  it('counts an attempt of a failing row only when other rows arrive', async () => {
    const { outbox } = setUp((text) =>
      text === 'ok' ? { kind: 'delivered' } : { kind: 'failed', why: 'answered 500' },
    )
    await put('breaks')
    for (let i = 0; i < 12; i++) {
      await outbox.pass()
      clock.advance(600_000)
    }
    expect(await rows()).toMatchObject([{ attempts: 0, set_aside_at: null }])
    for (let i = 0; i < 12; i++) {
      await put('ok')
      await outbox.pass()
      clock.advance(600_000)
    }
    expect(await rows()).toMatchObject([{ payload: 'breaks', set_aside_at: expect.any(Date) }])
  })

  it('keeps the undelivered part of a row', async () => {
    const { outbox } = setUp((text) =>
      text === 'ab'
        ? { kind: 'refused', why: 'b', rest: { payload: Buffer.from('b'), itemCount: 1 } }
        : { kind: 'delivered' },
    )
    await put('ab')
    await outbox.pass()
    expect(await rows()).toMatchObject([{ payload: 'b', attempts: 1 }])
  })

  it('shares the work between several cores without delivering a row twice', async () => {
    const several = Array.from({ length: 4 }, () => setUp(delivered, { itemsAtOnce: 3 }))
    await put(...Array.from({ length: 60 }, (_, i) => `row ${i}`))
    for (const { outbox } of several) outbox.start()
    await until(async () => (await figures(pool)).waiting === 0)
    await Promise.all(several.map(({ outbox }) => outbox.stop()))
    const all = several.flatMap(({ batches }) => batches.flat())
    expect(all).toHaveLength(60)
    expect(new Set(all).size).toBe(60)
  })

  it('delivers the rows of a dead core when their lease has ended', async () => {
    const dead = setUp(delivered, { deliver: () => Promise.reject(new Error('killed')) })
    const heir = setUp(delivered)
    await put('a')
    await expect(dead.outbox.pass()).rejects.toThrow('killed')
    await heir.outbox.pass()
    expect(heir.batches).toEqual([])
    clock.advance(300_000)
    await heir.outbox.pass()
    expect(heir.batches).toEqual([['a']])
  })

  it('delivers due rows before it stops, and stops in time when the other system hangs', async () => {
    const { outbox, batches } = setUp(delivered, { idleMs: 60_000 })
    outbox.start()
    await new Promise((resolve) => setTimeout(resolve, 50))
    await put('a', 'b')
    await outbox.stop()
    expect(batches).toEqual([['a', 'b']])
    const hanging = setUp(delivered, {
      deliver: (entries, signal) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () =>
            resolve(entries.map(() => ({ kind: 'later', why: 'stopping' }))),
          )
        }),
    })
    await put('c')
    hanging.outbox.start()
    const began = performance.now()
    await hanging.outbox.stop()
    expect(performance.now() - began).toBeLessThan(5_000)
    // The rows are free for another core at once.
    const heir = setUp(delivered)
    await heir.outbox.pass()
    expect(heir.batches).toEqual([['c']])
  })

  it('waits while its destination is not ready, and survives an unavailable database', async () => {
    let ready = false
    const { outbox, batches } = setUp(delivered, { ready: () => ready })
    await put('a')
    await pool.query('alter table outbox rename to away')
    outbox.start()
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(batches).toEqual([])
    ready = true
    await new Promise((resolve) => setTimeout(resolve, 100))
    await pool.query('alter table away rename to outbox')
    await until(() => batches.length === 1)
    await outbox.stop()
  })
})
