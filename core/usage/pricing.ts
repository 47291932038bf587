import {
  divFloor,
  formatDecimal18,
  microsThatAddUp,
  usdAttos,
  usdMicros,
  wei,
} from '../lib/money.ts'
import type { ChargedRow, Charges, Sums, Totals, UsageRow } from './types.ts'

/**
 * Charges derived from a network fee. The rows of each figure add up to its total, to the micro.
 */

const attosPerBillionth = 1_000_000_000n
const networkBillionths = 1_000n

/**
 * Returns the USD that end users paid per micro of network fee, to nine places; the network's price
 * if there is no fee. It is an average: tickets of one row may have been sold at different rates.
 */
export const toRetailRate = ({ cost, retail }: Pick<Sums, 'cost' | 'retail'>): string => {
  const billionths =
    cost === 0n ? networkBillionths : divFloor(2n * retail * networkBillionths + cost, 2n * cost)
  return formatDecimal18(billionths * attosPerBillionth)
}

export interface Terms {
  /** The app's current cut, only for display: each ticket has its own. */
  readonly cutBasisPoints: bigint | null
  readonly includeRetail: boolean
}

/** Adds charges to rows, and computes their total: zero without rows. */
export function charged(
  rows: readonly UsageRow[],
  terms: Terms,
): { rows: ChargedRow[]; totals: Totals } {
  const network = microsThatAddUp(rows.map((row) => row.cost))
  const owner = microsThatAddUp(rows.map((row) => usdAttos(row.cost + row.platformFee)))
  const billable = terms.includeRetail ? microsThatAddUp(rows.map((row) => row.retail)) : null
  const chargedRows = rows.map((row, i) => {
    const [micros = usdMicros(0n), ownerMicros = usdMicros(0n)] = [network[i], owner[i]]
    return {
      ...row,
      micros,
      ownerMicros,
      platformMicros: usdMicros(ownerMicros - micros),
      billableMicros: billable?.[i] ?? null,
      retailRateUsd: billable ? toRetailRate(row) : null,
    }
  })
  return { rows: chargedRows, totals: total(chargedRows, terms) }
}

function total(rows: readonly ChargedRow[], { cutBasisPoints, includeRetail }: Terms): Totals {
  const sum = (value: (row: Sums & Charges) => bigint): bigint =>
    rows.reduce((all, row) => all + value(row), 0n)
  const fee = wei(sum((row) => row.fee))
  const [micros, ownerMicros] = [sum((row) => row.micros), sum((row) => row.ownerMicros)]
  const platformWei = wei(sum((row) => row.platformWei))
  return {
    requests: sum((row) => row.requests),
    unpriced: sum((row) => row.unpriced),
    fee,
    cost: usdAttos(sum((row) => row.cost)),
    retail: usdAttos(sum((row) => row.retail)),
    platformFee: usdAttos(sum((row) => row.platformFee)),
    micros: usdMicros(micros),
    ownerMicros: usdMicros(ownerMicros),
    platformMicros: usdMicros(ownerMicros - micros),
    billableMicros: includeRetail ? usdMicros(sum((row) => row.billableMicros ?? 0n)) : null,
    ownerWei: wei(fee + platformWei),
    platformWei,
    cutBasisPoints,
  }
}
