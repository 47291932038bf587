import { parseUtcDay } from '../../../lib/time.ts'
import { later } from '../../../shared/clocks/clocks.ts'
import type { PaymentProcessor, Payout } from '../port.ts'
import * as store from './payout-store.ts'
import { type SimulatedDeps, read } from './writes.ts'

const usd = { currency: 'usd', decimals: 2 } as const

type PayoutCalls = Pick<PaymentProcessor, 'readBalance' | 'listPayouts'>

/**
 * Balance and payouts of the simulated processor. Payments less fees and refunds are available at
 * once. At each midnight (UTC) what is available is paid out, and arrives on that day.
 */
export const createPayouts = ({ pool, now }: SimulatedDeps): PayoutCalls => ({
  readBalance: async (at) => {
    const { total, paidOut } = await read(store.readBalance(pool, at, now()))
    return [{ ...usd, available: total - paidOut, pending: 0n }]
  },

  listPayouts: async (at, { limit, after }) => {
    const last = after === null ? null : parseId(after)
    if (after !== null && last === null) return null
    const until = later(now(), 1)
    // The payout of the cursor comes first, which shows that there is one.
    const before = last === null || last >= until ? until : later(last, 1)
    const skipped = last === null ? 0 : 1
    const rows = await read(store.listPayouts(pool, at, { before, limit: limit + skipped + 1 }))
    if (last !== null && rows[0]?.paidAt.getTime() !== last.getTime()) return null
    const payouts = rows.slice(skipped, skipped + limit)
    return { payouts: payouts.map(toPayout), hasMore: rows.length > skipped + limit }
  },
})

const toPayout = ({ paidAt, amount }: store.DailyPayout): Payout => ({
  ...usd,
  id: `po_sim_${paidAt.toISOString().slice(0, 10).replaceAll('-', '')}`,
  amount,
  state: 'paid',
  arrivesAt: paidAt,
  createdAt: paidAt,
  failure: null,
})

/** Returns the midnight in the id of a payout; null for another text. */
function parseId(id: string): Date | null {
  const [, year, month, day] = /^po_sim_(\d{4})(\d{2})(\d{2})$/.exec(id) ?? []
  return parseUtcDay(`${year}-${month}-${day}`)
}
