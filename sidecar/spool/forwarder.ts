import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Backoff, backoffMs } from '../../core/lib/loop.ts'
import type { Log } from '../../core/lib/log.ts'
import { settlesWithin } from '../../core/lib/process.ts'
import { DomainError } from '../../proto/errors.ts'
import type { SpooledEvent } from './log-format.ts'
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

const maxBatch = 1_000
const batchBytes = 2 * 1024 * 1024
const retries: Backoff = { firstMs: 100, lastMs: 2_000 }
const readAttempts = 5
const abandonMs = 200

/** Sends spooled events to core in order, and retries forever. */
export function startForwarder(options: ForwarderOptions) {
  const { segments, log } = options
  const stopping = new AbortController()
  const losses = createLossTracker({
    expected: options.startSequence,
    reported: options.knownGaps,
    onLost: (loss) => {
      log.error(
        { ...loss, ...progress.position() },
        'events that were acknowledged are lost from the spool',
      )
      options.onLost(loss)
    },
  })
  const progress = createProgress(options, losses.next)
  const { advance, release } = progress
  const delivery = createDelivery(options, pauseAfter)
  let wake = Promise.withResolvers<void>()
  let idle = false
  let unreadable = 0
  let oldestMs: number | null = null
  let deadline = Infinity

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
    (idle || delivery.isFailing() || unreadable > 0 || performance.now() > deadline)

  async function step(): Promise<void> {
    const nextSequence = segments.nextSequence()
    const read = await segments.read(progress.position(), {
      count: delivery.maxEvents(),
      bytes: batchBytes,
    })
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
    const outcome = await delivery.send(records.map(({ envelope }) => envelope))
    if (outcome === 'waiting') return
    if (outcome !== 'delivered') return setRefusedAside(outcome.refusal, { first, at })
    segments.acknowledge(at.segment, records.length)
    losses.pass(last.number)
    await advance({ segment: at.segment, offset: last.next })
  }

  async function setRefusedAside(
    error: unknown,
    { first: { number, next }, at }: { readonly first: SpooledEvent; readonly at: LogPosition },
  ): Promise<void> {
    const { path } = await segments.setAside(at, next)
    log.error({ err: error, path }, 'core refuses a spooled event; it is set aside')
    options.onDamaged()
    segments.acknowledge(at.segment, 1)
    losses.pass(number)
    await advance({ segment: at.segment, offset: next })
  }

  async function onReadFailed(error: unknown): Promise<void> {
    unreadable += 1
    log.error({ err: error, ...progress.position() }, 'the spool cannot be read')
    if (unreadable < readAttempts) return pauseAfter(unreadable)
    await skip(await segments.giveUp(progress.position()))
    unreadable = 0
  }

  async function skip(to: LogPosition): Promise<void> {
    log.error({ ...to }, 'a segment of the spool is abandoned; its file is kept')
    options.onDamaged()
    await advance(to)
  }

  async function pauseAfter(failed: number): Promise<void> {
    const { signal } = stopping
    await sleep(backoffMs(failed, retries), undefined, { signal, ref: false }).catch(() => {})
  }

  const running = run()

  /**
   * Continues for at most `graceMs` while there are events and core accepts them. A call unanswered
   * by then is abandoned: regardless of its answer, its events are sent again.
   */
  async function stop(graceMs: number): Promise<void> {
    deadline = performance.now() + graceMs
    stopping.abort()
    wake.resolve()
    if (!(await settlesWithin(running, graceMs + abandonMs))) progress.abandon()
  }

  return {
    wake: (): void => wake.resolve(),
    stop,
    position: progress.position,
    /** Unix milliseconds at which the first unacknowledged event was spooled; null without one. */
    oldestMs: () => oldestMs,
  }
}

/** A batch to be sent again, or core's refusal of its event. */
type Undelivered = 'waiting' | { readonly refusal: unknown }

/** Sends batches to core, and smaller ones after a failure. */
function createDelivery(
  { deliver, onDelivered, onFailed, log }: ForwarderOptions,
  pauseAfter: (failures: number) => Promise<void>,
) {
  let failures = 0
  let batchSize = maxBatch

  /** Returns a refusal only for a single event. */
  async function send(envelopes: Buffer[]): Promise<'delivered' | Undelivered> {
    try {
      await deliver(envelopes, randomUUID())
    } catch (error) {
      return onDeliveryFailed(error, envelopes.length)
    }
    failures = 0
    batchSize = Math.min(maxBatch, batchSize * 2)
    onDelivered(envelopes.length)
    return 'delivered'
  }

  // The batch may have been too large for core, and halving isolates the one event that core
  // refuses.
  async function onDeliveryFailed(error: unknown, count: number): Promise<Undelivered> {
    onFailed()
    batchSize = Math.max(1, count >> 1)
    if (isRefusal(error)) return count === 1 ? { refusal: error } : 'waiting'
    failures += 1
    log.warn({ err: error, failures }, 'spooled events were not forwarded; trying again')
    await pauseAfter(failures)
    return 'waiting'
  }

  return {
    send,
    maxEvents: () => batchSize,
    isFailing: () => failures > 0,
  }
}

/** The position up to which core has acknowledged events, and the removal of segments before it. */
function createProgress(
  { segments, checkpoint, onRemoved, log }: ForwarderOptions,
  nextSequence: () => number | null,
) {
  let position: LogPosition = checkpoint.start
  let abandoned = false

  async function advance(to: LogPosition): Promise<void> {
    if (abandoned) return
    const isElsewhere = to.segment !== position.segment
    position = to
    await checkpoint
      .save({ ...to, sequence: nextSequence() })
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the position in the spool was not stored'),
      )
    if (isElsewhere) await release()
  }

  async function release(): Promise<void> {
    await segments
      .release(position)
      .catch((error: unknown) => log.error({ err: error }, 'a finished segment cannot be removed'))
    onRemoved()
  }

  /** Ignores later acknowledgements. */
  const abandon = (): void => void (abandoned = true)

  return { advance, release, abandon, position: () => position }
}

/** Whether core refuses the content itself, so that no retry can succeed. */
const isRefusal = (error: unknown): boolean =>
  error instanceof DomainError &&
  (error.reason === 'REQUEST_INVALID' || error.reason === 'BODY_TOO_LARGE')
