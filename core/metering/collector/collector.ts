import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../../lib/log.ts'
import { messageOf } from '../../lib/process.ts'
import type { Ingested, Prepared } from '../ingest/ingest.ts'
import type { Intake } from '../ingest/retry.ts'
import type { Relay } from '../ingest/pipeline.ts'
import type { EventSession, EventSource, StreamRecord } from '../types.ts'

export interface CollectorDeps {
  readonly source: EventSource
  readonly intake: Intake
  readonly prepare: (records: readonly StreamRecord[]) => Promise<Prepared>
  readonly relay: Relay
  readonly log: Log
  /** How many batches are prepared while one is written. */
  readonly ahead: number
}

interface Batch {
  readonly records: readonly StreamRecord[]
  readonly prepared: Promise<Prepared>
}

const firstPauseMs = 250
const longestPauseMs = 10_000
const sayAgainMs = 60_000
const firstPart = 5_000

/**
 * Takes a stream from its source into the database, batch by batch, preparing the next while one is being written.
 * Whatever fails, it opens the source again from the position in the database: a batch is repeated, never skipped.
 */
export function createCollector({ source, intake, prepare, relay, log, ahead }: CollectorDeps) {
  const stopping = new AbortController()
  let session: EventSession | null = null
  let disconnectedMs: number | null = Date.now()
  let oldestMs: number | null = null
  let taken = 0
  let said = { reason: '', atMs: 0 }
  let running: Promise<void> = Promise.resolve()

  const start = (): void => {
    running = run()
  }

  /** Lets the batch that is being written finish, and closes the source. */
  async function stop(): Promise<void> {
    stopping.abort()
    await session?.close().catch(() => {})
    await running
  }

  /** Age of the oldest record held and not written; while the source is away, how long it has been. */
  const lagSeconds = (): number => {
    const since = oldestMs ?? disconnectedMs
    return since === null ? 0 : Math.max(0, (Date.now() - since) / 1000)
  }

  const connected = (): boolean => disconnectedMs === null

  async function run(): Promise<void> {
    for (let failures = 0; !stopping.signal.aborted;) {
      const before = taken
      try {
        session = await source.open()
        if (stopping.signal.aborted) break
        log.info({ source: source.name }, 'collecting events')
        disconnectedMs = null
        await pump(session)
      } catch (error) {
        if (stopping.signal.aborted) break
        failures = taken > before ? 1 : failures + 1
        disconnectedMs ??= Date.now()
        report(error, failures)
        await pause(failures)
      } finally {
        await relay.stop()
        await session?.close().catch(() => {})
        session = null
        oldestMs = null
      }
    }
  }

  // A broker that stays away says the same with every try: one line a minute is enough.
  function report(error: unknown, failures: number): void {
    const reason = messageOf(error)
    const isNews = reason !== said.reason || Date.now() - said.atMs >= sayAgainMs
    if (isNews) said = { reason, atMs: Date.now() }
    log[isNews ? 'warn' : 'debug'](
      { reason, source: source.name, failures },
      'the event stream broke off; opening it again',
    )
    log.debug({ err: error }, 'why the event stream broke off')
  }

  const pause = (failures: number): Promise<void> =>
    sleep(
      Math.min(firstPauseMs * 2 ** Math.min(failures - 1, 10), longestPauseMs) *
        (1 - Math.random() / 4),
      undefined,
      { signal: stopping.signal, ref: false },
    ).catch(() => {})

  async function pump(from: EventSession): Promise<never> {
    const pull = pulling(from)
    const upcoming: Promise<Batch>[] = []
    let last: Promise<unknown> = Promise.resolve()
    const pullNext = (): void => {
      const next = last.then(pull.next)
      // Its failure is met in its turn, after what came before it is written.
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
      const write = async (): Promise<Ingested> => relay.write(await batch.prepared, next)
      await intake.take(
        { records: batch.records, write },
        { signal: stopping.signal, attempts: Infinity },
      )
      from.committed(batch.records)
      pull.written()
      taken += batch.records.length
      oldestMs = null
    }
  }

  /** Batches of a session, each being prepared from when it is pulled. */
  function pulling(from: EventSession) {
    let held = 0
    let rest: readonly StreamRecord[] = []

    async function next(): Promise<Batch> {
      const given = rest.length > 0 ? rest : await from.next()
      // When nothing else is under way the database would wait until all of a large batch is prepared.
      const parted = held === 0 && given.length >= 2 * firstPart
      const records = parted ? given.slice(0, firstPart) : given
      rest = parted ? given.slice(firstPart) : []
      held += 1
      const prepared = prepare(records)
      prepared.catch(() => {})
      return { records, prepared }
    }

    return {
      next,
      written: () => {
        held -= 1
      },
    }
  }

  return { start, stop, lagSeconds, connected }
}
