import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError } from '../../proto/errors.ts'
import type { Log } from '../../core/lib/log.ts'
import { settlesWithin } from '../../core/lib/process.ts'
import type { Place, Position } from './position.ts'
import type { Stored } from './reader.ts'
import type { Segments } from './segments.ts'

export interface ForwarderOptions {
  readonly segments: Segments
  readonly position: Position
  /** Returns when core has committed every envelope. */
  readonly deliver: (envelopes: Buffer[], correlationId: string) => Promise<unknown>
  readonly onDelivered: (events: number) => void
  /** Told when there may be more room. */
  readonly onReleased: () => void
  readonly onFailed: () => void
  /** Told of bytes that were set aside. */
  readonly onDamaged: () => void
  readonly log: Log
}

interface First {
  readonly at: Place
  /** Where the second one begins. */
  readonly next: number
}

const most = 1_000
const batchBytes = 2 * 1024 * 1024
const firstPauseMs = 100
const longestPauseMs = 2_000
const readAttempts = 5
const leftBehindMs = 200

/** Sends what is spooled to core in order, and goes on trying for as long as it takes. */
export function startForwarder(options: ForwarderOptions) {
  const { segments, position, log } = options
  const stopping = new AbortController()
  let place: Place = position.start
  let wake = Promise.withResolvers<void>()
  let idle = false
  let failures = 0
  let unreadable = 0
  let atOnce = most
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
        await passOver(error)
      }
    }
  }

  const isOver = (): boolean =>
    stopping.signal.aborted &&
    (idle || failures > 0 || unreadable > 0 || performance.now() > deadline)

  async function step(): Promise<void> {
    const read = await segments.read(place, { count: atOnce, bytes: batchBytes })
    idle = read.kind === 'end'
    if (read.kind === 'records') return forward(read.records, read.at)
    if (read.kind === 'end') return rest()
    if (read.kind === 'torn') return skip(await segments.giveUp(read.at))
    const path = await segments.setAside(read.at, read.next)
    log.error(
      { segment: read.at.segment, from: read.at.offset, to: read.next, path },
      'the spool is damaged; the bytes are set aside and what follows is forwarded',
    )
    options.onDamaged()
    await advance({ segment: read.at.segment, offset: read.next })
  }

  async function rest(): Promise<void> {
    oldestMs = null
    await release()
    if (!stopping.signal.aborted) await wake.promise
  }

  async function forward(records: readonly Stored[], at: Place): Promise<void> {
    const [first, last] = [records[0], records.at(-1)]
    if (!first || !last) return
    oldestMs = first.atMs
    try {
      await options.deliver(
        records.map(({ envelope }) => envelope),
        randomUUID(),
      )
    } catch (error) {
      return failed(error, { at, next: first.next, count: records.length })
    }
    failures = 0
    atOnce = Math.min(most, atOnce * 2)
    segments.taken(at.segment, records.length)
    options.onDelivered(records.length)
    await advance({ segment: at.segment, offset: last.next })
  }

  // Fewer at once after a failure: it may have been too much for core, and of what core refuses the
  // one event is found by halving.
  async function failed(error: unknown, first: First & { readonly count: number }): Promise<void> {
    const isRefused = isRefusal(error)
    options.onFailed()
    atOnce = Math.max(1, first.count >> 1)
    if (isRefused) return first.count === 1 ? refused(error, first) : undefined
    failures += 1
    log.warn({ err: error, failures }, 'spooled events were not forwarded; trying again')
    await pause(failures)
  }

  async function refused(error: unknown, { at, next }: First): Promise<void> {
    const path = await segments.setAside(at, next)
    log.error({ err: error, path }, 'core refuses a spooled event; it is set aside')
    options.onDamaged()
    segments.taken(at.segment, 1)
    await advance({ segment: at.segment, offset: next })
  }

  async function advance(to: Place): Promise<void> {
    if (abandoned) return
    const isElsewhere = to.segment !== place.segment
    place = to
    await position
      .save(to)
      .catch((error: unknown) => log.warn({ err: error }, 'the position in the spool was not kept'))
    if (isElsewhere) await release()
  }

  async function release(): Promise<void> {
    await segments
      .release(place)
      .catch((error: unknown) =>
        log.error({ err: error }, 'a segment that is done with cannot be removed'),
      )
    options.onReleased()
  }

  async function passOver(error: unknown): Promise<void> {
    unreadable += 1
    log.error({ err: error, ...place }, 'the spool cannot be read')
    if (unreadable < readAttempts) return pause(unreadable)
    await skip(await segments.giveUp(place))
    unreadable = 0
  }

  async function skip(to: Place): Promise<void> {
    log.error({ ...to }, 'a segment of the spool is given up; its file is kept')
    options.onDamaged()
    await advance(to)
  }

  const pause = (tried: number): Promise<void> =>
    sleep(pauseMs(tried), undefined, { signal: stopping.signal, ref: false }).catch(() => {})

  const running = run()

  /**
   * Goes on for at most `graceMs` while there is something to send and core takes it. A call that
   * is still not answered then is left behind: whatever it brings, its events come again.
   */
  async function stop(graceMs: number): Promise<void> {
    deadline = performance.now() + graceMs
    stopping.abort()
    wake.resolve()
    abandoned = !(await settlesWithin(running, graceMs + leftBehindMs))
  }

  return {
    wake: (): void => wake.resolve(),
    stop,
    place: () => place,
    /** When the first event that core does not have was spooled, in ms; null when there is none. */
    oldestMs: () => oldestMs,
  }
}

/** True when core says that it will never take this, whenever it comes. */
const isRefusal = (error: unknown): boolean =>
  error instanceof DomainError &&
  (error.reason === 'REQUEST_INVALID' || error.reason === 'BODY_TOO_LARGE')

/** Doubles from 100 ms to 2 s, less up to half of it. */
const pauseMs = (tried: number): number =>
  Math.min(firstPauseMs * 2 ** Math.min(tried - 1, 10), longestPauseMs) * (1 - Math.random() / 2)
