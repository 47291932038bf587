import * as fc from 'fast-check'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { parseExternalUserId } from '../../../../core/shared/ids.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { customerKey } from '../../../../core/metering/backend/catalog.ts'
import {
  createBackfill,
  createEmitter,
  eventsKind,
} from '../../../../core/metering/backend/emit.ts'
import { createUsers } from '../../../../core/identity/users/users.ts'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { createInvalidations } from '../../../../core/shared/invalidations.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { createPlans } from '../../../../core/plans/service.ts'
import { retrySetAside } from '../../../../core/shared/outbox/outbox.ts'
import {
  type FakeOpenMeter,
  type Fault,
  startOpenMeter,
} from '../../../fakes/openmeter/openmeter.ts'
import { createWorld, envelope, recordRate, type World } from '../harness.ts'
import { startSender, ticketOf } from './harness.ts'

let world: World
let subject: Parameters<typeof ticketOf>[0]
let rateId: bigint
let fake: FakeOpenMeter
beforeAll(async () => {
  world = await createWorld()
  await recordRate(world.pool, '2026-09-14T10:15:00Z')
  rateId = (await world.pool.query('select id from rates')).rows[0].id
  const { user } = await world.users.upsert(
    world.app.id,
    { externalUserId: parseExternalUserId('ada: "l"') },
    { name: 'test' },
  )
  subject = {
    appId: world.app.id,
    userId: user.id,
    clientId: world.app.clientId,
    externalUserId: user.externalUserId,
  }
})
afterAll(() => world.stop())
beforeEach(async () => {
  fake = await startOpenMeter()
})
afterEach(async () => {
  await world.pool.query('delete from outbox')
  await fake.stop()
})

const emitter = createEmitter()
const now = () => world.clock.at
const later = () => {
  world.clock.at = new Date(world.clock.at.getTime() + 600_000)
}
const emit = (...tickets: Parameters<typeof ticketOf>[1][]) =>
  tx(world.pool, (db) =>
    emitter.emitTickets(
      db,
      tickets.map((ticket) => ticketOf(subject, ticket)),
      now(),
    ),
  )
const waiting = async () =>
  Number((await world.pool.query('select count(*) as n from outbox')).rows[0].n)
const sender = (more: object = {}) =>
  startSender({ pool: world.pool, now, url: fake.urls.v1, ...more })

