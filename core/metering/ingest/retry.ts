import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, reasons } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, isUnavailable, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserId } from '../../platform/ids.ts'
import type { Ingest, Ingested } from './ingest.ts'
import { countReasons, quarantine, ticketProblem } from '../quarantine/intake.ts'
import type { Outcome, StreamRecord } from '../types.ts'
import { count, countOf, takePositions } from './offsets.ts'
import { regular } from './write-plan.ts'

/**
 * Takes batches in whatever happens: waits out a database that is away, repeats what lost a race, and finds the one
 * event that the database refuses by halving, so that it alone goes to quarantine and never blocks the stream.
 */
export interface IntakeDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly ingest: Ingest
  /** Told of every part of a batch that was committed. */
  readonly onIngested: (part: Ingested, seconds: number) => void
  /** Told of users who have nothing left, after the commit that made it so. */
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

export interface Batch {
  readonly records: readonly StreamRecord[]
  /** Writes them the first time, when they were prepared ahead. */
  readonly write?: () => Promise<Ingested>
}

export interface IntakeOptions {
  /** Stops the retries; the batch is then not taken and the reason is thrown. */
  readonly signal: AbortSignal
  /** How often to try against a database that is away; Infinity for a stream, which can wait. */
  readonly attempts: number
}

const firstDelayMs = 50
const longestDelayMs = 5_000

export function createIntake(deps: IntakeDeps) {
  const { pool, now, log, ingest, onIngested, onExhausted } = deps

  /** Every record, when this returns, is one of the four outcomes or was taken before. */
  async function take(
    { records, write: writeAhead }: Batch,
    options: IntakeOptions,
  ): Promise<Ingested[]> {
    let first = writeAhead
    const write = async (): Promise<Ingested> => {
      const ahead = first
      // A second try prepares anew: what it looked up may be what has changed.
      first = undefined
      return ahead ? ahead() : ingest.commit(await ingest.prepare(records))
    }
    try {
      return [await retried(write, options)]
    } catch (error) {
      if (options.signal.aborted || !isPoison(error)) throw error
      const [first, ...others] = records
      if (first && others.length === 0) return [await reject(first, error, options)]
      const middle = records.length >> 1
      const before = await take({ records: records.slice(0, middle) }, options)
      return before.concat(await take({ records: records.slice(middle) }, options))
    }
  }

  async function reject(
    record: StreamRecord,
    error: unknown,
    options: IntakeOptions,
  ): Promise<Ingested> {
    const detail = describe(error)
    log.error({ err: error }, 'the database refuses an event; it is in quarantine')
    return retried(
      () => tx(pool, (db) => quarantineRecord(db, { record, detail, at: now() })),
      options,
    )
  }

  async function retried(
    work: () => Promise<Ingested>,
    { signal, attempts }: IntakeOptions,
  ): Promise<Ingested> {
    for (let tried = 1; ; tried++) {
      const started = performance.now()
      try {
        signal.throwIfAborted()
        const part = await work()
        onIngested(part, (performance.now() - started) / 1000)
        await tell(part.exhausted)
        return part
      } catch (error) {
        if (signal.aborted || tried >= attempts || isPoison(error)) throw error
        log.warn({ err: error, tried }, 'a batch could not be written; trying again')
        await sleep(delayMs(tried), undefined, { signal, ref: false })
      }
    }
  }

  // The charge stands; that somebody's cache hears of it later is not a reason to take the batch again.
  async function tell(exhausted: readonly UserId[]): Promise<void> {
    if (exhausted.length === 0) return
    await onExhausted(exhausted).catch((error: unknown) =>
      log.warn({ err: error }, 'exhausted users not published'),
    )
  }

  return { take }
}

export type Intake = ReturnType<typeof createIntake>

/** Puts one record, refused by the database as part of any batch, into quarantine in its own transaction. */
async function quarantineRecord(
  db: Db,
  { record, detail, at }: { record: StreamRecord; detail: string; at: Date },
): Promise<Ingested> {
  const records = [record]
  const [taken] = await takePositions(db, records)
  if (taken)
    return {
      counts: countOf([]),
      quarantined: new Map(),
      unpriced: 0,
      exhausted: [],
      irregular: regular,
    }
  const problems = [
    ticketProblem({ records, index: 0, at }, { reason: 'rejected_by_database', detail }),
  ]
  await quarantine(db, { records, problems, at })
  const outcomes: Outcome[] = ['quarantined']
  await count(db, { records, outcomes })
  return {
    counts: countOf(outcomes),
    quarantined: countReasons(problems),
    unpriced: 0,
    exhausted: [],
    irregular: regular,
  }
}

/** Doubles from 50 ms to 5 s, less up to half of it, so that rivals part. */
const delayMs = (tried: number): number =>
  Math.min(firstDelayMs * 2 ** Math.min(tried - 1, 10), longestDelayMs) * (1 - Math.random() / 2)

const sqlState = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''

/**
 * True when the events themselves are refused: data (22), constraints (21, 23), limits (54), a raised exception (P0),
 * or a fault of our own code on them. A missing table, a full disk or a lost right says nothing about an event.
 */
export function isPoison(error: unknown): boolean {
  if (isUnavailable(error) || (error instanceof DomainError && reasons[error.reason].http >= 500))
    return false
  const state = sqlState(error)
  return (
    state === '' ||
    /^(21|22|23|54|P0)[0-9A-Z]{3}$/.test(state) ||
    (!/^[0-9A-Z]{5}$/.test(state) && !/^E[A-Z]/.test(state))
  )
}

const describe = (error: unknown): string =>
  `${sqlState(error)} ${error instanceof Error ? error.message : 'unknown'}`.trim().slice(0, 500)
