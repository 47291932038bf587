import type { CallOptions } from '../core/lib/grpc.ts'
import { DomainError } from '../proto/errors.ts'

type Call<Request, Response> = (request: Request, options: CallOptions) => Promise<Response>

const stallMs = 50
const maxTries = 3

/**
 * Repeats a call that missed its deadline, once; one that this process itself was too late to hear
 * says nothing about core. One pause of a busy machine is no outage.
 */
export function repeatMissed<Request, Response>(
  call: Call<Request, Response>,
): Call<Request, Response> {
  return async (request, options) => {
    for (let [tries, missed] = [1, 0]; ; tries++) {
      const sentAt = performance.now()
      try {
        return await call(request, options)
      } catch (error) {
        const late = performance.now() - sentAt - options.deadlineMs
        if (late < stallMs) missed++
        if (!isOutage(error) || late < 0 || missed === 2 || tries === maxTries) throw error
      }
    }
  }
}

/** Knows whether core answers: away from the first watched call that fails until one succeeds. */
export function createPresence() {
  let isAway = false

  /**
   * The call, whose outcome tells whether core is there. With `awayAfterMs`, core is away while an
   * answer takes longer than that.
   */
  function watched<Request, Response>(
    call: Call<Request, Response>,
    { tries = 1, awayAfterMs }: { readonly tries?: number; readonly awayAfterMs?: number } = {},
  ): Call<Request, Response> {
    return async (request, options) => {
      const sentAt = performance.now()
      const timer =
        awayAfterMs === undefined ? undefined : setTimeout(() => (isAway = true), awayAfterMs)
      try {
        const response = await call(request, options)
        isAway = false
        return response
      } catch (error) {
        // Far behind its deadline this process stalled, which says nothing about core.
        const isStall = performance.now() - sentAt > tries * options.deadlineMs + stallMs
        if (!isOutage(error)) isAway = false
        else if (!isStall) isAway = true
        throw error
      } finally {
        clearTimeout(timer)
      }
    }
  }

  /** The same, failing at once while core is away. */
  function whilePresent<Request, Response>(call: Call<Request, Response>): Call<Request, Response> {
    const watchedCall = watched(call)
    return async (request, options) => {
      if (isAway) throw new DomainError('UNAVAILABLE', 'core is away')
      return watchedCall(request, options)
    }
  }

  return { watched, whilePresent, isAway: () => isAway }
}

export type Presence = ReturnType<typeof createPresence>

const isOutage = (error: unknown): boolean =>
  !(error instanceof DomainError) || error.reason === 'UNAVAILABLE'
