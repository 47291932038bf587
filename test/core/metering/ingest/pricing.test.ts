import { describe, expect, it } from 'vitest'
import { envelope, recordRate } from '../harness.ts'
import { alice, counts, ingest, rows, setUpWorld, world } from './world.ts'

setUpWorld()

describe('with a fixed rate', () => {
  it('prices any instant, including before its first observation', async () => {
    world.clock.at = new Date('2026-09-14T10:30:00Z')
    const times = ['2025-10-03T07:08:09.123456Z', '2026-09-14T10:14:59.9Z', '2026-09-14T10:59:00Z']
    const events = times.map((current_time, sequence_number) =>
      alice({ current_time, sequence_number, computed_fee: '987654321' }),
    )
    expect(await ingest(...events)).toEqual(counts(3))
    // It also prices a ticket that arrived before the fixed rate was set.
    await world
      .metering({ fixed: false })
      .ingestEvents([
        alice({ current_time: '2026-01-02T03:04:05Z', sequence_number: 9, computed_fee: '7' }),
      ])
    const metering = world.metering()
    await metering.start()
    try {
      await expect
        .poll(() => rows('select cost_attos from tickets order by sequence_number'))
        .toEqual([...times.map(() => ({ cost_attos: '2962962963000' })), { cost_attos: '21000' }])
    } finally {
      await metering.stop()
    }
  })
})

describe('without a usable rate', () => {
  const ingest = (...events: Buffer[]) => world.metering({ fixed: false }).ingestEvents(events)

  it('stores the wei, and prices it once and exactly when the rate of that time is known (K23)', async () => {
    const late = alice({ current_time: '2026-09-14T10:28:00Z', computed_fee: '7' })
    expect(await ingest(alice(), late)).toEqual(counts(2))
    expect(await rows('select unpriced_count, fee_wei, cost_attos from usage_hourly')).toEqual([
      { unpriced_count: 1n, fee_wei: '120007', cost_attos: '360000000' },
    ])
    const metering = world.metering({ fixed: false })
    world.clock.at = new Date('2026-09-14T10:27:59Z')
    await metering.start()
    try {
      // Needs an observation before the ticket's time; this one is a second before it.
      await metering.recordRate({ usdPerEth: '0.4', source: 'desk' })
      await expect
        .poll(() => rows('select cost_attos from tickets order by signed_at'))
        .toEqual([{ cost_attos: '360000000' }, { cost_attos: '2' }])
    } finally {
      await metering.stop()
    }
    expect(await rows('select unpriced_count, cost_attos from usage_hourly')).toEqual([
      { unpriced_count: 0n, cost_attos: '360000002' },
    ])
  })

  it('ignores observations after the ticket, or older than the maximum age', async () => {
    await recordRate(world.pool, '2026-09-14T11:00:00Z')
    const times = [
      '2026-09-14T10:14:59.999999Z',
      '2026-09-14T10:25:00Z',
      '2026-09-14T10:25:00.000001Z',
      '2026-09-14T10:59:59.999Z',
      '2026-09-14T11:10:00Z',
    ]
    await ingest(
      ...times.map((current_time, sequence_number) => alice({ current_time, sequence_number })),
    )
    expect(
      (await rows('select rate_id from tickets order by sequence_number')).map(
        (row) => row['rate_id'] !== null,
      ),
    ).toEqual([false, true, false, false, true])
    const metering = world.metering({ fixed: false })
    await metering.start()
    await metering.stop()
    expect(await rows('select count(*) as n from tickets where rate_id is null')).toEqual([
      { n: 3n },
    ])
  })

  it('prices by a manual rate for a day, immediately and later', async () => {
    const metering = world.metering({ fixed: false })
    expect(await metering.ready()).toEqual({ rate: true })
    const at = (current_time: string, sequence_number: number) =>
      alice({ current_time, sequence_number, computed_fee: '10' })
    world.clock.at = new Date('2026-09-16T12:00:00Z')
    expect(await metering.ready()).toEqual({ rate: false })
    await ingest(at('2026-09-15T11:00:00Z', 1), at('2026-09-15T11:00:01Z', 2))
    expect((await metering.status()).oldestUnpriced).toEqual(new Date('2026-09-15T11:00:00Z'))
    await metering.start()
    try {
      await metering.recordRate({
        usdPerEth: '2',
        source: 'desk',
        observedAt: '2026-09-14T11:00:00Z',
      })
      await expect.poll(async () => (await metering.status()).unpriced).toBe(1n)
      expect((await metering.status()).oldestUnpriced).toEqual(new Date('2026-09-15T11:00:01Z'))
      await ingest(at('2026-09-15T10:59:59Z', 3), at('2026-09-15T11:00:02Z', 4))
      expect(await rows('select cost_attos from tickets order by sequence_number')).toEqual(
        ['20', null, '20', null].map((cost_attos) => ({ cost_attos })),
      )
    } finally {
      await metering.stop()
    }
  })

  it('prices unpriced tickets in many batches, and reports how many remain', async () => {
    const events = Array.from({ length: 2_500 }, (_, n) =>
      alice({ sequence_number: n, current_time: '2026-09-14T09:05:00Z' }),
    )
    const metering = world.metering({ fixed: false })
    await metering.ingestEvents(events)
    expect(await world.metric('tollgate_metering_unpriced_tickets{')).toEqual([
      'tollgate_metering_unpriced_tickets{process="test"} 2500',
    ])
    await recordRate(world.pool, '2026-09-14T09:00:00Z')
    const rival = world.metering({ fixed: false })
    await Promise.all([metering.start(), rival.start()])
    await expect.poll(async () => (await metering.status()).unpriced, { timeout: 15_000 }).toBe(0n)
    expect(await rows('select count(distinct charge_id) >= 3 as batches from tickets')).toEqual([
      { batches: true },
    ])
    await Promise.all([metering.stop(), rival.stop()])
  })

  it("prices other apps' tickets if the database rejects one app's, and that app's once it accepts them", async () => {
    const greedy = await world.createApp('greedy')
    const full = envelope({
      auth_id: `${greedy.clientId}:full`,
      current_time: '2026-09-14T09:04:00Z',
    })
    const metering = world.metering({ fixed: false })
    const events = [1, 2, 3].map((n) =>
      alice({ sequence_number: n, current_time: '2026-09-14T09:05:00Z' }),
    )
    await metering.ingestEvents([full, ...events])
    await world.pool.query(
      'update ticket_sessions set cost_attos = 1e38::numeric - 1 where app_id = $1',
      [greedy.id],
    )
    await recordRate(world.pool, '2026-09-14T09:00:00Z')
    await metering.start()
    await expect.poll(async () => (await metering.status()).unpriced).toBe(1n)
    await world.pool.query('update ticket_sessions set cost_attos = 0 where app_id = $1', [
      greedy.id,
    ])
    await metering.recordRate({ usdPerEth: '3000', source: 'desk' })
    await expect.poll(async () => (await metering.status()).unpriced).toBe(0n)
    await metering.stop()
  })
})
