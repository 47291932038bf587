import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { parseAllowance } from '../../../core/lib/outbound/addresses.ts'
import { createOutbound } from '../../../core/lib/outbound/outbound.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { type Pool, createPool, tx } from '../../../core/lib/sql.ts'
import { type AppId, appId, newAppId } from '../../../core/shared/ids.ts'
import { emit, eventKind } from '../../../core/shared/events.ts'
import { createOutbox } from '../../../core/shared/outbox/outbox.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { createDeliverer } from '../../../core/webhooks/deliverer.ts'
import { createFanOut } from '../../../core/webhooks/fan-out.ts'
import { createWebhookMetrics } from '../../../core/webhooks/metrics.ts'
import { insertSecret, placeOfSecret } from '../../../core/webhooks/secret-store.ts'
import { createSecret } from '../../../core/webhooks/signatures.ts'
import { uuidV7 } from '../../../core/lib/crypto.ts'
import { createDatabase, type TestDatabase } from '../../support/run/postgres.ts'
import { createClock, until } from '../support.ts'
import { hang, ok, type Receiver, startReceiver, status } from './receiver.ts'

let database: TestDatabase
let pool: Pool
let clock: ReturnType<typeof createClock>
let app: AppId
const stops: (() => unknown)[] = []
beforeEach(async () => {
  database = await createDatabase()
  pool = createPool({
    url: database.url,
    max: 8,
    name: 'webhooks-test',
    statementTimeoutMs: 20_000,
  })
  pool.on('error', () => {})
  clock = createClock()
  app = newAppId()
  await pool.query(
    "insert into apps (id, name, starter_usd_micros, created_at) values ($1, 'An app', 0, $2)",
    [app, clock.now()],
  )
})
afterEach(async () => {
  await Promise.all(stops.splice(0).map((stop) => stop()))
  await pool.end()
  await database.drop()
})

const sealing = createSealing(['sealing-key-of-the-webhook-tests-0123456789'])

/** The parts of one core that deliver events. */
function startCore() {
  const metrics = createMetrics('test')
  const shared = { pool, now: clock.now, log: silentLog(), metrics, sealing }
  const allow = parseAllowance(['127.0.0.1'])
  if (!allow) throw new Error('the allowance is not valid')
  const none = async () => 0
  const figures = {
    waiting: none,
    lagSeconds: none,
    endpoints: async () => ({ active: 0, disabled: 0 }),
  }
  const meters = createWebhookMetrics(metrics, figures)
  const outbound = createOutbound({ allow, timeoutMs: 1_000 })
  const deliverer = createDeliverer({ ...shared, outbound, meters, idleMs: 10 })
  const destination = createFanOut({ ...shared, onDeliveries: deliverer.wake })
  const outbox = createOutbox({
    ...shared,
    destinations: [destination],
    idleMs: 10,
  })
  return { deliverer, destination, outbox }
}

async function receiver(): Promise<Receiver> {
  const started = await startReceiver()
  stops.push(started.stop)
  return started
}

async function endpoint(url: string): Promise<string> {
  const id = uuidV7()
  await pool.query(
    `insert into webhook_endpoints (app_id, id, url, description, event_types, status, created_at, updated_at)
     values ($1, $2, $3, '', '{}', 'active', $4, $4)`,
    [app, id, url, clock.now()],
  )
  const secretId = uuidV7()
  const { bytes } = createSecret('hmac')
  await insertSecret(
    pool,
    { appId: app, id },
    {
      id: secretId,
      signing: 'hmac',
      sealed: sealing.seal(bytes, placeOfSecret(secretId)),
      publicKey: null,
      createdAt: clock.now(),
    },
  )
  return id
}

const event = (name: string) => ({
  appId: app,
  type: 'user.created' as const,
  data: { name },
  at: clock.now(),
})
const emitMany = (count: number) =>
  tx(pool, async (db) => {
    for (let i = 0; i < count; i++) await emit(db, event(`user ${i}`))
  })
const countOf = async (where: string): Promise<number> => {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::integer as count from webhook_deliveries where ${where}`,
  )
  return rows[0]?.count ?? 0
}
const outboxCount = async (): Promise<number> => {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::integer as count from outbox where kind = '${eventKind}'`,
  )
  return rows[0]?.count ?? 0
}

describe('emit', () => {
  it('writes nothing if no active endpoint receives the type', async () => {
    await emit(pool, event('a'))
    expect(await outboxCount()).toBe(0)
    const id = await endpoint('http://127.0.0.1:9/')
    await pool.query("update webhook_endpoints set event_types = '{key.created}' where id = $1", [
      id,
    ])
    await emit(pool, event('b'))
    await emit(pool, { ...event('c'), appId: appId('00000000-0000-7000-8000-000000000000') })
    expect(await outboxCount()).toBe(0)
    await pool.query("update webhook_endpoints set event_types = '{}' where id = $1", [id])
    await emit(pool, event('d'))
    expect(await outboxCount()).toBe(1)
    await pool.query(
      "update webhook_endpoints set status = 'disabled', disabled_reason = 'requested' where id = $1",
      [id],
    )
    await emit(pool, event('e'))
    expect(await outboxCount()).toBe(1)
  })

  it('writes nothing if its transaction rolls back', async () => {
    await endpoint('http://127.0.0.1:9/')
    const failing = tx(pool, async (db) => {
      await emit(db, event('a'))
      throw new Error('stop')
    })
    await expect(failing).rejects.toThrow('stop')
    expect(await outboxCount()).toBe(0)
  })
})

