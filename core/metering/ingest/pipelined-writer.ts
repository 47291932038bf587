import type { Log } from '../../lib/log.ts'
import { toMessage } from '../../lib/process.ts'
import type { Ingest, IngestedBatch, PreparedBatch } from './ingest.ts'

/**
 * Writes the batches of a stream in order, each in its own transaction.
 *
 * Gains: while one batch is completed and committed, another connection already writes the ids and
 * tickets of the next; the `ingest by COPY` row of `npm run bench` shows it. Plain version:
 * `write(prepared, null)` for one batch after the other, which is also the fallback.
 * test/core/metering/ingest/pipelined-writer.unit.test.ts checks the order, and
 * test/core/metering/ingest/ingest.test.ts the resulting database.
 */

/** A running transaction that waits for the batch's turn. */
interface StartedWrite {
  readonly prepared: PreparedBatch
  readonly ticketsWritten: Promise<void>
  /**
   * Completes the transaction. Rejects, with nothing written, also if the batch cannot be written
   * early after all.
   */
  readonly finish: () => Promise<IngestedBatch>
  readonly abandon: () => Promise<void>
}

type WriteSteps = Pick<Ingest, 'canWriteEarly' | 'write'>

export function createPipelinedWriter(ingest: WriteSteps, log: Log) {
  let current: StartedWrite | null = null
  /** The write that was started before its turn. */
  let ahead: StartedWrite | null = null

  /**
   * Writes a batch, and starts `next` as soon as it is prepared and this batch's ids and tickets
   * are inserted.
   */
  async function write(
    prepared: PreparedBatch,
    next: Promise<PreparedBatch> | undefined,
  ): Promise<IngestedBatch> {
    const started = ahead?.prepared === prepared ? ahead : start(ingest, prepared)
    ahead = null
    current = started
    if (started === null) return ingest.write(prepared, null)
    if (next) startAfter(started, next)
    try {
      return await started.finish()
    } catch (error) {
      log.debug(
        { reason: toMessage(error) },
        'a batch that was started before its turn is written at once',
      )
      // The next batch may hold locks that this one needs. If this batch cannot be written at all,
      // the last line throws.
      await stop()
      return ingest.write(prepared, null)
    }
  }

  function startAfter(started: StartedWrite, next: Promise<PreparedBatch>): void {
    Promise.all([next, started.ticketsWritten]).then(
      ([prepared]) => {
        if (current === started) ahead ??= start(ingest, prepared)
      },
      () => {},
    )
  }

  /** Abandons the batch that was started before its turn. */
  async function stop(): Promise<void> {
    const abandoned = ahead
    ahead = null
    current = null
    await abandoned?.abandon()
  }

  return { write, stop }
}

export type PipelinedWriter = ReturnType<typeof createPipelinedWriter>

/** Starts an early write; null for a batch that must be written at once. */
function start(ingest: WriteSteps, prepared: PreparedBatch): StartedWrite | null {
  if (!ingest.canWriteEarly(prepared)) return null
  const turn = Promise.withResolvers<void>()
  const tickets = Promise.withResolvers<void>()
  const ingested = ingest.write(prepared, {
    onTicketsWritten: tickets.resolve,
    turn: turn.promise,
  })
  ingested.catch(tickets.reject)
  // These may reject before anything awaits them.
  for (const promise of [turn.promise, tickets.promise]) promise.catch(() => {})
  return {
    prepared,
    ticketsWritten: tickets.promise,
    finish: () => {
      turn.resolve()
      return ingested
    },
    abandon: async () => {
      turn.reject(new Error('abandoned'))
      await ingested.catch(() => {})
    },
  }
}
