import {
  Admin,
  type BaseOptions,
  type ConnectionPool,
  Consumer,
  type ConsumerOptions,
  type MessagesStream,
} from '@platformatic/kafka'
import { isIP } from 'node:net'
import type { Log } from '../../lib/log.ts'
import { currentValue } from '../../lib/settings/reloadable.ts'
import { type Batcher, createBatcher } from './batcher.ts'
import type { KafkaConfig } from '../config.ts'
import { maxBatch } from '../ingest/ingest.ts'
import type { StreamRecord } from '../events/record.ts'
import type { SourceRanges } from '../streams/store.ts'
import type { EventSession, EventSource } from './collector.ts'

/**
 * How far the stream is consumed. Postgres stores this in the transactions that write the records.
 */
export interface Positions {
  read(source: string): Promise<ReadonlyMap<number, bigint>>
  rewind(position: { source: string; partition: number; nextOffset: bigint }): Promise<void>
}

export interface KafkaDeps {
  readonly positions: Positions
  readonly log: Log
  readonly bounds?: KafkaBounds
}

/**
 * Bounds a collector's memory: at most one batch waits, two are prepared (one if it saves memory),
 * the first already being written, and one is being completed; a fetch brings part of a
 * batch. A message above a bound is delivered alone.
 */
export interface KafkaBounds {
  readonly maxRecords: number
  readonly maxBatchBytes: number
  readonly fetchBytes: number
  readonly fetchPartitionBytes: number
}

const mib = 1024 * 1024

/**
 * Large batches lower the cost per event: a user's balance, hour and session are written once per
 * batch.
 */
export const serverBounds: KafkaBounds = {
  maxRecords: maxBatch,
  maxBatchBytes: 24 * mib,
  fetchBytes: 4 * mib,
  fetchPartitionBytes: mib,
}

/** Bounds for a process that only collects; many such processes may run in parallel. */
export const collectorBounds: KafkaBounds = {
  maxRecords: 1_500,
  maxBatchBytes: 2 * mib,
  fetchBytes: mib / 2,
  fetchPartitionBytes: mib / 8,
}

const lingerMs = 50
const heartbeatMs = 1_000
const latestOffset = -1n
const earliestOffset = -2n
const closeMs = 2_000

type Stream = MessagesStream<Buffer, Buffer, Buffer, Buffer>

