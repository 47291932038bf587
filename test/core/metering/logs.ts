import { Producer } from '@platformatic/kafka'
import { createBatcher } from '../../../core/metering/collector/batcher.ts'
import type { KafkaConfig } from '../../../core/metering/config.ts'
import { type Positions, createKafkaSource } from '../../../core/metering/collector/kafka.ts'
import * as offsets from '../../../core/metering/ingest/position-store.ts'
import type { EventSource } from '../../../core/metering/collector/collector.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createTopic, kafkaBrokers } from '../../support/run/kafka.ts'

/** A partitioned log of events. Its readers continue at the positions in the database. */
export interface EventLog {
  append(events: readonly Buffer[]): Promise<void>
  reader(pool: Pool): EventSource
  close(): Promise<void>
}

const partitions = 3

export const positionsIn = (pool: Pool): Positions => ({
  read: (source) => offsets.readPositions(pool, source),
  rewind: (position) => offsets.rewind(pool, position),
})

/**
 * A log in memory. Every reader reads every partition, like two collectors while a group
 * rebalances.
 */
function memoryLog(): EventLog {
  const logs: Buffer[][] = Array.from({ length: partitions }, () => [])
  const source = 'memory'
  let turn = 0

  async function open(pool: Pool) {
    const batcher = createBatcher({
      maxRecords: 700,
      maxBytes: 1e7,
      lingerMs: 5,
      onFull: () => {},
      onRoom: () => {},
    })
    const next = new Map(await offsets.readPositions(pool, source))
    const feed = () => {
      for (const [partition, log] of logs.entries()) {
        const from = Number(next.get(partition) ?? 0n)
        next.set(partition, BigInt(log.length))
        for (const [i, bytes] of log.slice(from).entries()) {
          batcher.push({
            source,
            partition,
            offset: BigInt(from + i),
            bytes,
            producedAtMs: Date.now(),
          })
        }
      }
    }
    feed()
    const timer = setInterval(feed, 10)
    return {
      next: batcher.next,
      committed: () => {},
      readRanges: async () => ({
        source,
        ranges: logs.map(({ length }, partition) => ({
          partition,
          start: 0n,
          end: BigInt(length),
        })),
      }),
      close: async () => {
        clearInterval(timer)
        batcher.fail(new Error('closed'))
      },
    }
  }

  return {
    append: async (events) => {
      for (const event of events) logs[turn++ % partitions]?.push(event)
    },
    reader: (pool) => ({ name: source, open: () => open(pool) }),
    close: async () => {},
  }
}

/** A log in Kafka. */
async function kafkaLog(brokers: readonly string[]): Promise<EventLog> {
  const topic = await createTopic(partitions)
  const producer = new Producer({
    clientId: 'tollgate-test',
    bootstrapBrokers: [...brokers],
    autocreateTopics: false,
  })
  const config: KafkaConfig = {
    brokers,
    topic,
    group: topic,
    tls: null,
    sasl: null,
    sessionSeconds: 10,
  }
  let turn = 0

  async function append(events: readonly Buffer[]): Promise<void> {
    const messages = events.map((value) => ({ topic, partition: turn++ % partitions, value }))
    // One partition per request: if one has no leader yet, a retry of all would write the
    // others twice.
    for (const ofPartition of Map.groupBy(messages, (message) => message.partition).values()) {
      for (let i = 0; i < ofPartition.length; i += 1_000) {
        await producer.send({ messages: ofPartition.slice(i, i + 1_000), acks: 1 })
      }
    }
  }

  const reader = (pool: Pool): EventSource =>
    createKafkaSource(config, {
      log: silentLog(),
      positions: positionsIn(pool),
    })

  return { append, reader, close: () => producer.close() }
}

/** Logs for the collector tests: always the log in memory, and Kafka if it is configured. */
export const eventLogs: readonly [name: string, make: () => Promise<EventLog>][] = [
  ['a log in memory', async () => memoryLog()],
  ...(kafkaBrokers() === null
    ? []
    : [['Kafka', () => kafkaLog(kafkaBrokers() ?? [])] as [string, () => Promise<EventLog>]]),
]
