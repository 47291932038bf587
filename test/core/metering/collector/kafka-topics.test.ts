import { Admin, Producer } from '@platformatic/kafka'
import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import { createBatcher } from '../../../../core/metering/collector/batcher.ts'
import { createKafkaSource } from '../../../../core/metering/collector/kafka.ts'
import type { Metering } from '../../../../core/metering/service.ts'
import { createTopic, kafkaBrokers } from '../../../support/run/kafka.ts'
import { photograph } from '../../../support/usage/database-lines.ts'
import {
  createWorld,
  differences,
  envelope,
  noDifferences,
  recordRate,
  type World,
} from '../harness.ts'
import { positionsIn } from '../logs.ts'

describe('batcher', () => {
  const record = (size: number) => ({
    source: 's',
    partition: 0,
    offset: 0n,
    bytes: Buffer.alloc(size),
    producedAtMs: 0,
  })

  it('pauses the stream while a full batch waits, by number or bytes, and resumes it when the batch is taken', async () => {
    for (const sizes of [
      [1, 1, 1],
      [60, 60],
    ]) {
      const calls: string[] = []
      const batcher = createBatcher({
        maxRecords: 3,
        maxBytes: 100,
        lingerMs: 1,
        onFull: () => calls.push('full'),
        onRoom: () => calls.push('room'),
      })
      for (const size of sizes) batcher.push(record(size))
      expect(calls).toEqual(['full'])
      expect(await batcher.next()).toHaveLength(sizes.length)
      expect(calls).toEqual(['full', 'room'])
    }
  })
})

