import { Gauge } from 'prom-client'
import { type Loop, backoffMs, startLoop } from '../../lib/loop.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import type { PaymentProcessor } from '../processor/port.ts'
import { countOpen } from './difference-store.ts'
import * as store from './progress-store.ts'
import type { Progress } from './progress-store.ts'
import { type Reconciliation, isProcessorError } from './reconciliation.ts'

export interface WorkerDeps extends Pick<Shared, 'pool' | 'log' | 'metrics' | 'now'> {
  readonly processor: Pick<PaymentProcessor, 'kind' | 'planes'>
  readonly reconciliation: Pick<Reconciliation, 'insertPlaces' | 'advance'>
}

const pauseMs = 60_000
const claimedAtOnce = 4
const claimSeconds = 600
const pagesPerTurn = 200
const everySeconds = 86_400
const retries = { firstMs: 60_000, lastMs: 3_600_000 }
const subjects = ['payment', 'refund', 'dispute', 'fee', 'earning'] as const

/** Compares each account once a day. An account is compared by one core at a time. */
export function createWorker({ pool, processor, reconciliation, log, metrics, now }: WorkerDeps) {
  let loop: Loop | undefined
  registerGauges({ pool, processor, metrics, now })

  async function round(): Promise<void> {
    await reconciliation.insertPlaces()
    for (let claimed = await claim(); claimed.length > 0; claimed = await claim()) {
      // The platform's own account comes first: the others follow it.
      const own = claimed.filter(({ at }) => at.account === null)
      for (const place of own) await turn(place)
      await Promise.all(claimed.filter(({ at }) => at.account !== null).map(turn))
    }
  }

  function claim(): Promise<Progress[]> {
    const at = now()
    const until = addSeconds(at, claimSeconds)
    return store.claimPlaces(pool, processor, { at, until, limit: claimedAtOnce })
  }

  async function turn(place: Progress): Promise<void> {
    try {
      const { isDone } = await reconciliation.advance(place, pagesPerTurn)
      const dueAt = isDone ? addSeconds(now(), everySeconds) : now()
      await store.saveTurn(pool, place, { dueAt, failures: 0, failure: null })
      if (isDone) await store.endPlace(pool, place, now())
    } catch (error) {
      const failures = place.failures + 1
      const dueAt = new Date(now().getTime() + backoffMs(failures, retries))
      const failure = isProcessorError(error) ? error.message : 'an internal error'
      await store.saveTurn(pool, place, { dueAt, failures, failure })
      // The owner of an ended account may have withdrawn our access.
      if (isProcessorError(error) && error.reason === 'PROCESSOR_REFUSED')
        if (await store.endPlace(pool, place, now())) return
      log.warn(
        { err: error, appId: place.appId, account: place.at.account },
        'an account of the payment processor could not be compared; it is tried again',
      )
    }
  }

  function start(): void {
    loop = startLoop({ name: 'reconciliation with the processor', log, metrics, pauseMs, round })
  }

  const stop = async (): Promise<void> => loop?.stop()

  return { round, start, stop }
}

function registerGauges({
  pool,
  processor,
  metrics,
  now,
}: Pick<WorkerDeps, 'pool' | 'processor' | 'metrics' | 'now'>): void {
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_processor_differences',
      help: 'Open differences between the payment processor and our payments, by subject',
      labelNames: ['subject'],
      registers: [],
      collect() {
        return countOpen(pool).then(
          (counts) => {
            for (const subject of subjects)
              this.set({ subject }, counts.find((item) => item.subject === subject)?.count ?? 0)
          },
          () => {},
        )
      },
    }),
  )
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_reconciliation_age_seconds',
      help: 'Time since which an account of the payment processor is not compared; an hour is normal',
      registers: [],
      collect() {
        return store.comparedThrough(pool, processor).then(
          (through) =>
            this.set(
              through === null ? 0 : Math.max(0, (now().getTime() - through.getTime()) / 1000),
            ),
          () => {},
        )
      },
    }),
  )
}
