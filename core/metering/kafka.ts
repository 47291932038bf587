import { Admin, type BaseOptions, Consumer, type ConsumerOptions, type MessagesStream } from '@platformatic/kafka'
import type { Log } from '../lib/log.ts'
import { type Batcher, createBatcher } from './batcher.ts'
import type { KafkaConfig } from './config.ts'
import { maxBatch } from './ingest.ts'
import type { EventSession, EventSource, StreamRecord } from './types.ts'

/** Where the stream was taken to; Postgres keeps it, in the transactions that took it there. */
export interface Positions {
  read(source: string): Promise<ReadonlyMap<number, bigint>>
  rewind(position: { source: string; partition: number; nextOffset: bigint }): Promise<void>
}

export interface KafkaDeps {
  readonly positions: Positions
  readonly log: Log
}

const maxBatchBytes = 8 * 1024 * 1024
const lingerMs = 50
const latestOffset = -1n
const closeMs = 2_000

type Stream = MessagesStream<Buffer, Buffer, Buffer, Buffer>

/** The signer's topic, read by a consumer group that goes on where Postgres says. */
export function createKafkaSource(config: KafkaConfig, { positions, log }: KafkaDeps): EventSource {
  const { topic } = config

  async function open(): Promise<EventSession> {
    const consumer = new Consumer(consumerOptions(config))
    try {
      return await openWith(consumer)
    } catch (error) {
      await closeConsumer(consumer)
      throw error
    }
  }

  async function openWith(consumer: Consumer): Promise<EventSession> {
    // Without a listener an error event would end the process; every operation reports its own failure besides.
    let failed: (error: Error) => void = (error) => log.warn({ err: error }, 'Kafka consumer')
    consumer.on('error', (error: Error) => failed(error))
    const source = await sourceOf(consumer)
    const stream = await consumer.consume({
      topics: [topic], mode: 'manual', fallbackMode: 'earliest', autocommit: false,
      offsets: await offsetsOf(consumer, source),
    })
    const batcher = feed(stream, source)
    failed = batcher.fail
    consumer.on('consumer:group:join', () => void catchUp(stream, source).catch(batcher.fail))
    return {
      next: batcher.next,
      committed: (records) => commitToGroup(consumer, records),
      close: async () => {
        batcher.fail(new Error('the session is closed'))
        await closeConsumer(consumer)
      },
    }
  }

  // A partition that comes from another collector goes on where that one left it. What is read twice is skipped by
  // position in the database; opening a new stream instead would make the whole group rebalance again.
  async function catchUp(stream: Stream, source: string): Promise<void> {
    for (const [partition, offset] of await positions.read(source)) {
      const key = `${topic}:${partition}`
      if (offset > (stream.offsetsToFetch.get(key) ?? 0n)) stream.offsetsToFetch.set(key, offset)
    }
  }

  // A topic that was deleted and made again starts at 0 again: its id tells the two apart.
  async function sourceOf(consumer: Consumer): Promise<string> {
    const find = () => consumer.metadata({ topics: [topic], forceUpdate: true })
    const metadata = await find().catch((error: unknown) => {
      if (!(error instanceof Error && /unknown topic/i.test(error.message))) throw error
      return createTopic(config).then(find)
    })
    const id = metadata.topics.get(topic)?.id
    if (id === undefined) throw new Error(`there is no topic ${topic}`)
    return `kafka:${topic}:${id}`
  }

  async function offsetsOf(consumer: Consumer, source: string) {
    const known = await positions.read(source)
    const ends = (await consumer.listOffsets({ topics: [topic], timestamp: latestOffset })).get(topic) ?? []
    const offsets: { topic: string; partition: number; offset: bigint }[] = []
    for (const [partition, offset] of known) {
      const end = ends[partition]
      if (end === undefined) continue
      if (offset > end) {
        log.error({ source, partition, offset: String(offset), end: String(end) }, 'the broker has lost events that were taken')
        await positions.rewind({ source, partition, nextOffset: end })
      }
      offsets.push({ topic, partition, offset: offset > end ? end : offset })
    }
    return offsets
  }

  function commitToGroup(consumer: Consumer, records: readonly StreamRecord[]): void {
    const next = new Map<number, bigint>()
    for (const { partition, offset } of records) if (offset !== null) next.set(partition, offset + 1n)
    if (!consumer.isActive()) return
    consumer
      .commit({ offsets: [...next].map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: -1 })) })
      .catch((error: unknown) => log.debug({ err: error }, 'Kafka does not know how far the group is; Postgres does'))
  }

  async function closeConsumer(consumer: Consumer): Promise<void> {
    const timer = new Promise<void>((resolve) => { setTimeout(resolve, closeMs).unref() })
    await Promise.race([consumer.close(true).catch(() => {}), timer])
  }

  return { name: `kafka:${topic}`, open }
}

// The signer does not create its topic (signer-contract 5.1). With the broker's own numbers of partitions and copies.
async function createTopic(config: KafkaConfig): Promise<void> {
  const admin = new Admin(connectionOptions(config))
  try {
    await admin.createTopics({ topics: [config.topic], partitions: -1, replicas: -1 })
  } finally {
    await admin.close()
  }
}

function feed(stream: Stream, source: string): Batcher {
  const batcher = createBatcher({
    maxRecords: maxBatch, maxBytes: maxBatchBytes, lingerMs,
    onFull: () => void stream.pause(), onRoom: () => void stream.resume(),
  })
  stream.on('data', ({ partition, offset, value, timestamp }) => batcher.push({
    // A record without a value is bytes that are no event, like any other.
    source, partition, offset, bytes: value ?? Buffer.alloc(0), producedAtMs: Number(timestamp),
  }))
  stream.on('error', batcher.fail)
  stream.on('close', () => batcher.fail(new Error('the Kafka stream has ended')))
  return batcher
}

function consumerOptions(config: KafkaConfig): ConsumerOptions<Buffer, Buffer, Buffer, Buffer> {
  return {
    ...connectionOptions(config), groupId: config.group,
    sessionTimeout: config.sessionSeconds * 1_000, rebalanceTimeout: 60_000, heartbeatInterval: (config.sessionSeconds * 1_000) / 4,
    maxBytes: maxBatchBytes, maxBytesPerPartition: maxBatchBytes / 8, maxWaitTime: 500,
  }
}

function connectionOptions(config: KafkaConfig): BaseOptions {
  return {
    clientId: 'tollgate', bootstrapBrokers: [...config.brokers],
    connectTimeout: 5_000, timeout: 10_000, retries: 3, retryDelay: 250,
    ...(config.sasl && { sasl: { mechanism: 'PLAIN', ...config.sasl } }),
    ...(config.tls && { tls: { minVersion: 'TLSv1.2' } }),
  }
}