describe('delivery of tickets to OpenMeter', () => {
  it('sends CloudEvents with numbers to sum and also the exact figures', async () => {
    await emit(
      { eventId: 'e 1', fee: 128_750_000_000_000_001n, cost: 386_250_000_000_000_003_000n, rateId },
      { eventId: 'unpriced', cost: null, rateId },
    )
    const { outbox, backend, prepared } = await sender()
    await prepared()
    await outbox.pass()
    expect([...fake.state.events.values()]).toEqual([
      {
        specversion: '1.0',
        type: 'create_signed_ticket',
        source: 'go-livepeer-remote-signer',
        id: 'e 1',
        subject: customerKey(subject.userId),
        time: '2026-09-14T10:15:30.123456Z',
        datacontenttype: 'application/json',
        data: {
          schema_version: '2',
          client_id: subject.clientId,
          external_user_id: 'ada: "l"',
          auth_id: `${subject.clientId}:ada: "l"`,
          end_user_id: subject.userId,
          pipeline: 'live',
          model_id: 'unknown',
          manifest_id: 's',
          session_id: 's',
          gateway_request_id: 'r',
          network_fee_usd_micros: 386250000,
          billable_usd_micros: 386250000,
          network_fee_usd_micros_exact: '386250000.000000003',
          billable_usd_micros_exact: '386250000.000000003',
          owner_charge_usd_micros_exact: '386250000.000000003',
          platform_fee_usd_micros_exact: '0',
          terms_id: null,
          // As a float.
          fee_wei: 128750000000000000,
          fee_wei_exact: '128750000000000001',
          billable_secs: 1.5,
          pixels: '7',
          eth_usd_price: '3000',
        },
      },
    ])
    expect(await waiting()).toBe(0)
    await backend.stop()
  })

  it('queues up to a thousand tickets per row, and nothing if the transaction fails', async () => {
    await expect(
      tx(world.pool, async (db) => {
        await emitter.emitTickets(db, [ticketOf(subject, { eventId: 'x', rateId })], now())
        throw new Error('no')
      }),
    ).rejects.toThrow('no')
    expect(await waiting()).toBe(0)
    await emit(...Array.from({ length: 2_500 }, (_, i) => ({ eventId: `many ${i}`, rateId })))
    const { rows } = await world.pool.query(
      'select kind, item_count, length(payload) as bytes from outbox order by id',
    )
    expect(rows.map((row) => row.item_count)).toEqual([1000, 1000, 500])
    expect(rows.every((row) => row.bytes < 60_000 && row.kind === eventsKind)).toBe(true)
    const { outbox, backend, prepared } = await sender({ batchSize: 400, url: fake.urls.v3 })
    await prepared()
    for (let i = 0; i < 3; i++) await outbox.pass()
    expect(fake.state.events.size).toBe(2_500)
    const sizes = fake.requests
      .filter(({ path }) => path.endsWith('/events'))
      .map(({ events }) => events.length)
    expect([Math.max(...sizes), sizes.reduce((sum, size) => sum + size, 0)]).toEqual([400, 2_500])
    await backend.stop()
  })

  it('queues each ticket once, in its batch, even if its event repeats', async () => {
    const metering = world.metering({ emitter })
    const event = (id: string, sequence_number: number) =>
      envelope(
        {
          auth_id: `${world.app.clientId}:ingested`,
          current_time: '2026-09-14T10:16:00.000007Z',
          computed_fee: '2000000000000000',
          sequence_number,
        },
        { id },
      )
    await metering.ingestEvents([event('in-1', 0), event('in-2', 1), event('in-1', 0)])
    await metering.ingestEvents([
      event('in-2', 1),
      event('in-3', 2),
      envelope({ auth_id: '' }, { id: 'nobody' }),
    ])
    const { outbox, backend, prepared } = await sender()
    await prepared()
    await outbox.pass()
    const sent = fake.requests
      .filter(({ path }) => path.endsWith('/events'))
      .flatMap(({ events }) => events.map(({ id }) => id))
    expect(sent.toSorted()).toEqual(['in-1', 'in-2', 'in-3'])
    expect([...fake.state.events.values()][0]).toMatchObject({
      time: '2026-09-14T10:16:00.000007Z',
      data: { external_user_id: 'ingested', network_fee_usd_micros: 6_000_000 },
    })
    await metering.stop()
    await backend.stop()
  })

  it('sends a ticket once, when it gets its price', async () => {
    const metering = world.metering({ fixed: false, emitter })
    const at = '2026-09-14T10:12:00Z'
    await metering.ingestEvents([
      envelope(
        {
          auth_id: `${world.app.clientId}:late`,
          current_time: at,
          computed_fee: '1000000000000000',
        },
        { id: 'late-1' },
      ),
    ])
    expect(await waiting()).toBe(0)
    await metering.start()
    await metering.recordRate({ usdPerEth: '2000', source: 'test', observedAt: at })
    const { outbox, backend, prepared } = await sender()
    await prepared()
    await expect
      .poll(async () => {
        await outbox.pass()
        return fake.state.events.size
      })
      .toBe(1)
    expect([...fake.state.events.values()]).toMatchObject([
      {
        id: 'late-1',
        time: '2026-09-14T10:12:00.000000Z',
        data: {
          external_user_id: 'late',
          network_fee_usd_micros: 2_000_000,
          eth_usd_price: '2000',
          fee_wei_exact: '1000000000000000',
          pipeline: 'live',
        },
      },
    ])
    await metering.stop()
    expect(await waiting()).toBe(0)
    await backend.stop()
  })

  it('delivers all other tickets and sets a rejected one aside', async () => {
    fake.faults = ({ events }) => (events.some(({ id }) => id === 'poison') ? 400 : 'none')
    const { outbox, backend, prepared } = await sender()
    await prepared()
    await emit(
      ...Array.from({ length: 700 }, (_, i) => ({
        eventId: i === 333 ? 'poison' : `fine ${i}`,
        rateId,
      })),
    )
    await emit({ eventId: 'fine too', rateId })
    await outbox.pass()
    expect(fake.state.events.size).toBe(700)
    for (let i = 0; i < 10; i++) {
      later()
      await outbox.pass()
    }
    const { rows } = await world.pool.query(
      'select item_count, attempts, last_error, set_aside_at from outbox',
    )
    expect(rows).toEqual([
      {
        item_count: 1,
        attempts: 8,
        last_error: 'answered 400: told to answer 400',
        set_aside_at: expect.any(Date),
      },
    ])
    await backend.stop()
  })

  it('delivers other rows when all tickets of a row are rejected', async () => {
    fake.faults = ({ events }) => (events.some(({ id }) => id.startsWith('poison')) ? 400 : 'none')
    const { outbox, backend, prepared } = await sender()
    await prepared()
    for (let i = 0; i < 10; i++)
      await emit(...Array.from({ length: 3 }, (_, j) => ({ eventId: `before ${i} ${j}`, rateId })))
    await emit(...Array.from({ length: 200 }, (_, i) => ({ eventId: `poison ${i}`, rateId })))
    await emit({ eventId: 'after', rateId })
    await outbox.pass()
    expect(fake.state.events.size).toBe(31)
    expect(fake.requests.length).toBeLessThan(200)
    for (let i = 0; i < 7; i++) {
      later()
      await outbox.pass()
    }
    const { rows } = await world.pool.query('select item_count, attempts, set_aside_at from outbox')
    expect(rows).toEqual([{ item_count: 200, attempts: 8, set_aside_at: expect.any(Date) }])
    await backend.stop()
  })

  it('sends tickets one by one if so configured', async () => {
    await emit(...Array.from({ length: 150 }, (_, i) => ({ eventId: `single ${i}`, rateId })))
    const { outbox, backend, prepared } = await sender({ batchSize: 1 })
    await prepared()
    expect(await outbox.pass()).toMatchObject([
      { claimed: 1, delivered: 1, waitMs: null },
      { claimed: 0 },
      { claimed: 0 },
      { claimed: 0 },
    ])
    expect(fake.state.events.size).toBe(150)
    await backend.stop()
  })

  it('delivers each ticket exactly once despite lost, rejected, duplicate and late requests and dying processes', async () => {
    const fault = fc.constantFrom<Fault>(
      'none',
      'none',
      'none',
      'lose request',
      'lose answer',
      'twice',
      'late',
      400,
      401,
      403,
      404,
      429,
      500,
      503,
    )
    const schedule = fc.record({
      faults: fc.array(fault, { maxLength: 60 }),
      rows: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 12 }),
      batchSize: fc.constantFrom(1, 7, 50, 1_000),
      deaths: fc.array(fc.boolean(), { maxLength: 10 }),
      version: fc.constantFrom('v1', 'v3'),
    })
    let run = 0
    await fc.assert(
      fc.asyncProperty(schedule, async ({ faults, rows, batchSize, deaths, version }) => {
        run++
        fake.faults = () => 'none'
        const cores = await Promise.all(
          [1, 2].map(() =>
            sender({ batchSize, timeoutMs: 100, url: fake.urls[version === 'v1' ? 'v1' : 'v3'] }),
          ),
        )
        await Promise.all(cores.map(({ prepared }) => prepared()))
        const queue = [...faults]
        fake.faults = () => queue.shift() ?? 'none'
        for (const [i, count] of rows.entries()) {
          await emit(
            ...Array.from({ length: count }, (_, j) => ({
              eventId: `${run} ${i} ${j}`,
              rateId,
              cost: BigInt(j + 1) * 1_000_000_000_000n,
            })),
          )
        }
        for (let i = 0; (await waiting()) > 0 && i < 200; i++) {
          // A dying process has sent its rows but does not remove them, as if the database had
          // become unavailable.
          const dies = deaths[i] ?? false
          if (dies)
            await world.pool.query(`create rule keep as on delete to outbox do instead nothing`)
          await Promise.allSettled(cores.map(({ outbox }) => outbox.pass()))
          if (dies) await world.pool.query('drop rule keep on outbox')
          later()
          if (queue.length === 0) await retrySetAside(world.pool, now())
        }
        await Promise.all(cores.map(({ backend }) => backend.stop()))
        expect(await waiting()).toBe(0)
        const mine = [...fake.state.events.values()].filter(({ id }) => id.startsWith(`${run} `))
        expect(mine).toHaveLength(rows.reduce((sum, count) => sum + count, 0))
        expect(
          mine.reduce((sum, { data }) => sum + Number(data['network_fee_usd_micros']), 0),
        ).toBe(rows.reduce((sum, count) => sum + (count * (count + 1)) / 2, 0))
      }),
      { numRuns: 25 },
    )
  }, 120_000)
})

