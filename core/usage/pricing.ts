import {
  divFloor,
  formatDecimal18,
  microsThatAddUp,
  usdAttos,
  usdMicros,
  type UsdAttos,
  type Wei,
  wei,
} from '../lib/money.ts'
import type { ChargedRow, Charges, Sums, Totals, UsageRow } from './types.ts'

/** The charges that follow from a network fee. The rows of each figure add up to its total, to the micro. */

/** What end users are billed for a sum of network fees, and at which rate (USD for each micro of network fee). */
export interface Retail {
  readonly billable: UsdAttos
  readonly rateUsd: string
}

/** The retail price: equal to the network's, because no plan sells at another price yet. */
export const retailOf = ({ cost }: Pick<Sums, 'cost'>): Retail => ({
  billable: cost,
  rateUsd: formatDecimal18(1_000_000_000_000n),
})

const wholeBps = 10_000n

/** The platform's cut of a fee, in hundredths of a percent; its remainder goes to the owner (docs/money.md). */
export const platformWei = (fee: Wei, cutBps: bigint): Wei => wei(divFloor(fee * cutBps, wholeBps))

const platformCost = (cost: UsdAttos, cutBps: bigint): UsdAttos =>
  usdAttos(divFloor(cost * cutBps, wholeBps))

export interface Terms {
  /** Null: no cut is configured, and none is taken. */
  readonly cutBasisPoints: bigint | null
  readonly includeRetail: boolean
}

/** Rows with what they cost, and their total. Without rows the total is zero. */
export function charged(
  rows: readonly UsageRow[],
  terms: Terms,
): { rows: ChargedRow[]; totals: Totals } {
  const cut = terms.cutBasisPoints ?? 0n
  const network = microsThatAddUp(rows.map((row) => row.cost))
  const owner = microsThatAddUp(rows.map((row) => usdAttos(row.cost + platformCost(row.cost, cut))))
  const retail = rows.map(retailOf)
  const billable = terms.includeRetail ? microsThatAddUp(retail.map((each) => each.billable)) : null
  const chargedRows = rows.map((row, i) => ({
    ...row,
    micros: network[i] ?? usdMicros(0n),
    ownerMicros: owner[i] ?? usdMicros(0n),
    billableMicros: billable?.[i] ?? null,
    retailRateUsd: billable ? (retail[i]?.rateUsd ?? null) : null,
  }))
  return { rows: chargedRows, totals: total(chargedRows, terms) }
}

function total(rows: readonly ChargedRow[], { cutBasisPoints, includeRetail }: Terms): Totals {
  const sum = (value: (row: Sums & Charges) => bigint): bigint =>
    rows.reduce((all, row) => all + value(row), 0n)
  const fee = wei(sum((row) => row.fee))
  const [micros, ownerMicros] = [sum((row) => row.micros), sum((row) => row.ownerMicros)]
  const platform = platformWei(fee, cutBasisPoints ?? 0n)
  return {
    requests: sum((row) => row.requests),
    unpriced: sum((row) => row.unpriced),
    fee,
    cost: usdAttos(sum((row) => row.cost)),
    micros: usdMicros(micros),
    ownerMicros: usdMicros(ownerMicros),
    platformMicros: usdMicros(ownerMicros - micros),
    billableMicros: includeRetail ? usdMicros(sum((row) => row.billableMicros ?? 0n)) : null,
    ownerWei: wei(fee + platform),
    platformWei: platform,
    cutBasisPoints,
  }
}
