import { Gauge } from 'prom-client'
import { type Loop, startLoop } from '../lib/loop.ts'
import type { Shared } from '../shared/shared.ts'
import * as store from './figures-store.ts'

const pauseMs = 300_000
const planes = ['live', 'test'] as const
const payees = ['platform', 'app'] as const

/**
 * Metrics of the money that is owed, collected and returned. Every core reads them from the
 * database every five minutes, so that they survive restarts: use the maximum of all cores.
 */
export function createMoneyFigures({
  pool,
  log,
  metrics,
}: Pick<Shared, 'pool' | 'log' | 'metrics'>) {
  let loop: Loop | undefined
  const gauge = <Kind extends string>(
    { name, help, label }: { name: string; help: string; label: string },
    kinds: readonly Kind[],
  ) => {
    const sums = new Gauge({
      name,
      help,
      labelNames: ['plane', 'payee', label],
      registers: [metrics],
    })
    return (rows: readonly store.Sum<Kind>[]): void => {
      for (const kind of kinds)
        for (const plane of planes)
          for (const payee of payees) {
            const row = rows.find(
              (sum) => sum.plane === plane && sum.payee === payee && sum.kind === kind,
            )
            sums.set({ plane, payee, [label]: kind }, Number(row?.usd ?? 0))
          }
    }
  }
  const showDebts = gauge(
    {
      name: 'tollgate_billing_owed_usd',
      help: 'Unpaid usage on no invoice, and unpaid invoices: not due, overdue (a charge failed), uncollectible; at most five minutes old',
      label: 'kind',
    },
    store.debtKinds,
  )
  const showPayments = gauge(
    {
      name: 'tollgate_billing_collected_usd',
      help: 'Sum of all payments by purpose; at most five minutes old',
      label: 'purpose',
    },
    store.paymentPurposes,
  )
  const showReturns = gauge(
    {
      name: 'tollgate_billing_returned_usd',
      help: 'Sum of all refunds and disputes, less failed and won ones; at most five minutes old',
      label: 'kind',
    },
    store.returnKinds,
  )

  async function round(): Promise<void> {
    // Each by itself: one that takes too long must not keep the others old.
    const results = await Promise.allSettled([
      store.sumDebts(pool).then(showDebts),
      store.sumPayments(pool).then(showPayments),
      store.sumReturns(pool).then(showReturns),
    ])
    const failed = results.find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
  }

  function start(): void {
    loop = startLoop({ name: 'money figures', log, metrics, pauseMs, round })
  }

  const stop = async (): Promise<void> => loop?.stop()

  return { start, stop, round }
}
