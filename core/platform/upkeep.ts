import type { Ledger } from '../allowances/ledger.ts'
import type { Idempotency } from './idempotency.ts'
import type { Log } from '../lib/log.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'

export interface UpkeepDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly idempotency: Idempotency
  /** What else is due once a minute, mostly to forget what has ended. */
  readonly forget: readonly (() => Promise<void>)[]
  readonly log: Log
  readonly now: Now
}

const everyMs = 60_000
const roundsMax = 100

/** Books expired grants and forgets what has ended once a minute. Any number of cores may do it at once. */
export function startUpkeep({ pool, ledger, idempotency, forget, log, now }: UpkeepDeps) {
  let running: Promise<void> = Promise.resolve()

  async function round(): Promise<void> {
    for (let i = 0; i < roundsMax; i++) {
      if ((await ledger.sweep(pool, now())) === 0) break
    }
    await idempotency.forgetOld()
    for (const step of forget) await step()
  }

  const timer = setInterval(() => {
    running = running
      .then(round)
      .catch((error: unknown) =>
        log.warn({ err: error }, 'upkeep failed; it runs again in a minute'),
      )
  }, everyMs)
  timer.unref()

  async function stop(): Promise<void> {
    clearInterval(timer)
    await running
  }

  return { stop }
}