/** Reads the signer's topic as a consumer group that continues at the positions in Postgres. */
export function createKafkaSource(
  config: KafkaConfig,
  { positions, log, bounds = serverBounds }: KafkaDeps,
): EventSource {
  const { topic } = config

  async function open(): Promise<EventSession> {
    const consumer = new Consumer(consumerOptions(config, bounds))
    ignoreLateErrors(consumer.connections)
    try {
      return await openWith(consumer)
    } catch (error) {
      await closeConsumer(consumer)
      throw explained(error)
    }
  }

  async function openWith(consumer: Consumer): Promise<EventSession> {
    // Without a listener, an error event would end the process. Each operation also reports its own
    // failure.
    let failed: (error: unknown) => void = (error) => log.debug({ err: error }, 'Kafka consumer')
    consumer.on('error', (error: Error) => failed(error))
    const source = await sourceOf(consumer)
    const stream = await consumer.consume({
      topics: [topic],
      mode: 'manual',
      fallbackMode: 'earliest',
      autocommit: false,
      offsets: await offsetsOf(consumer, source),
    })
    ignoreLateErrors(stream.connections)
    const batcher = feed(stream, source, bounds)
    failed = (error) => batcher.fail(explained(error))
    consumer.on('consumer:group:join', () => void catchUp(stream, source).catch(failed))
    return {
      next: batcher.next,
      committed: (records) => commitToGroup(consumer, records),
      readRanges: () => readRanges(consumer, source),
      close: async () => {
        batcher.fail(new Error('the session is closed'))
        await closeConsumer(consumer)
      },
    }
  }

  // A partition taken over from another collector continues at that collector's position. Records
  // read twice are skipped by their position in the database; a new stream would make the whole
  // group rebalance again.
  async function catchUp(stream: Stream, source: string): Promise<void> {
    for (const [partition, offset] of await positions.read(source)) {
      const key = `${topic}:${partition}`
      if (offset > (stream.offsetsToFetch.get(key) ?? 0n)) stream.offsetsToFetch.set(key, offset)
    }
  }

  // The topic id is part of the name, because a deleted and recreated topic starts at offset 0
  // again.
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

  const listOffsets = async (consumer: Consumer, timestamp: bigint): Promise<bigint[]> =>
    (await consumer.listOffsets({ topics: [topic], timestamp })).get(topic) ?? []

  // Reads the starts first: retention moves them towards the ends.
  async function readRanges(consumer: Consumer, source: string): Promise<SourceRanges> {
    const starts = await listOffsets(consumer, earliestOffset)
    const ends = await listOffsets(consumer, latestOffset)
    const ranges = ends.map((end, partition) => ({
      partition,
      start: starts[partition] ?? end,
      end,
    }))
    return { source, ranges }
  }

  async function offsetsOf(consumer: Consumer, source: string) {
    const known = await positions.read(source)
    const ends = await listOffsets(consumer, latestOffset)
    const offsets: { topic: string; partition: number; offset: bigint }[] = []
    for (const [partition, offset] of known) {
      const end = ends[partition]
      if (end === undefined) continue
      if (offset > end) {
        log.error(
          { source, partition, offset: String(offset), end: String(end) },
          'the broker has lost events that were already consumed',
        )
        await positions.rewind({ source, partition, nextOffset: end })
      }
      offsets.push({ topic, partition, offset: offset > end ? end : offset })
    }
    return offsets
  }

  function commitToGroup(consumer: Consumer, records: readonly StreamRecord[]): void {
    const next = new Map<number, bigint>()
    for (const { partition, offset } of records)
      if (offset !== null) next.set(partition, offset + 1n)
    if (!consumer.isActive()) return
    consumer
      .commit({
        offsets: [...next].map(([partition, offset]) => ({
          topic,
          partition,
          offset,
          leaderEpoch: -1,
        })),
      })
      .catch((error: unknown) =>
        log.debug({ err: error }, 'Kafka has no offset of the group; the one in Postgres is used'),
      )
  }

  async function closeConsumer(consumer: Consumer): Promise<void> {
    const timer = new Promise<void>((resolve) => {
      setTimeout(resolve, closeMs).unref()
    })
    await Promise.race([consumer.close(true).catch(() => {}), timer])
  }

  return { name: `kafka:${topic}`, open }
}

// The signer does not create its topic (docs/signer-protocol.md). -1 means the broker's own
// default.
async function createTopic(config: KafkaConfig): Promise<void> {
  const admin = new Admin(connectionOptions(config))
  ignoreLateErrors(admin.connections)
  try {
    await admin.createTopics({ topics: [config.topic], partitions: -1, replicas: -1 })
  } finally {
    await admin.close()
  }
}

function feed(stream: Stream, source: string, { maxRecords, maxBatchBytes }: KafkaBounds): Batcher {
  const batcher = createBatcher({
    maxRecords,
    maxBytes: maxBatchBytes,
    lingerMs,
    onFull: () => void stream.pause(),
    onRoom: () => void stream.resume(),
  })
  stream.on('data', ({ partition, offset, value, timestamp }) =>
    batcher.push({
      source,
      partition,
      offset,
      // A tombstone becomes empty bytes, which do not parse as an event.
      bytes: value ?? Buffer.alloc(0),
      producedAtMs: Number(timestamp),
    }),
  )
  stream.on('error', (error) => batcher.fail(explained(error)))
  stream.on('close', () => batcher.fail(new Error('the Kafka stream has ended')))
  return batcher
}

// A caller receives a connection's first error. A second one, as when a login is cut off, would
// have no listener and end the process.
function ignoreLateErrors(pool: ConnectionPool): void {
  pool.on('connecting', ({ connection }) => void connection.on('error', () => {}))
}

const explained = (error: unknown): Error => new Error(kafkaProblem(error), { cause: error })

function consumerOptions(
  config: KafkaConfig,
  { fetchBytes, fetchPartitionBytes }: KafkaBounds,
): ConsumerOptions<Buffer, Buffer, Buffer, Buffer> {
  return {
    ...connectionOptions(config),
    groupId: config.group,
    sessionTimeout: config.sessionSeconds * 1_000,
    rebalanceTimeout: 60_000,
    heartbeatInterval: heartbeatMs,
    maxBytes: fetchBytes,
    maxBytesPerPartition: fetchPartitionBytes,
    maxWaitTime: 500,
  }
}

