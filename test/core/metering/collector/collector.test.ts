import { Admin, Producer } from '@platformatic/kafka'
import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import { createKafkaSource } from '../../../../core/metering/collector/kafka.ts'
import type { EventSource } from '../../../../core/metering/collector/collector.ts'
import type { StreamRecord } from '../../../../core/metering/events/record.ts'
import type { Metering } from '../../../../core/metering/service.ts'
import {
  createWorld,
  differences,
  envelope,
  noDifferences,
  recordRate,
  type World,
} from '../harness.ts'
import { createTopic, kafkaBrokers } from '../../../support/run/kafka.ts'
import { createRandom } from '../../../support/random.ts'
import { type EventLog, eventLogs, positionsIn } from '../logs.ts'
import { testSeed } from '../../../support/run/sizes.ts'

describe.each(eventLogs)(`collecting from %s (TEST_SEED=${testSeed})`, (_name, makeLog) => {
  let world: World
  let log: EventLog
  let running: Metering[] = []
  beforeEach(async () => {
    world = await createWorld()
    log = await makeLog()
    await recordRate(world.pool, '2026-09-14T10:15:00Z')
  })
  afterEach(async () => {
    await Promise.all(running.map((metering) => metering.stop()))
    running = []
    await log.close()
    await world.stop()
  })

  const event = (n: number, more: Parameters<typeof envelope>[0] = {}): Buffer =>
    envelope({
      auth_id: `${world.app.clientId}:user-${n % 20}`,
      session_id: `s${n % 50}`,
      sequence_number: n,
      computed_fee: String(n),
      ...more,
    })
  const taken = async (): Promise<number> => {
    const { rows } = await world.pool.query<{ n: bigint }>(
      'select coalesce(sum(tickets + duplicates + ignored + quarantined), 0)::bigint as n from stream_offsets',
    )
    return Number(rows[0]?.n)
  }
  const untilTaken = async (count: number): Promise<void> => {
    await expect.poll(taken, { timeout: 25_000, interval: 50 }).toBe(count)
  }
  const ticketsOf = async () =>
    (
      await world.pool.query<{ n: bigint; fee: string }>(
        'select count(*) as n, coalesce(sum(fee_wei), 0) as fee from tickets',
      )
    ).rows[0]

  async function collect(
    eventSource: EventSource = log.reader(world.pool),
    charge?: Parameters<World['metering']>[0],
  ): Promise<Metering> {
    const metering = world.metering({ eventSource, ...charge })
    running.push(metering)
    await metering.start()
    return metering
  }

  it('loses and duplicates nothing if it dies between commit and acknowledgement (K22)', async () => {
    const random = createRandom(testSeed)
    const events = Array.from({ length: 10_000 }, (_, n) => event(n))
    const stream = events.flatMap((one) => (random.chance(0.05) ? [one, one] : [one]))
    for (let i = 0; i + 1 < stream.length; i++) {
      if (random.chance(0.05))
        [stream[i], stream[i + 1]] = [
          stream[i + 1] ?? Buffer.alloc(0),
          stream[i] ?? Buffer.alloc(0),
        ]
    }
    await log.append(stream)
    let deaths = 0
    await collect(
      {
        name: 'dying',
        open: async () => {
          const session = await log.reader(world.pool).open()
          const held: StreamRecord[] = []
          return {
            ...session,
            // Small batches, so that there are more batches than deaths.
            next: async () => {
              if (held.length === 0) held.push(...(await session.next()))
              return held.splice(0, 1_500)
            },
            committed: () => {
              if (deaths++ < 3) throw new Error('killed')
            },
          }
        },
      },
      {
        charge: (real) => async (db, charges, options) => {
          if (random.chance(0.1))
            throw Object.assign(new Error('killed in the transaction'), { code: '57P01' })
          return real(db, charges, options)
        },
      },
    )
    await untilTaken(stream.length)
    expect(deaths).toBeGreaterThanOrEqual(3)
    expect(await ticketsOf()).toEqual({ n: 10_000n, fee: String((9_999 * 10_000) / 2) })
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('counts each event once when two collectors take the same records', async () => {
    const events = Array.from({ length: 4_000 }, (_, n) => event(n))
    await log.append(events.slice(0, 2_000))
    await Promise.all([collect(), collect()])
    await log.append(events.slice(2_000))
    await untilTaken(4_000)
    expect(await ticketsOf()).toMatchObject({ n: 4_000n })
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('changes nothing when stopped midway and restarted', async () => {
    const events = Array.from({ length: 3_000 }, (_, n) => event(n))
    await log.append(events.slice(0, 1_500))
    const first = await collect()
    await expect.poll(taken, { interval: 10, timeout: 20_000 }).toBeGreaterThan(0)
    await first.stop()
    await log.append(events.slice(1_500))
    await collect()
    await untilTaken(3_000)
    const before = await ticketsOf()
    await (await collect()).stop()
    expect(await ticketsOf()).toEqual(before)
    expect(before).toMatchObject({ n: 3_000n })
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('marks replayed sequence numbers across batches, despite failures', async () => {
    const random = createRandom(testSeed)
    // Includes stretches without a replay, so that some early writes hold and others fail.
    const calls = Array.from({ length: 4_000 }, (_, n) =>
      n % 1_500 < 500 && random.chance(0.05) ? random.below(n) : n,
    )
    await log.append(
      calls.map((number, n) =>
        event(number, { session_id: `s${number % 50}`, computed_fee: String(n) }),
      ),
    )
    await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        if (random.chance(0.2))
          throw Object.assign(new Error('killed in the transaction'), { code: '57P01' })
        return real(db, charges, options)
      },
    })
    await untilTaken(calls.length)
    const { rows } = await world.pool.query(
      'select count(*) as n, count(*) filter (where replayed) as replayed from tickets',
    )
    expect(rows).toEqual([{ n: 4_000n, replayed: BigInt(calls.length - new Set(calls).size) }])
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('quarantines the one event that the database rejects, and continues', async () => {
    const poison = randomUUID()
    const events = Array.from({ length: 300 }, (_, n) =>
      n === 111 ? envelope({ auth_id: `${world.app.clientId}:p` }, { id: poison }) : event(n),
    )
    await log.append([...events, Buffer.from('garbage')])
    await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        if (charges.some((charge) => charge.each().some(({ eventId }) => eventId === poison)))
          throw Object.assign(new Error('numeric overflow'), { code: '22003' })
        return real(db, charges, options)
      },
    })
    await untilTaken(301)
    expect(await ticketsOf()).toMatchObject({ n: 299n })
    expect(
      (
        await world.pool.query(
          'select reason, event_id, fee_wei, detail from quarantine order by reason',
        )
      ).rows,
    ).toEqual([
      expect.objectContaining({ reason: 'not_json' }),
      {
        reason: 'rejected_by_database',
        event_id: poison,
        fee_wei: '120000',
        detail: '22003 numeric overflow',
      },
    ])
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it("books other apps' tickets in few attempts if the database rejects one app's, and counts each event once", async () => {
    const [greedy, broken] = [await world.createApp('greedy'), await world.createApp('broken')]
    const full = await world.users.resolveSubjects([
      { clientId: greedy.clientId, externalUserId: 'full' },
    ])
    // One more ticket makes this hour exceed its column.
    for (const { appId, userId } of full.values())
      await world.pool.query(
        `insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                                   cost_attos, billable_secs, pixels)
         values ($1, $2, '2026-09-14T10:00:00Z', 'live', 'unknown', 1, 0, 0, 1e38::numeric - 1, 0, 0)`,
        [appId, userId],
      )
    const refused = (n: number): Buffer =>
      event(n, {
        auth_id: `${greedy.clientId}:full`,
        session_id: `full-${n % 7}`,
        computed_fee: '100000000000000000000',
      })
    const unexpected = event(9, { auth_id: `${broken.clientId}:someone` })
    await log.append([
      ...Array.from({ length: 600 }, (_, n) => (n % 2 === 0 ? refused(n) : event(n))),
      unexpected,
      event(11, { auth_id: `${greedy.clientId}:modest` }),
      ...Array.from({ length: 20 }, (_, n) => event(1_000 + n)),
    ])
    let tries = 0
    await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        tries += 1
        if (charges.some(({ appId }) => appId === broken.id)) throw new Error('unexpected')
        return real(db, charges, options)
      },
    })
    await untilTaken(622)
    expect(await ticketsOf()).toMatchObject({ n: 321n })
    expect(tries).toBeLessThan(70)
    const { rows } = await world.pool.query(
      `select auth_id, reason, count(*)::int as n, min(split_part(detail, ';', 1)) as why, max(deliveries)::int as deliveries
       from quarantine group by 1, 2 order by 3`,
    )
    expect(rows).toEqual([
      {
        auth_id: `${broken.clientId}:someone`,
        reason: 'rejected_by_database',
        n: 1,
        why: 'unexpected',
        deliveries: 1,
      },
      {
        auth_id: `${greedy.clientId}:full`,
        reason: 'rejected_by_database',
        n: 300,
        why: '22003 numeric field overflow',
        deliveries: 1,
      },
    ])
    await world.pool.query('delete from usage_hourly where cost_attos >= 1e37::numeric')
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('waits while the database is not writable, then continues without quarantining anything', async () => {
    await log.append(Array.from({ length: 50 }, (_, n) => event(n)))
    let down = true
    const metering = await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        if (down) throw Object.assign(new Error('disk full'), { code: '53100' })
        return real(db, charges, options)
      },
    })
    await expect
      .poll(() => metering.ready(), { timeout: 10_000 })
      .toEqual({ rate: true, events: true })
    await expect
      .poll(
        async () =>
          Number((await world.metric('tollgate_metering_lag_seconds{'))[0]?.split(' ').at(-1)),
        { timeout: 10_000 },
      )
      .toBeGreaterThan(0)
    expect(await taken()).toBe(0)
    down = false
    await untilTaken(50)
    await expect
      .poll(() => world.metric('tollgate_metering_lag_seconds{'))
      .toEqual(['tollgate_metering_lag_seconds{process="test"} 0'])
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('stores how far the stream reaches, while events wait and after they are booked', async () => {
    await log.append(Array.from({ length: 30 }, (_, n) => event(n)))
    let down = true
    const metering = await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        if (down) throw Object.assign(new Error('disk full'), { code: '53100' })
        return real(db, charges, options)
      },
    })
    const behind = async () =>
      (await metering.status()).streams.reduce<bigint | undefined>(
        (sum, { lag }) => (lag === null ? sum : (sum ?? 0n) + lag.events),
        undefined,
      )
    await expect.poll(() => metering.ready(), { timeout: 10_000 }).toMatchObject({ events: true })
    // Wakes the loops: the next reading of the ends would be ten seconds later.
    await metering.recordRate({ usdPerEth: '3000', source: 'test' })
    await expect.poll(behind, { timeout: 10_000 }).toBe(30n)
    down = false
    await expect.poll(behind, { timeout: 25_000 }).toBe(0n)
  })

  it('continues after its database connections are cut', async () => {
    const events = Array.from({ length: 4_000 }, (_, n) => event(n))
    await log.append(events)
    let cuts = 0
    await collect(undefined, {
      charge: (real) => async (db, charges, options) => {
        if (cuts++ < 3)
          await db.query(
            'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()',
          )
        return real(db, charges, options)
      },
    })
    await untilTaken(4_000)
    expect(cuts).toBeGreaterThan(3)
    expect((await world.pool.query('select count(*)::int as n from quarantine')).rows).toEqual([
      { n: 0 },
    ])
    expect(await differences(world.pool)).toEqual(noDifferences)
  })

  it('reopens the source after a failure', async () => {
    await log.append(Array.from({ length: 20 }, (_, n) => event(n)))
    let opened = 0
    await collect({
      name: 'flaky',
      open: async () => {
        if (opened++ < 2) throw new Error('no broker')
        return log.reader(world.pool).open()
      },
    })
    await untilTaken(20)
    expect(opened).toBeGreaterThanOrEqual(3)
  })
})

