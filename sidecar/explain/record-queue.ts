import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import { startLoop } from '../../core/lib/loop.ts'
import { DomainError } from '../../proto/errors.ts'
import type { Decision as DecisionRecord } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import type { SidecarMetrics } from '../metrics.ts'

export interface RecordQueueOptions {
  /** Rejects when core does not accept the records. */
  readonly send: (records: DecisionRecord[]) => Promise<unknown>
  readonly metrics: Pick<SidecarMetrics, 'countRecords'>
  readonly registry: Metrics
  readonly log: Log
}

const maxRecords = 10_000
const batchMax = 500
const pauseMs = 1_000
const stopMs = 250

/** Sends records to core once a second. Keeps up to 10,000 records while core is unavailable. */
export function createRecordQueue({ send, metrics, registry, log }: RecordQueueOptions) {
  let queue: DecisionRecord[] = []

  function add(record: DecisionRecord): void {
    queue.push(record)
  }

  /** Sends all queued records, until core does not answer. */
  async function flush(): Promise<void> {
    while (queue.length > 0) {
      const batch = queue.slice(0, batchMax)
      const outcome = await deliver(batch)
      if (outcome === 'waiting') return
      queue = queue.slice(batch.length)
      metrics.countRecords(outcome, batch.length)
    }
  }

  // A batch that core refuses is not sent again, because it would block all others forever.
  async function deliver(batch: DecisionRecord[]): Promise<'recorded' | 'refused' | 'waiting'> {
    try {
      await send(batch)
      return 'recorded'
    } catch (error) {
      if (error instanceof DomainError && error.reason === 'UNAVAILABLE') return 'waiting'
      log.warn({ err: error, records: batch.length }, 'core refuses records of decisions')
      return 'refused'
    }
  }

  const loop = startLoop({
    name: 'decision records',
    log,
    metrics: registry,
    pauseMs,
    round: flush,
  })

  /** Sends the queued records once, waiting for `stopMs` at most. */
  async function stop(): Promise<void> {
    const last = loop.stop().then(flush)
    await Promise.race([last, sleep(stopMs, undefined, { ref: false })])
  }

  return { add, flush, isFull: () => queue.length >= maxRecords, stop }
}

export type RecordQueue = ReturnType<typeof createRecordQueue>
