import { setTimeout as sleep } from 'node:timers/promises'
import { backoffMs } from '../../lib/loop.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserId } from '../../shared/ids.ts'
import { countReasons, quarantine, ticketProblem } from '../quarantine/intake.ts'
import type { Ingest, IngestedBatch } from './ingest.ts'
import { describeError, isPoison } from '../quarantine/poison.ts'
import { type EventOutcome, advanceStreams, countOutcomes, lockStreams } from './position-store.ts'
import type { StreamRecord } from '../events/record.ts'
import { noAnomalies } from './write-plan.ts'

/**
 * Ingests batches despite failures: waits while the database is unavailable, repeats a batch that
 * lost a race, and writes a batch that the database rejects in parts. If even that fails, it halves
 * the batch until the faulty event is isolated. Faulty events are quarantined and never block the
 * stream.
 */
export interface RetryDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly ingest: Pick<Ingest, 'prepare' | 'write' | 'writeInParts'>
  /** Called for each committed part of a batch. */
  readonly onIngested: (part: IngestedBatch, seconds: number) => void
  /** Called with users who have no balance left, after the commit of their charges. */
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

export interface IngestRequest {
  readonly records: readonly StreamRecord[]
  /** Writes the records on the first attempt, if they were prepared ahead. */
  readonly firstTry?: () => Promise<IngestedBatch>
}

export interface RetryOptions {
  readonly signal: AbortSignal
  readonly attempts: number
}

const pauses = { firstMs: 50, lastMs: 5_000 }

export function createRetryingIngest(deps: RetryDeps) {
  const { pool, now, log, ingest, onIngested, onExhausted } = deps

  /**
   * Ingests records; when this returns, each has one of the four outcomes or was consumed before.
   * Throws if aborted or after `attempts` attempts.
   */
  async function ingestAll(
    { records, firstTry }: IngestRequest,
    options: RetryOptions,
  ): Promise<IngestedBatch[]> {
    let first = firstTry
    const write = async (): Promise<IngestedBatch> => {
      const prepared = first
      // Prepare again on a second attempt, because the looked-up data may have changed.
      first = undefined
      return prepared ? prepared() : ingest.write(await ingest.prepare(records), null)
    }
    try {
      return [await retry(write, options)]
    } catch (error) {
      if (options.signal.aborted || !isPoison(error)) throw error
      const [only, ...others] = records
      if (only && others.length === 0) return [await quarantineAlone(only, error, options)]
      log.error({ err: error }, 'the database refuses events; they go to quarantine')
      return ingestInParts(records, options)
    }
  }

  async function ingestInParts(
    records: readonly StreamRecord[],
    options: RetryOptions,
  ): Promise<IngestedBatch[]> {
    const write = async (): Promise<IngestedBatch> =>
      ingest.writeInParts(await ingest.prepare(records))
    try {
      return [await retry(write, options)]
    } catch (error) {
      if (options.signal.aborted || !isPoison(error)) throw error
      // The fault is outside the tickets' own writes.
      const middle = records.length >> 1
      const before = await ingestAll({ records: records.slice(0, middle) }, options)
      return before.concat(await ingestAll({ records: records.slice(middle) }, options))
    }
  }

  async function quarantineAlone(
    record: StreamRecord,
    error: unknown,
    options: RetryOptions,
  ): Promise<IngestedBatch> {
    const detail = describeError(error)
    log.error({ err: error }, 'the database refuses an event; it is in quarantine')
    return retry(
      () => tx(pool, (db) => quarantineRecord(db, { record, detail, at: now() })),
      options,
    )
  }

  async function retry(
    work: () => Promise<IngestedBatch>,
    { signal, attempts }: RetryOptions,
  ): Promise<IngestedBatch> {
    for (let attempt = 1; ; attempt++) {
      const started = performance.now()
      try {
        signal.throwIfAborted()
        const part = await work()
        onIngested(part, (performance.now() - started) / 1000)
        await publish(part.exhausted)
        return part
      } catch (error) {
        if (signal.aborted || attempt >= attempts || isPoison(error)) throw error
        log.warn({ err: error, attempt }, 'a batch could not be written; trying again')
        await sleep(backoffMs(attempt, pauses), undefined, { signal, ref: false })
      }
    }
  }

  // The charge is committed. A late cache invalidation is no reason to ingest the batch again.
  async function publish(exhausted: readonly UserId[]): Promise<void> {
    if (exhausted.length === 0) return
    await onExhausted(exhausted).catch((error: unknown) =>
      log.warn({ err: error }, 'exhausted users not published'),
    )
  }

  return { ingestAll }
}

export type RetryingIngest = ReturnType<typeof createRetryingIngest>

/** Quarantines one record that the database rejects in any batch. */
async function quarantineRecord(
  db: Db,
  { record, detail, at }: { record: StreamRecord; detail: string; at: Date },
): Promise<IngestedBatch> {
  const records = [record]
  const [consumed] = await lockStreams(db, records)
  const problems = consumed
    ? []
    : [ticketProblem({ records, index: 0, at }, { reason: 'rejected_by_database', detail })]
  const outcomes: EventOutcome[] = problems.map(() => 'quarantined')
  if (problems.length > 0) {
    await quarantine(db, { records, problems, at })
    await advanceStreams(db, { at, records, outcomes })
  }
  return {
    counts: countOutcomes(outcomes),
    quarantined: countReasons(problems),
    unpriced: 0,
    exhausted: [],
    settlement: null,
    anomalies: noAnomalies,
  }
}