/** The password is looked up for each connection. */
const toCredentials = ({ username, password }: NonNullable<KafkaConfig['sasl']>) => ({
  mechanism: 'PLAIN' as const,
  username,
  password: () => currentValue(password),
})

function connectionOptions(config: KafkaConfig): BaseOptions {
  return {
    clientId: 'tollgate',
    bootstrapBrokers: [...config.brokers],
    connectTimeout: 5_000,
    timeout: 10_000,
    retries: 3,
    retryDelay: 250,
    ...(config.sasl && { sasl: toCredentials(config.sasl) }),
    ...(config.tls && {
      tls: { minVersion: 'TLSv1.2', ...(config.tls.ca !== null && { ca: config.tls.ca }) },
      // Send the server name of a broker behind a load balancer, but never an IP address (RFC
      // 6066).
      tlsServerName: config.brokers.every(
        (broker) => isIP(broker.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')) === 0,
      ),
    }),
  }
}

// Each explanation names the setting to check.
const trust =
  "its certificate is not signed by an authority that is trusted here; name the authority's file in KAFKA_CA_FILE"
const login = 'it refuses KAFKA_USER with KAFKA_PASSWORD'
const noTls = 'it does not use TLS, but KAFKA_TLS is on'
const wantsTls = 'it requires TLS, but KAFKA_TLS is off'

/** Explanations by error code of the Kafka library, Node or OpenSSL. */
const byCode: Readonly<Record<string, string>> = {
  SASL_AUTHENTICATION_FAILED: login,
  UNSUPPORTED_SASL_MECHANISM: 'it does not offer SASL/PLAIN',
  ILLEGAL_SASL_STATE: 'it accepts no user name on this port, but KAFKA_USER is set',
  DEPTH_ZERO_SELF_SIGNED_CERT: trust,
  SELF_SIGNED_CERT_IN_CHAIN: trust,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: trust,
  UNABLE_TO_GET_ISSUER_CERT: trust,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: trust,
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another host than KAFKA_BROKERS',
  ECONNREFUSED: 'nothing listens at KAFKA_BROKERS',
  ENOTFOUND: 'KAFKA_BROKERS names a host that cannot be resolved',
  EAI_AGAIN: 'KAFKA_BROKERS names a host that cannot be resolved',
}

const byMessage: readonly (readonly [RegExp, string])[] = [
  [/Broker requires TLS/, wantsTls],
  [/TLS handshake failed/, noTls],
  // A broker that requires TLS or a login gives no other reason.
  [
    /Connection closed/,
    'it closed the connection; if this continues, check whether it requires KAFKA_TLS=on or KAFKA_USER',
  ],
]

const depthMax = 10

/**
 * Returns one line about the deepest known cause of `error`, else the first line of its message.
 * Never contains a credential.
 */
function kafkaProblem(error: unknown): string {
  const chain = causesOf(error)
  const explanation = chain
    .toReversed()
    .map(explain)
    .find((text) => text !== undefined)
  return explanation === undefined
    ? firstLine(chain[0])
    : `the broker cannot be used: ${explanation}`
}

function causesOf(error: unknown, depth = 0): Error[] {
  if (!(error instanceof Error) || depth > depthMax) return []
  const parts: unknown[] = error instanceof AggregateError ? error.errors : []
  return [
    error,
    ...causesOf(error.cause, depth + 1),
    ...parts.flatMap((part) => causesOf(part, depth + 1)),
  ]
}

function explain(error: Error): string | undefined {
  const codes: unknown[] = ['apiId', 'code'].map(
    (name) => Object.getOwnPropertyDescriptor(error, name)?.value,
  )
  for (const code of codes) {
    if (typeof code === 'string' && Object.hasOwn(byCode, code)) return byCode[code]
  }
  return byMessage.find(([pattern]) => pattern.test(error.message))?.[1]
}

const firstLine = (error: Error | undefined): string => error?.message.split('\n')[0] ?? 'unknown'
