import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import { type Loop, startLoop } from '../../lib/loop.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import * as store from './checkout-store.ts'
import type { StoredCheckout } from './checkout-store.ts'
import type { Settling } from './settling.ts'

export interface SweepDeps {
  readonly pool: Pool
  readonly settling: Pick<Settling, 'settle' | 'expire' | 'abandon' | 'kind'>
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
}

const atOnce = 50
const pauseMs = 1_000
const againSeconds = 600
/**
 * After a day, a checkout that the processor does not know can no longer be paid. One of a processor
 * that the deployment used before is kept as long, in case that processor is used again.
 */
const unknownSeconds = 25 * 3600

/**
 * Asks the processor about checkouts that no event has ended, so that a lost event costs time and
 * no money. Runs apart from the events, so that a slow processor does not delay them twice.
 */
export function createSweep({ pool, settling, log, metrics, now }: SweepDeps) {
  let loop: Loop | undefined

  /** Checks what is due, for a bounded number of checkouts. */
  async function round(): Promise<void> {
    const at = now()
    const until = addSeconds(at, againSeconds)
    const due = await store.claimDue(pool, { at, until, limit: atOnce })
    for (const checkout of due)
      await check(checkout).catch((error: unknown) =>
        log.warn(
          { err: error, appId: checkout.appId, checkoutId: checkout.id },
          'a checkout could not be checked; it is checked again',
        ),
      )
  }

  async function check(checkout: StoredCheckout): Promise<void> {
    const { processorId, processor, at, createdAt } = checkout
    const isOld = addSeconds(createdAt, unknownSeconds) <= now()
    if (processor !== null && processor !== settling.kind) {
      if (isOld) await settling.abandon(checkout)
      return
    }
    const result = processorId === null ? 'unknown' : await settling.settle(at, processorId)
    if (result === 'unknown' && isOld) await settling.expire(checkout)
  }

  function start(): void {
    loop = startLoop({ name: 'checkout sweep', log, metrics, pauseMs, round })
  }

  const stop = async (): Promise<void> => loop?.stop()

  return { start, stop }
}
