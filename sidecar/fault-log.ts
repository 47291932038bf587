import type { Log } from '../core/lib/log.ts'
import type { Now } from '../core/lib/time.ts'

const pauseMs = 1_000

/** Warns of a fault at most once a second, and then of how many it kept to itself. */
export function createFaultLog({ log, now }: { log: Log; now: Now }) {
  let quietUntil = 0
  let unsaid = 0

  return (error: unknown, what: string): void => {
    const at = now().getTime()
    if (at < quietUntil) {
      unsaid++
      return
    }
    log.warn({ err: error, unsaid }, what)
    quietUntil = at + pauseMs
    unsaid = 0
  }
}
