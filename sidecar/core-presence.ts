import { status } from '@grpc/grpc-js'
import type { CallOptions } from '../core/lib/grpc.ts'
import { DomainError } from '../proto/errors.ts'

type Call<Request, Response> = (request: Request, options: CallOptions) => Promise<Response>

/** A call that core has not answered. Times are milliseconds for which this process ran. */
interface Flight {
  readonly sentAt: number
  /** When nothing has been heard for so long, core is away. */
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
/** A pause of this process counts as so much of a call's deadline at most. */
const longestTickMs = 2 * tickMs
/** After a deadline by the wall clock and this, a call ends however little this process ran. */
const pausedMs = 700

/**
 * Knows whether core answers. Core is away from the first call that finds no connection, or that has
 * no answer by its deadline while no other call got one, until a call succeeds. On a busy machine
 * this process may not run for a while: deadlines count only the time for which it ran, and end
 * after the answers that arrived meanwhile have been read.
 */
export function createPresence({ mono, every }: PresenceClock = systemClock) {
  const flights = new Set<Flight>()
  let isAway = false
  let heardAt = 0
  let ranMs = 0
  let tickedAt = 0
  let stopTicks: (() => void) | null = null

  const sinceTick = (): number => Math.min(mono() - tickedAt, longestTickMs)
  const now = (): number => ranMs + sinceTick()

  function tick(): void {
    ranMs = now()
    tickedAt = mono()
    // Timers run before sockets are read.
    setImmediate(endMissed)
  }

  function endMissed(): void {
    for (const { sentAt, silenceMs, deadlineMs, abort } of flights) {
      if (ranMs - sentAt >= silenceMs && heardAt <= sentAt) isAway = true
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

  function hear(): void {
    heardAt = now()
    isAway = false
  }

  /** The call, by whose outcome core is there or away; away after `silenceMs` where that is before the deadline. */
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
        hear()
        return response
      } catch (error) {
        if (!isOutage(error)) hear()
        else if (!isMissed(error)) isAway = true
        throw error
      } finally {
        flights.delete(flight)
      }
    }
  }

  /** The same, failing at once while core is away. */
  function whilePresent<Request, Response>(
    call: Call<Request, Response>,
    silenceMs?: number,
  ): Call<Request, Response> {
    const watchedCall = watched(call, silenceMs)
    return async (request, options) => {
      if (isAway) throw new DomainError('UNAVAILABLE', 'core is away')
      return watchedCall(request, options)
    }
  }

  /** Waits for what core is asked for, and no longer than `ms`. The work goes on, so that its answer is of use later. */
  async function within<T>(work: Promise<T>, ms: number): Promise<T> {
    // A wait for several calls shows nothing about one.
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

/** True for a call that ended by its deadline. */
function isMissed(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  if (!(cause instanceof Error) || !('code' in cause)) return false
  return cause.code === status.DEADLINE_EXCEEDED || cause.code === status.CANCELLED
}
