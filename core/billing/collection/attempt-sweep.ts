import { Gauge } from 'prom-client'
import { type Loop, startLoop } from '../../lib/loop.ts'
import { shareReads } from '../../lib/metrics.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './attempt-store.ts'
import type { StoredAttempt } from './attempt-store.ts'
import type { Attempts } from './attempts.ts'
import type { PaymentProcessor } from '../processor/port.ts'

export interface AttemptSweepDeps extends Pick<Shared, 'pool' | 'log' | 'metrics' | 'now'> {
  readonly processor: Pick<PaymentProcessor, 'kind'>
  readonly attempts: Pick<Attempts, 'check' | 'refundSurplus'>
}

const atOnce = 50
const pauseMs = 1_000
const againSeconds = 600

/**
 * Asks the processor about attempts whose answer was lost or that it has not decided, and refunds
 * what was paid twice. Leaves alone the attempts of another processor, which the deployment used
 * before.
 */
export function createAttemptSweep(deps: AttemptSweepDeps) {
  const { pool, processor, attempts, log, metrics, now } = deps
  let loop: Loop | undefined
  registerGauges(deps)

  /** Checks and refunds what is due, for a bounded number of attempts. */
  async function round(): Promise<void> {
    const at = now()
    const until = addSeconds(at, againSeconds)
    const due = { processor: processor.kind, at, until, limit: atOnce }
    for (const attempt of await store.claimDue(pool, { ...due, task: 'check' }))
      await attempts
        .check(attempt)
        .catch(warnOf(attempt, 'a charge could not be checked; it is checked again'))
    for (const attempt of await store.claimDue(pool, { ...due, task: 'refund' }))
      await attempts
        .refundSurplus(attempt)
        .catch(warnOf(attempt, 'a surplus could not be refunded; it is tried again'))
  }

  const warnOf =
    ({ appId, id: attemptId }: StoredAttempt, message: string) =>
    (err: unknown): void =>
      log.warn({ err, appId, attemptId }, message)

  function start(): void {
    loop = startLoop({ name: 'payment attempts', log, metrics, pauseMs, round })
  }

  const stop = async (): Promise<void> => loop?.stop()

  return { round, start, stop }
}

function registerGauges({ pool, processor, metrics, now }: AttemptSweepDeps): void {
  const read = shareReads(() => store.findWaiting(pool, processor.kind))
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_payment_attempts_age_seconds',
      help: 'Age of the oldest charge of a card that is not decided, or whose surplus is not refunded',
      registers: [],
      async collect() {
        const waiting = await read()
        if (waiting === null) return
        const { since } = waiting
        this.set(since === null ? 0 : Math.max(0, (now().getTime() - since.getTime()) / 1000))
      },
    }),
  )
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_payment_attempts_of_other_processors',
      help: 'Charges of cards at a processor that the deployment used before, which are not decided or whose surplus is not refunded',
      registers: [],
      async collect() {
        const waiting = await read()
        if (waiting !== null) this.set(waiting.ofOthers)
      },
    }),
  )
}
