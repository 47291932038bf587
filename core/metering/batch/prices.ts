import { type Wei, priceOf } from '../../lib/money.ts'
import { getOrInsert } from '../../lib/maps.ts'
import type { Priced, Rate } from '../types.ts'

const maxPrices = 1_000

/** Prices fees. The same fee by the same rate is the same object: fees repeat, and what is made of them is kept. */
export function createPrices() {
  const byRate = new Map<bigint, Map<bigint, Priced>>()

  return ({ id, usdAttosPerEth }: Rate, fee: Wei): Priced => {
    const prices = getOrInsert(byRate, id, () => new Map<bigint, Priced>())
    if (prices.size >= maxPrices) prices.clear()
    return getOrInsert(prices, fee, () => ({ rateId: id, cost: priceOf(fee, usdAttosPerEth) }))
  }
}
