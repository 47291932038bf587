import {
  type EthRate,
  type UsdAttos,
  type Wei,
  divFloor,
  networkRatio,
  computePrice,
  computeRetail,
  usdAttos,
  wei,
} from '../../lib/money.ts'

/** Cost and prices of a ticket (docs/money.md, "Price of a ticket"). Pure. */

/** Rules that derive a ticket's prices from its network cost. */
export interface Tariff {
  /** Retail price divided by network price, scaled by 10^18. */
  readonly ratio: bigint
  /** The platform's cut of the network cost, in hundredths of a percent. */
  readonly cutBasisPoints: bigint
}

/** Sells at network price, without a cut. */
export const networkTariff: Tariff = { ratio: networkRatio, cutBasisPoints: 0n }

/** The plan version that sells a ticket; `termsId` is null if its prices were fixed elsewhere. */
export interface PricedTicket {
  readonly termsId: bigint | null
  readonly tariff: Tariff
}

/** A sale at network price, without a version. */
export const networkSale: PricedTicket = { termsId: null, tariff: networkTariff }

export interface Prices {
  /** Network cost: the fee at the ETH rate. */
  readonly cost: UsdAttos
  /** Price charged to the user. */
  readonly retail: UsdAttos
  /** The platform's cut, charged to the app's owner in addition to the cost. */
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
}

const basisPoints = 10_000n
const feeScale = 10n ** 18n * basisPoints
const nothing = { platformFee: usdAttos(0n), platformWei: wei(0n) }

/** Computes the prices, each rounded down once from the exact product (decision 47). */
export function toPrices(fee: Wei, rate: EthRate, { ratio, cutBasisPoints }: Tariff): Prices {
  const cost = computePrice(fee, rate)
  const retail = ratio === networkRatio ? cost : computeRetail(fee, rate, ratio)
  if (cutBasisPoints === 0n) return { cost, retail, ...nothing }
  return {
    cost,
    retail,
    platformFee: usdAttos(divFloor(fee * rate * cutBasisPoints, feeScale)),
    platformWei: wei(divFloor(fee * cutBasisPoints, basisPoints)),
  }
}
