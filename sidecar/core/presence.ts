import { status } from '@grpc/grpc-js'
import type { CallOptions } from '../../core/lib/grpc.ts'
import { DomainError } from '../../proto/errors.ts'

type Call<Request, Response> = (request: Request, options: CallOptions) => Promise<Response>

/** An unanswered call to core. Times are milliseconds of this process's running time. */
interface Flight {
  readonly sentAt: number
  /** Silence for this long makes core unavailable. */
  readonly silenceMs: number
  readonly deadlineMs: number
  readonly abort: AbortController
}

export interface PresenceClock {
  readonly mono: () => number
  /** Calls `work` every `ms` milliseconds until the returned function is called. */
  readonly every: (ms: number, work: () => void) => () => void
}

const tickMs = 50
/** Maximum share of a call's deadline that one pause of this process uses up. */
const longestTickMs = 2 * tickMs
/**
 * Added to a deadline by the wall clock, after which a call ends however little this process ran.
 */
const pausedMs = 700

/**
 * Tracks whether core is available. Core becomes unavailable when a call finds no connection, or
 * when a call and all others get no answer until its deadline; it becomes available when a call
 * succeeds. On a busy machine this process may pause: deadlines count only its running time, and
 * are checked after the answers that arrived during the pause were read.
 */
export function createPresence({ mono, every }: PresenceClock = systemClock) {
  const flights = new Set<Flight>()
  let isAway = false
  let lastContactAt = 0
  let ranMs = 0
  let tickedAt = 0
  let stopTicks: (() => void) | null = null

  const sinceTick = (): number => Math.min(mono() - tickedAt, longestTickMs)
  const now = (): number => ranMs + sinceTick()

  function tick(): void {
    ranMs = now()
    tickedAt = mono()
    // Check after the sockets were read, because timers run first.
    setImmediate(endMissed)
  }

  function endMissed(): void {
    for (const { sentAt, silenceMs, deadlineMs, abort } of flights) {
      if (ranMs - sentAt >= silenceMs && lastContactAt <= sentAt) isAway = true
      if (ranMs - sentAt >= deadlineMs) abort.abort()
    }
    if (flights.size > 0) return
    stopTicks?.()
    stopTicks = null
  }

  function start(deadlineMs: number, silenceMs = deadlineMs): Flight {
    if (!stopTicks) {
      tickedAt = mono()
      stopTicks = every(tickMs, tick)
    }
    const flight = { sentAt: now(), silenceMs, deadlineMs, abort: new AbortController() }
    flights.add(flight)
    return flight
  }

  function noteContact(): void {
    lastContactAt = now()
    isAway = false
  }

  /**
   * Wraps a call so that its outcome decides whether core is available. Without any answer for
   * `silenceMs`, if shorter than the deadline, core becomes unavailable.
   */
  function watched<Request, Response>(
    call: Call<Request, Response>,
    silenceMs?: number,
  ): Call<Request, Response> {
    return async (request, options) => {
      const flight = start(options.deadlineMs, silenceMs)
      const deadlineMs = options.deadlineMs + pausedMs
      try {
        const response = await call(request, {
          ...options,
          deadlineMs,
          signal: flight.abort.signal,
        })
        noteContact()
        return response
      } catch (error) {
        if (!isOutage(error)) noteContact()
        else if (!isMissed(error)) isAway = true
        throw error
      } finally {
        flights.delete(flight)
      }
    }
  }

  /** The same, but fails immediately while core is unavailable. */
  function whilePresent<Request, Response>(
    call: Call<Request, Response>,
    silenceMs?: number,
  ): Call<Request, Response> {
    const watchedCall = watched(call, silenceMs)
    return async (request, options) => {
      if (isAway) throw new DomainError('UNAVAILABLE', 'core is unavailable')
      return watchedCall(request, options)
    }
  }

  /**
   * Waits for `work` for at most `ms`. The work continues, so that its answer can be used later.
   */
  async function within<T>(work: Promise<T>, ms: number): Promise<T> {
    // A wait for several calls proves nothing about a single one, so it has no silence limit.
    const wait = start(ms, Infinity)
    const { promise, reject } = Promise.withResolvers<never>()
    wait.abort.signal.addEventListener('abort', () =>
      reject(new DomainError('UNAVAILABLE', 'core has not answered in time')),
    )
    try {
      return await Promise.race([work, promise])
    } finally {
      flights.delete(wait)
    }
  }

  return { watched, whilePresent, within, isAway: () => isAway }
}

export type Presence = ReturnType<typeof createPresence>

const systemClock: PresenceClock = {
  mono: () => performance.now(),
  every: (ms, work) => {
    const timer = setInterval(work, ms).unref()
    return () => clearInterval(timer)
  },
}

const isOutage = (error: unknown): boolean =>
  !(error instanceof DomainError) || error.reason === 'UNAVAILABLE'

/** Whether a call ended by its deadline. */
function isMissed(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  if (!(cause instanceof Error) || !('code' in cause)) return false
  return cause.code === status.DEADLINE_EXCEEDED || cause.code === status.CANCELLED
}
