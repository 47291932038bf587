import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Backoff, backoffMs } from '../../core/lib/loop.ts'
import type { Log } from '../../core/lib/log.ts'
import { settlesWithin } from '../../core/lib/process.ts'
import { DomainError } from '../../proto/errors.ts'
import type { RecordNumbers, SpooledEvent } from './log-format.ts'
import type { Checkpoint } from './checkpoint.ts'
import { type Gap, type Loss, createLossTracker } from './losses.ts'
import type { LogPosition, Segments } from './segments.ts'

export interface ForwarderOptions {
  readonly segments: Segments
  readonly checkpoint: Checkpoint
  /** Resolves when core has committed every envelope. */
  readonly deliver: (envelopes: Buffer[], correlationId: string) => Promise<unknown>
  readonly onDelivered: (events: number) => void
  /** Called after segments may have been removed. */
  readonly onRemoved: () => void
  readonly onFailed: () => void
  /** Number of the event at the checkpoint; null when unknown. */
  readonly startSequence: number | null
  /** Gaps that recovery has found and reported. */
  readonly knownGaps: readonly Gap[]
  /** Called when acknowledged events are lost. */
  readonly onLost: (loss: Loss) => void
  /** Called when bytes were set aside. */
  readonly onDamaged: () => void
  readonly log: Log
}

interface FirstEvent {
  readonly at: LogPosition
  readonly number: RecordNumbers | null
  /** Offset of the second event. */
  readonly next: number
}

const maxBatch = 1_000
const batchBytes = 2 * 1024 * 1024
const retries: Backoff = { firstMs: 100, lastMs: 2_000 }
const readAttempts = 5
const abandonMs = 200

/** Sends spooled events to core in order, and retries forever. */
export function startForwarder(options: ForwarderOptions) {
  const { segments, checkpoint, log } = options
  const stopping = new AbortController()
  let position: LogPosition = checkpoint.start
  const losses = createLossTracker({
    expected: options.startSequence,
    known: options.knownGaps,
    onLost: (loss) => {
      log.error({ ...loss, ...position }, 'events that were acknowledged are lost from the spool')
      options.onLost(loss)
    },
  })
  let wake = Promise.withResolvers<void>()
  let idle = false
  let failures = 0
  let unreadable = 0
  let batchSize = maxBatch
  let oldestMs: number | null = null
  let deadline = Infinity
  let abandoned = false

  async function run(): Promise<void> {
    while (!isOver()) {
      wake = Promise.withResolvers<void>()
      try {
        await step()
        unreadable = 0
      } catch (error) {
        await onReadFailed(error)
      }
    }
  }

  const isOver = (): boolean =>
    stopping.signal.aborted &&
    (idle || failures > 0 || unreadable > 0 || performance.now() > deadline)

  async function step(): Promise<void> {
    const nextSequence = segments.nextSequence()
    const read = await segments.read(position, { count: batchSize, bytes: batchBytes })
    idle = read.kind === 'end'
    if (read.kind === 'records') return forward(read.records, read.at)
    if (read.kind === 'end') return waitForEvents(nextSequence)
    if (read.kind === 'torn') return skip(await segments.giveUp(read.at))
    await passDamage(read.at, read.next)
  }

  async function passDamage(at: LogPosition, next: number): Promise<void> {
    const { path, isNew } = await segments.setAside(at, next)
    const range = { segment: at.segment, from: at.offset, to: next, path }
    if (isNew)
      log.error(
        range,
        'the spool is damaged; the bytes are set aside and what follows is forwarded',
      )
    options.onDamaged()
    losses.onDamage(next - at.offset)
    await advance({ segment: at.segment, offset: next })
  }

  async function waitForEvents(nextSequence: number): Promise<void> {
    losses.reach(nextSequence)
    oldestMs = null
    await release()
    if (!stopping.signal.aborted) await wake.promise
  }

  async function forward(records: readonly SpooledEvent[], at: LogPosition): Promise<void> {
    const [first, last] = [records[0], records.at(-1)]
    if (!first || !last) return
    oldestMs = first.atMs
    if (first.number) losses.reach(first.number.sequence)
    try {
      await options.deliver(
        records.map(({ envelope }) => envelope),
        randomUUID(),
      )
    } catch (error) {
      return onDeliveryFailed(error, {
        at,
        number: first.number,
        next: first.next,
        count: records.length,
      })
    }
    failures = 0
    batchSize = Math.min(maxBatch, batchSize * 2)
    segments.acknowledge(at.segment, records.length)
    options.onDelivered(records.length)
    losses.pass(last.number)
    await advance({ segment: at.segment, offset: last.next })
  }

  // Sends smaller batches after a failure: the batch may have been too large for core, and halving
  // isolates the one event that core refuses.
  async function onDeliveryFailed(
    error: unknown,
    first: FirstEvent & { readonly count: number },
  ): Promise<void> {
    const isRefused = isRefusal(error)
    options.onFailed()
    batchSize = Math.max(1, first.count >> 1)
    if (isRefused) return first.count === 1 ? setRefusedAside(error, first) : undefined
    failures += 1
    log.warn({ err: error, failures }, 'spooled events were not forwarded; trying again')
    await pauseAfter(failures)
  }

  async function setRefusedAside(error: unknown, { at, number, next }: FirstEvent): Promise<void> {
    const { path } = await segments.setAside(at, next)
    log.error({ err: error, path }, 'core refuses a spooled event; it is set aside')
    options.onDamaged()
    segments.acknowledge(at.segment, 1)
    losses.pass(number)
    await advance({ segment: at.segment, offset: next })
  }

  async function advance(to: LogPosition): Promise<void> {
    if (abandoned) return
    const isElsewhere = to.segment !== position.segment
    position = to
    await checkpoint
      .save({ ...to, sequence: losses.next() })
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the position in the spool was not stored'),
      )
    if (isElsewhere) await release()
  }

  async function release(): Promise<void> {
    await segments
      .release(position)
      .catch((error: unknown) => log.error({ err: error }, 'a finished segment cannot be removed'))
    options.onRemoved()
  }

  async function onReadFailed(error: unknown): Promise<void> {
    unreadable += 1
    log.error({ err: error, ...position }, 'the spool cannot be read')
    if (unreadable < readAttempts) return pauseAfter(unreadable)
    await skip(await segments.giveUp(position))
    unreadable = 0
  }

  async function skip(to: LogPosition): Promise<void> {
    log.error({ ...to }, 'a segment of the spool is abandoned; its file is kept')
    options.onDamaged()
    await advance(to)
  }

  const pauseAfter = (failed: number): Promise<void> =>
    sleep(backoffMs(failed, retries), undefined, { signal: stopping.signal, ref: false }).catch(
      () => {},
    )

  const running = run()

  /**
   * Continues for at most `graceMs` while there are events and core accepts them. A call unanswered
   * by then is abandoned: regardless of its answer, its events are sent again.
   */
  async function stop(graceMs: number): Promise<void> {
    deadline = performance.now() + graceMs
    stopping.abort()
    wake.resolve()
    abandoned = !(await settlesWithin(running, graceMs + abandonMs))
  }

  return {
    wake: (): void => wake.resolve(),
    stop,
    position: () => position,
    /** Unix milliseconds at which the first unacknowledged event was spooled; null without one. */
    oldestMs: () => oldestMs,
  }
}

/** Whether core refuses the content itself, so that no retry can succeed. */
const isRefusal = (error: unknown): boolean =>
  error instanceof DomainError &&
  (error.reason === 'REQUEST_INVALID' || error.reason === 'BODY_TOO_LARGE')