describe('delivery of customers', () => {
  const usersThat = (emitCustomers?: typeof emitter.emitCustomers) =>
    createUsers({
      pool: world.pool,
      plans: createPlans({ ledger: createLedger() }),
      log: silentLog(),
      now,
      emitCustomers,
      credentialIssuers: [],
      grants: { end: async () => undefined },
      invalidations: createInvalidations({
        redis: null,
        tombstoneSeconds: 60,
        log: silentLog(),
      }),
    })

  it('creates customers for users provisioned through the API or by signing', async () => {
    const users = usersThat(emitter.emitCustomers)
    const { user } = await users.upsert(
      world.app.id,
      { externalUserId: parseExternalUserId('grace') },
      { name: 'test' },
    )
    await users.upsert(
      world.app.id,
      { externalUserId: parseExternalUserId('grace'), email: 'g@example.com' },
      { name: 'test' },
    )
    const signed = (
      await users.resolveSubjects([{ clientId: world.app.clientId, externalUserId: 'signer' }])
    ).get(`${world.app.clientId}:signer`)
    fake.faults = ({ path, method }) =>
      path.endsWith('/customers') && method === 'POST' && fake.state.customers.length === 0
        ? 'lose answer'
        : 'none'
    const { outbox, backend, prepared } = await sender({ url: fake.urls.v3 })
    await prepared()
    for (let i = 0; i < 3; i++) {
      await outbox.pass()
      fake.faults = () => 'none'
    }
    expect(
      fake.state.customers.map((one) => [one.key, one.subjects, one.body['name']]).toSorted(),
    ).toEqual(
      [
        [customerKey(user.id), [customerKey(user.id)], 'grace'],
        [`eu_${signed?.userId}`, [`eu_${signed?.userId}`], 'signer'],
      ].toSorted(),
    )
    expect(await waiting()).toBe(0)
    await backend.stop()
  })

  it('queues the new users of a batch together', async () => {
    const emitCustomers = vi.fn(emitter.emitCustomers)
    const users = usersThat(emitCustomers)
    const { clientId } = world.app
    const subjects = Array.from({ length: 40 }, (_, n) => ({ clientId, externalUserId: `b ${n}` }))
    const resolved = await users.resolveSubjects(subjects)
    expect(emitCustomers).toHaveBeenCalledOnce()
    expect(emitCustomers.mock.calls[0]?.[1]).toHaveLength(40)
    const { rows } = await world.pool.query<{ rows: number; statements: number }>(
      `select count(*)::integer as rows, count(distinct (xmin::text, cmin::text))::integer as statements from outbox`,
    )
    expect(rows).toEqual([{ rows: 40, statements: 1 }])
    const { outbox, backend, prepared } = await sender()
    await prepared()
    while ((await waiting()) > 0) await outbox.pass()
    expect(fake.state.customers.map(({ key }) => key).toSorted()).toEqual(
      [...resolved.values()].map(({ userId }) => `eu_${userId}`).toSorted(),
    )
    await backend.stop()
  })

  it('creates customers once for users from before the backend', async () => {
    const users = usersThat()
    for (let i = 0; i < 30; i++)
      await users.upsert(
        world.app.id,
        { externalUserId: parseExternalUserId(`old ${i}`) },
        { name: 'test' },
      )
    const everyone = Number(
      (await world.pool.query('select count(*) as n from end_users')).rows[0].n,
    )
    world.clock.at = new Date(world.clock.at.getTime() + 3_600_000)
    const backfill = createBackfill({ pool: world.pool, log: silentLog(), now })
    expect(await backfill.run(new AbortController().signal)).toBe(everyone)
    const queued = `select count(*)::integer as n from outbox where kind = 'openmeter.subscription'`
    expect((await world.pool.query(queued)).rows).toEqual([{ n: everyone }])
    world.clock.at = new Date(world.clock.at.getTime() + 3_600_000)
    expect(await backfill.run(new AbortController().signal)).toBe(0)
    const { outbox, backend, prepared } = await sender()
    await prepared()
    while ((await waiting()) > 0) await outbox.pass()
    expect(fake.state.customers).toHaveLength(everyone)
    await backend.stop()
  })
})
