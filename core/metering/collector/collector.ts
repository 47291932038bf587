import { setTimeout as sleep } from 'node:timers/promises'
import { backoffMs } from '../../lib/loop.ts'
import type { Log } from '../../lib/log.ts'
import { toMessage } from '../../lib/process.ts'
import type { IngestedBatch, PreparedBatch } from '../ingest/ingest.ts'
import type { PipelinedWriter } from '../ingest/pipelined-writer.ts'
import type { StreamRecord } from '../events/record.ts'
import type { SourceRanges } from '../streams/store.ts'
import type { RetryingIngest } from '../ingest/retry.ts'

/** A source of events. The collector reopens it whenever a session fails. */
export interface EventSource {
  readonly name: string
  open(): Promise<EventSession>
}

export interface EventSession {
  /**
   * Returns the next records, at least one, in order per partition. Throws when the stream fails or
   * is closed.
   */
  next(): Promise<readonly StreamRecord[]>
  /** Reports records as written. Best effort: the authoritative positions are in the database. */
  committed(records: readonly StreamRecord[]): void
  /** Returns the offsets that the stream has of each partition. */
  readRanges?(): Promise<SourceRanges>
  close(): Promise<void>
}

export interface CollectorDeps {
  readonly source: EventSource
  readonly retryingIngest: RetryingIngest
  readonly prepare: (records: readonly StreamRecord[]) => Promise<PreparedBatch>
  readonly writer: PipelinedWriter
  readonly log: Log
  /** Number of batches prepared while one is written. */
  readonly ahead: number
}

/** A batch pulled from the stream, with its pending preparation. */
interface PulledBatch {
  readonly records: readonly StreamRecord[]
  readonly prepared: Promise<PreparedBatch>
}

const pauses = { firstMs: 250, lastMs: 10_000 }
const repeatWarningMs = 60_000
const firstPartSize = 5_000

/**
 * Writes a stream to the database in batches, and prepares the next batch while one is written.
 * After any failure it reopens the source at the position stored in the database, so a batch may
 * repeat but is never skipped.
 */
export function createCollector(deps: CollectorDeps) {
  const { source, retryingIngest, prepare, writer, log, ahead } = deps
  const stopping = new AbortController()
  let session: EventSession | null = null
  let disconnectedMs: number | null = Date.now()
  let oldestMs: number | null = null
  let consumedCount = 0
  let lastWarning = { reason: '', atMs: 0 }
  let running: Promise<void> = Promise.resolve()

  const start = (): void => {
    running = run()
  }

  /** Closes the source, after the current batch is written. */
  async function stop(): Promise<void> {
    stopping.abort()
    await session?.close().catch(() => {})
    await running
  }

  /**
   * Age of the oldest record that is pulled but not written. While disconnected without such a
   * record, the time since the connection was lost.
   */
  const lagSeconds = (): number => {
    const since = oldestMs ?? disconnectedMs
    return since === null ? 0 : Math.max(0, (Date.now() - since) / 1000)
  }

  const connected = (): boolean => disconnectedMs === null

  /** Returns the offsets that the stream has; null while disconnected. */
  const readRanges = async (): Promise<SourceRanges | null> =>
    connected() ? ((await session?.readRanges?.()) ?? null) : null

  async function run(): Promise<void> {
    for (let failures = 0; !stopping.signal.aborted;) {
      const before = consumedCount
      try {
        session = await source.open()
        if (stopping.signal.aborted) break
        log.info({ source: source.name }, 'collecting events')
        disconnectedMs = null
        await consume(session)
      } catch (error) {
        if (stopping.signal.aborted) break
        failures = consumedCount > before ? 1 : failures + 1
        disconnectedMs ??= Date.now()
        warn(error, failures)
        await sleep(backoffMs(failures, pauses), undefined, {
          signal: stopping.signal,
          ref: false,
        }).catch(() => {})
      } finally {
        await writer.stop()
        await session?.close().catch(() => {})
        session = null
        oldestMs = null
      }
    }
  }

  // An unavailable broker gives the same reason at every attempt: one warning a minute is enough.
  function warn(error: unknown, failures: number): void {
    const reason = toMessage(error)
    const isNew = reason !== lastWarning.reason || Date.now() - lastWarning.atMs >= repeatWarningMs
    if (isNew) lastWarning = { reason, atMs: Date.now() }
    log[isNew ? 'warn' : 'debug'](
      { reason, source: source.name, failures },
      'the event stream broke off; opening it again',
    )
    log.debug({ err: error }, 'why the event stream broke off')
  }

  /** Writes a session's batches until it fails. */
  async function consume(from: EventSession): Promise<never> {
    const puller = createPuller(from)
    const upcoming: Promise<PulledBatch>[] = []
    let last: Promise<unknown> = Promise.resolve()
    const pullNext = (): void => {
      const next = last.then(puller.next)
      // The failure surfaces in its turn, after everything before it is written.
      next.catch(() => {})
      last = next
      upcoming.push(next)
    }
    while (upcoming.length < ahead) pullNext()
    for (;;) {
      const batch = await upcoming.shift()
      if (!batch) throw new Error('no batch was pulled')
      oldestMs = batch.records[0]?.producedAtMs ?? null
      pullNext()
      const next = upcoming[0]?.then(({ prepared }) => prepared)
      next?.catch(() => {})
      const firstTry = async (): Promise<IngestedBatch> => writer.write(await batch.prepared, next)
      await retryingIngest.ingestAll(
        { records: batch.records, firstTry },
        { signal: stopping.signal, attempts: Infinity },
      )
      from.committed(batch.records)
      puller.onWritten()
      consumedCount += batch.records.length
      oldestMs = null
    }
  }

  /** Pulls batches from a session and starts to prepare each. */
  function createPuller(from: EventSession) {
    let unwritten = 0
    let rest: readonly StreamRecord[] = []

    async function next(): Promise<PulledBatch> {
      const pulled = rest.length > 0 ? rest : await from.next()
      // Otherwise the database would be idle until the whole of a large batch is prepared.
      const isSplit = unwritten === 0 && pulled.length >= 2 * firstPartSize
      const records = isSplit ? pulled.slice(0, firstPartSize) : pulled
      rest = isSplit ? pulled.slice(firstPartSize) : []
      unwritten += 1
      const prepared = prepare(records)
      prepared.catch(() => {})
      return { records, prepared }
    }

    return {
      next,
      onWritten: () => {
        unwritten -= 1
      },
    }
  }

  return { start, stop, lagSeconds, connected, readRanges }
}