describe.each(kafkaBrokers() === null ? [] : [kafkaBrokers() ?? []])(
  'topic on %s',
  (...brokers) => {
    let world: World
    const running: Metering[] = []
    const connection = { clientId: 'tollgate-test', bootstrapBrokers: brokers, timeout: 20_000 }
    const admin = new Admin(connection)
    const producers: Producer[] = []
    beforeEach(async () => {
      world = await createWorld()
      await recordRate(world.pool, '2026-09-14T10:15:00Z')
    })
    afterEach(async () => {
      await stopAll()
      for (const producer of producers.splice(0)) await producer.close(true)
      await world.stop()
    })
    const stopAll = async (): Promise<void> =>
      void (await Promise.all(running.splice(0).map((metering) => metering.stop())))

    const event = (n: number): Buffer =>
      envelope({
        auth_id: `${world.app.clientId}:user-${n % 20}`,
        session_id: `s${n % 50}`,
        sequence_number: n,
        computed_fee: String(n),
      })
    const events = (count: number, from = 0): Buffer[] =>
      Array.from({ length: count }, (_, n) => event(from + n))

    function producerOf(options: object = {}): Producer {
      const producer = new Producer({ ...connection, ...options })
      producers.push(producer)
      return producer
    }

    async function produce(
      topic: string,
      values: readonly Buffer[],
      {
        partitions = 1,
        ...options
      }: { partitions?: number; compression?: 'gzip' | 'snappy' | 'lz4' | 'zstd' } = {},
    ): Promise<void> {
      const messages = values.map((value, n) => ({ topic, partition: n % partitions, value }))
      const producer = producerOf()
      // One partition per request: a retry of messages to several would write delivered ones twice.
      for (const ofPartition of Map.groupBy(messages, ({ partition }) => partition).values()) {
        for (let i = 0; i < ofPartition.length; i += 500)
          await producer.send({ messages: ofPartition.slice(i, i + 500), acks: -1, ...options })
      }
    }

    async function collect(topic: string, group = topic): Promise<Metering> {
      const eventSource = createKafkaSource(
        { brokers, topic, group, tls: null, sasl: null, sessionSeconds: 6 },
        { log: silentLog(), positions: positionsIn(world.pool) },
      )
      const metering = world.metering({ eventSource })
      running.push(metering)
      await metering.start()
      return metering
    }

    const counters = async () =>
      (
        await world.pool.query<Record<string, number>>(`
    select sum(tickets)::int as tickets, sum(duplicates)::int as duplicates, sum(quarantined)::int as quarantined,
           sum(missing)::int as missing, sum(next_offset - first_offset)::int as offsets
    from stream_offsets`)
      ).rows[0]
    const untilOffsets = async (count: number): Promise<void> => {
      await expect
        .poll(async () => (await counters())?.['offsets'], { timeout: 25_000, interval: 50 })
        .toBe(count)
    }

    it("changes nothing when another group starts at the topic's beginning", async () => {
      const topic = await createTopic(3)
      await produce(topic, events(300), { partitions: 3 })
      await collect(topic)
      await untilOffsets(300)
      await stopAll()
      const before = await photograph(world.pool)
      await collect(topic, `${topic}-renamed`)
      await produce(topic, [event(300)])
      await untilOffsets(301)
      expect(await counters()).toMatchObject({ tickets: 301, duplicates: 0, missing: 0 })
      await stopAll()
      // Now the positions are lost, too: every event is read again.
      await world.pool.query('delete from stream_offsets')
      const photo = await photograph(world.pool)
      await collect(topic, `${topic}-again`)
      await untilOffsets(301)
      expect(await counters()).toMatchObject({ tickets: 0, duplicates: 301, missing: 0 })
      expect(await photograph(world.pool)).toEqual(photo)
      expect(photo).not.toEqual(before)
    })

    it('changes nothing when the topic is recreated with the same events', async () => {
      const topic = await createTopic(1)
      const all = events(100)
      await produce(topic, all)
      await collect(topic)
      await untilOffsets(100)
      await stopAll()
      const photo = await photograph(world.pool)
      await admin.deleteTopics({ topics: [topic] })
      await expect
        .poll(() =>
          admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 }).then(
            () => 'made',
            () => 'not yet',
          ),
        )
        .toBe('made')
      await produce(topic, all, { partitions: 2 })
      await collect(topic)
      await untilOffsets(200)
      expect(await counters()).toMatchObject({ tickets: 100, duplicates: 100, missing: 0 })
      expect(await photograph(world.pool)).toEqual(photo)
    })

    it('counts records as missing that retention deleted before they were read', async () => {
      const topic = await createTopic(1)
      await produce(topic, events(40))
      await collect(topic)
      await untilOffsets(40)
      await stopAll()
      await produce(topic, events(60, 40))
      await admin.deleteRecords({
        topics: [{ name: topic, partitions: [{ partition: 0, offset: 70n }] }],
      })
      await collect(topic)
      await untilOffsets(100)
      expect(await counters()).toEqual({
        tickets: 70,
        duplicates: 0,
        quarantined: 0,
        missing: 30,
        offsets: 100,
      })
    })

    it.each(['gzip', 'snappy', 'lz4', 'zstd'] as const)(
      'reads batches compressed with %s',
      async (compression) => {
        const topic = await createTopic(1)
        await produce(topic, events(700), { compression })
        await collect(topic)
        await untilOffsets(700)
        expect(await counters()).toMatchObject({ tickets: 700, missing: 0 })
        expect(await differences(world.pool)).toEqual(noDifferences)
      },
    )

    it('quarantines a tombstone and a message of 1 MiB, and continues (K17)', async () => {
      const topic = await createTopic(1)
      const large = randomBytes(1024 * 1024 - 200)
      await producerOf().send({ messages: [{ topic, key: Buffer.from('k') }], acks: -1 })
      for (const value of [event(0), large, event(1), large, large, event(2)])
        await produce(topic, [value])
      await collect(topic)
      await untilOffsets(7)
      expect(await counters()).toMatchObject({ tickets: 3, quarantined: 4, missing: 0 })
      const { rows } = await world.pool.query(
        'select reason, byte_count::int as bytes, deliveries::int from quarantine order by byte_count',
      )
      expect(rows).toEqual([
        { reason: 'not_json', bytes: 0, deliveries: 1 },
        { reason: 'not_utf8', bytes: large.length, deliveries: 3 },
      ])
    })

    it('reads committed records of transactions; markers and aborted records are offsets without an event', async () => {
      const topic = await createTopic(1)
      const producer = producerOf({ idempotent: true, transactionalId: `${topic}-tx` })
      for (const [n, end] of (['commit', 'abort', 'commit'] as const).entries()) {
        const transaction = await producer.beginTransaction()
        await transaction.send({
          messages: events(5, n * 5).map((value) => ({ topic, partition: 0, value })),
        })
        await transaction[end]()
      }
      await produce(topic, [event(99)])
      await collect(topic)
      await untilOffsets(19)
      expect(await counters()).toEqual({
        tickets: 11,
        duplicates: 0,
        quarantined: 0,
        missing: 8,
        offsets: 19,
      })
    })

    it('ingests each event once while collectors come and go, and leaves no partition unassigned for long', async () => {
      const topic = await createTopic(16)
      const total = 9_000
      const first = await collect(topic)
      const all = events(total)
      const taken: number[] = []
      const producing = (async () => {
        for (let i = 0; i < total; i += 450) {
          await produce(topic, all.slice(i, i + 450), { partitions: 16 })
          await new Promise((resolve) => {
            setTimeout(resolve, 250)
          })
        }
      })()
      const watching = setInterval(
        () => void counters().then((now) => taken.push(now?.['offsets'] ?? 0)),
        100,
      )
      const later = await collect(topic)
      await new Promise((resolve) => {
        setTimeout(resolve, 1_500)
      })
      await collect(topic)
      await new Promise((resolve) => {
        setTimeout(resolve, 1_000)
      })
      await first.stop()
      await later.stop()
      await producing
      await untilOffsets(total)
      clearInterval(watching)
      expect(await counters()).toMatchObject({ tickets: total, duplicates: 0, missing: 0 })
      expect(await differences(world.pool)).toEqual(noDifferences)
      expect(longestPause(taken)).toBeLessThan(50)
    }, 60_000)
  },
)

/** Returns the highest number of consecutive polls without progress. */
function longestPause(taken: readonly number[]): number {
  let [longest, pause] = [0, 0]
  for (const [i, count] of taken.entries()) {
    pause = count === taken[i - 1] ? pause + 1 : 0
    longest = Math.max(longest, pause)
  }
  return longest
}
