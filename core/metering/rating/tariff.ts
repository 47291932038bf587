import {
  type EthRate,
  type UsdAttos,
  type Wei,
  divFloor,
  networkRatio,
  priceOf,
  retailOf,
  usdAttos,
  wei,
} from '../../lib/money.ts'

/** What a ticket costs and sells for (docs/money.md, "Price of a ticket"). Pure. */

/** How the prices of a ticket follow from its network cost. */
export interface Tariff {
  /** Retail by network, scaled by 10^18. */
  readonly ratio: bigint
  /** The platform's cut of the network cost, in hundredths of a percent. */
  readonly cutBasisPoints: bigint
}

/** Network price, and no cut. */
export const networkTariff: Tariff = { ratio: networkRatio, cutBasisPoints: 0n }

/** By which version of a plan a ticket is sold; null where its prices were fixed elsewhere. */
export interface Sale {
  readonly termsId: bigint | null
  readonly tariff: Tariff
}

/** Of a ticket that is sold at network price, without a version. */
export const networkSale: Sale = { termsId: null, tariff: networkTariff }

export interface Prices {
  /** What the network gets: fee at the rate of the ETH. */
  readonly cost: UsdAttos
  /** What its user is charged. */
  readonly retail: UsdAttos
  /** The platform's cut: what the owner is charged beside the cost. */
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
}

const basisPoints = 10_000n
const feeScale = 10n ** 18n * basisPoints
const nothing = { platformFee: usdAttos(0n), platformWei: wei(0n) }

/** Each of the prices, rounded down once from the exact product (decision 47). */
export function pricesOf(fee: Wei, rate: EthRate, { ratio, cutBasisPoints }: Tariff): Prices {
  const cost = priceOf(fee, rate)
  const retail = ratio === networkRatio ? cost : retailOf(fee, rate, ratio)
  if (cutBasisPoints === 0n) return { cost, retail, ...nothing }
  return {
    cost,
    retail,
    platformFee: usdAttos(divFloor(fee * rate * cutBasisPoints, feeScale)),
    platformWei: wei(divFloor(fee * cutBasisPoints, basisPoints)),
  }
}