describe.each(kafkaBrokers() === null ? [] : [kafkaBrokers() ?? []])(
  'Kafka source on %s',
  (...brokers) => {
    let world: World
    beforeEach(async () => {
      world = await createWorld()
    })
    afterEach(() => world.stop())

    const sourceOf = (topic: string): EventSource =>
      createKafkaSource(
        { brokers, topic, group: topic, tls: null, sasl: null, sessionSeconds: 10 },
        { log: silentLog(), positions: positionsIn(world.pool) },
      )
    const produce = async (topic: string, ...values: (Buffer | undefined)[]): Promise<void> => {
      const producer = new Producer({ clientId: 'test', bootstrapBrokers: brokers })
      await producer.send({
        messages: values.map((value) => ({ topic, partition: 0, ...(value && { value }) })),
        acks: -1,
      })
      await producer.close()
    }

    it("creates the signer's topic, and delivers records without a value", async () => {
      const topic = `tollgate-test-${randomUUID()}`
      const session = await sourceOf(topic).open()
      await produce(topic, undefined, Buffer.from('x'))
      const records = await session.next()
      expect(records.map(({ offset, bytes }) => [offset, bytes.length])).toEqual([
        [0n, 0],
        [1n, 1],
      ])
      await session.close()
      await expect(session.next()).rejects.toThrow('closed')
    })

    it('continues at the end of a log truncated below its position, and records the loss', async () => {
      const topic = await createTopic(1)
      await produce(topic, Buffer.from('1'), Buffer.from('2'))
      const first = await sourceOf(topic).open()
      const source = (await first.next())[0]?.source ?? ''
      await first.close()
      await world.pool.query('insert into stream_offsets values ($1, 0, 0, 90, 90, 0, 0, 0, 0)', [
        source,
      ])
      const session = await sourceOf(topic).open()
      await produce(topic, Buffer.from('3'))
      expect((await session.next()).map((record) => record.offset)).toEqual([2n])
      await session.close()
      expect(
        (await world.pool.query('select next_offset, missing from stream_offsets')).rows,
      ).toEqual([{ next_offset: 2n, missing: -88n }])
    })

    it('reads the range of offsets of each partition while it collects', async () => {
      const topic = await createTopic(2)
      await produce(topic, Buffer.from('1'), Buffer.from('2'))
      const session = await sourceOf(topic).open()
      const [record] = await session.next()
      const read = await session.readRanges?.()
      await session.close()
      expect(read?.source).toBe(record?.source)
      expect(read?.ranges.map(({ partition, start }) => [partition, start])).toEqual([
        [0, 0n],
        [1, 0n],
      ])
      expect(read?.ranges.reduce((sum, { end }) => sum + end, 0n)).toBe(2n)
    })

    it('distinguishes a recreated topic from the old one', async () => {
      const topic = await createTopic(1)
      const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers })
      const seen = new Set<string>()
      for (let round = 0; round < 2; round++) {
        await produce(topic, Buffer.from('x'))
        const session = await sourceOf(topic).open()
        const [record] = await session.next()
        expect(record?.offset).toBe(0n)
        seen.add(record?.source ?? '')
        await session.close()
        await admin.deleteTopics({ topics: [topic] })
        await expect
          .poll(() =>
            admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 }).then(
              () => 'made',
              () => 'not yet',
            ),
          )
          .toBe('made')
      }
      await admin.close()
      expect(seen.size).toBe(2)
    })
  },
)
