import { DomainError } from '../../proto/errors.ts'
import type { Log } from '../lib/log.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { UserId } from '../shared/ids.ts'
import type { EmitPriced } from './backend/emit.ts'
import { type ResolveSubjects, cacheSubjects } from './batch/subjects.ts'
import { type EventSource, createCollector } from './collector/collector.ts'
import type { KafkaConfig, MeteringConfig } from './config.ts'
import type { Charge } from './ingest/charges.ts'
import { type IngestedBatch, createIngest } from './ingest/ingest.ts'
import type { Partitions } from './ingest/partition-store.ts'
import { createPipelinedWriter } from './ingest/pipelined-writer.ts'
import * as positions from './ingest/position-store.ts'
import { readStreams, saveEnds } from './streams/store.ts'
import { createRetryingIngest } from './ingest/retry.ts'
import { createHoldingRate } from './rates/holding-rate.ts'
import { createRateLookup } from './rates/lookup.ts'
import type { Rating } from './rating/rating.ts'

export interface IngestionDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly config: MeteringConfig
  readonly charge: Charge
  readonly rating: Rating
  readonly emit: EmitPriced | undefined
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly savesMemory: boolean
  readonly eventSource: EventSource | undefined
  readonly onIngested: (part: IngestedBatch, seconds: number) => void
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

const directSource = 'direct'
const directAttempts = 4

/** Both inputs for the signer's events: the stream, read by a collector, and direct calls. */
export function createIngestion(deps: IngestionDeps) {
  const { pool, now, log, config, savesMemory } = deps
  const stopping = new AbortController()
  const ingest = createIngest({
    ...deps,
    limits: config.tickets,
    resolveSubjects: cacheSubjects(deps.resolveSubjects),
    findRates: createRateLookup({ ...config.rates, now }),
    holdingRate: createHoldingRate(config.rates.marginPercent),
  })
  const retryingIngest = createRetryingIngest({ ...deps, ingest })
  const source = deps.eventSource ?? (config.kafka && kafkaSource(config.kafka, deps))
  const collector =
    source &&
    createCollector({
      source,
      retryingIngest,
      prepare: ingest.prepare,
      writer: createPipelinedWriter(ingest, log),
      log,
      ahead: savesMemory ? 1 : 2,
    })

  /**
   * Direct mode: when this returns, each envelope has one of the four outcomes. Throws if the
   * database is unavailable.
   */
  async function ingestEvents(envelopes: readonly Buffer[]): Promise<positions.OutcomeCounts> {
    if (envelopes.length === 0) return positions.sumCounts([])
    const producedAtMs = now().getTime()
    const records = envelopes.map((bytes) => ({
      source: directSource,
      partition: 0,
      offset: null,
      bytes,
      producedAtMs,
    }))
    const options = { signal: stopping.signal, attempts: directAttempts }
    try {
      return positions.sumCounts(await retryingIngest.ingestAll({ records }, options))
    } catch (error) {
      if (!stopping.signal.aborted) throw error
      throw new DomainError('UNAVAILABLE', 'core is stopping; try again', { cause: error })
    }
  }

  /** Starts to collect from the stream, if there is one. */
  const start = (): void => collector?.start()

  /** Stops after the current writes finish. */
  async function stop(): Promise<void> {
    stopping.abort()
    await collector?.stop()
  }

  async function recordEnds(): Promise<void> {
    const ranges = await collector?.readRanges()
    if (ranges) await saveEnds(pool, ranges, now())
  }

  return {
    ingestEvents,
    start,
    stop,
    lagSeconds: (): number => collector?.lagSeconds() ?? 0,
    /** Whether the event stream is connected; undefined without a stream. */
    isConnected: (): boolean | undefined => collector?.connected(),
    streams: () => readStreams(pool, now()),
    /** Stores how far the stream reaches; undefined without a stream. */
    recordEnds: collector ? recordEnds : undefined,
  }
}

// Kafka's library takes 50 MB of memory, so it is loaded only by a service that uses it.
function kafkaSource(config: KafkaConfig, { pool, log, savesMemory }: IngestionDeps): EventSource {
  const source = import('./collector/kafka.ts').then((kafka) =>
    kafka.createKafkaSource(config, {
      positions: {
        read: (streams) => positions.readPositions(pool, streams),
        rewind: (to) => positions.rewind(pool, to),
      },
      log,
      bounds: savesMemory ? kafka.collectorBounds : kafka.serverBounds,
    }),
  )
  return { name: `kafka:${config.topic}`, open: async () => (await source).open() }
}
