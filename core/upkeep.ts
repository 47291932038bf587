import type { Ledger } from './allowances/ledger.ts'
import type { Idempotency } from './idempotency.ts'
import type { Log } from './lib/log.ts'
import type { Pool } from './lib/sql.ts'
import type { Now } from './lib/time.ts'
import type { KeyRotation } from './tokens/key-rotation.ts'

export interface UpkeepDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly idempotency: Idempotency
  /** Each forgets what has ended; run once a minute. */
  readonly forget: readonly (() => Promise<void>)[]
  readonly rotation: KeyRotation
  readonly log: Log
  readonly now: Now
}

const everyMs = 60_000
const roundsMax = 100

/** Books expired grants, forgets old answers and tends the signing keys once a minute. Any number of cores may do it at once. */
export function startUpkeep({ pool, ledger, idempotency, forget, rotation, log, now }: UpkeepDeps) {
  let running: Promise<void> = Promise.resolve()

  async function round(): Promise<void> {
    for (let i = 0; i < roundsMax; i++) {
      if (await ledger.sweep(pool, now()) === 0) break
    }
    await idempotency.forgetOld()
    for (const step of forget) await step()
    await rotation.tend()
  }

  const timer = setInterval(() => {
    running = running.then(round).catch((error: unknown) => log.warn({ err: error }, 'upkeep failed; it runs again in a minute'))
  }, everyMs)
  timer.unref()

  async function stop(): Promise<void> {
    clearInterval(timer)
    await running
  }

  return { stop }
}