describe('a deliverer', () => {
  it('delivers to a good endpoint while another hangs, with few requests to the latter', async () => {
    const [good, bad] = [await receiver(), await receiver()]
    bad.answer(hang)
    await endpoint(good.url)
    const hanging = await endpoint(bad.url)
    const { deliverer, outbox } = startCore()
    stops.push(deliverer.stop, outbox.stop)
    deliverer.start()
    outbox.start()
    await emitMany(40)
    await until(() => good.received.length === 40)
    expect(await countOf(`endpoint_id = '${hanging}' and status = 'delivered'`)).toBe(0)
    expect(bad.openMax()).toBeLessThanOrEqual(4)
    expect(good.openMax()).toBeLessThanOrEqual(4)
  })

  it('gives an endpoint that fails one request at a time, until it works again', async () => {
    const target = await receiver()
    target.answer(status(500))
    const id = await endpoint(target.url)
    const { deliverer, outbox } = startCore()
    stops.push(deliverer.stop, outbox.stop)
    await emitMany(30)
    await outbox.pass()
    await deliverer.pass()
    expect(target.received).toHaveLength(8)
    await deliverer.pass()
    expect(target.received).toHaveLength(8)
    clock.advance(19_000)
    await deliverer.pass()
    expect(target.received).toHaveLength(8)
    clock.advance(21_000)
    await deliverer.pass()
    expect(target.received).toHaveLength(9)
    target.answer(ok)
    clock.advance(400_000)
    for (let round = 0; round < 20; round++) await deliverer.pass()
    expect(await countOf(`endpoint_id = '${id}' and status = 'delivered'`)).toBe(30)
    const { rows } = await pool.query<{ failures: number }>(
      'select failures from webhook_endpoints',
    )
    expect(rows).toEqual([{ failures: 0 }])
  })

  it('delivers each row once among several cores', async () => {
    const target = await receiver()
    await endpoint(target.url)
    await endpoint(target.url)
    const cores = [startCore(), startCore(), startCore()]
    for (const { deliverer, outbox } of cores) {
      stops.push(deliverer.stop, outbox.stop)
      deliverer.start()
      outbox.start()
    }
    await emitMany(100)
    await until(() => target.received.length >= 200)
    await until(async () => (await countOf("status = 'delivered'")) === 200)
    expect(target.received).toHaveLength(200)
    expect(new Set(target.received.map(({ eventId }) => eventId)).size).toBe(100)
    expect(await countOf('attempts <> 1')).toBe(0)
  })

  it('repeats what a dead core had begun, when its lease ends', async () => {
    const target = await receiver()
    const id = await endpoint(target.url)
    const { deliverer, outbox } = startCore()
    stops.push(deliverer.stop, outbox.stop)
    await emitMany(1)
    await outbox.pass()
    // Another core leased the endpoint and claimed the row, and died before the answer.
    const until = new Date(clock.now().getTime() + 60_000)
    await pool.query('update webhook_endpoints set leased_until = $1', [until])
    await pool.query('update webhook_deliveries set due_at = $1, attempts = 1', [until])
    await deliverer.pass()
    expect(target.received).toEqual([])
    clock.advance(60_000)
    await deliverer.pass()
    expect(target.received).toHaveLength(1)
    expect(await countOf(`endpoint_id = '${id}' and status = 'delivered' and attempts = 2`)).toBe(1)
  })

  it('makes one delivery of an event when its fan-out is repeated', async () => {
    const target = await receiver()
    await endpoint(target.url)
    const { destination, deliverer } = startCore()
    stops.push(deliverer.stop)
    await emitMany(3)
    const { rows } = await pool.query<{ id: bigint; payload: Buffer }>(
      'select id, payload from outbox',
    )
    const entries = rows.map((row) => ({ ...row, itemCount: 1, attempts: 0 }))
    const { signal } = new AbortController()
    for (let i = 0; i < 3; i++)
      expect(await destination.deliver(entries, signal)).toEqual(
        entries.map(() => ({ kind: 'delivered' })),
      )
    expect(await countOf('true')).toBe(3)
  })

  it('refuses a row that cannot be read, and writes the others', async () => {
    await endpoint('http://127.0.0.1:9/')
    const { destination } = startCore()
    await emitMany(1)
    const { rows } = await pool.query<{ id: bigint; payload: Buffer }>(
      'select id, payload from outbox',
    )
    const entries = [...rows, { id: 0n, payload: Buffer.from('{') }].map((row) => ({
      ...row,
      itemCount: 1,
      attempts: 0,
    }))
    const deliveries = await destination.deliver(entries, new AbortController().signal)
    expect(deliveries.map(({ kind }) => kind)).toEqual(['delivered', 'refused'])
    expect(await countOf('true')).toBe(1)
  })

  it('keeps a backlog of 20,000 events in the database', async () => {
    const target = await receiver()
    target.answer(hang)
    const id = await endpoint(target.url)
    await pool.query(
      `insert into webhook_deliveries (app_id, endpoint_id, id, event_id, event_type, body, status, due_at, created_at, started_at)
       select $1, $2, gen_random_uuid(), 'evt_' || n, 'user.created', '{"data":"' || repeat('x', 4000) || '"}', 'pending', $3, $3, $3
       from generate_series(1, 20000) n`,
      [app, id, clock.now()],
    )
    await pool.query('update webhook_endpoints set due_at = $1', [clock.now()])
    const { deliverer } = startCore()
    stops.push(deliverer.stop)
    const turn = deliverer.pass()
    await until(() => target.received.length === 4)
    // The process holds only the rows that it has claimed.
    expect(await countOf('attempts > 0')).toBe(4)
    await turn
    target.answer(ok)
    clock.advance(600_000)
    await deliverer.pass()
    expect(await countOf("status = 'delivered'")).toBeGreaterThan(10)
    expect(target.openMax()).toBeLessThanOrEqual(4)
    expect(await countOf("status = 'pending'")).toBeGreaterThan(10_000)
  })
})
