import { type EthRate, divCeil, ethRate } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { newestRate } from './store.ts'

/**
 * The rate at which a ticket without a price holds money: the newest observation, raised by the
 * margin.
 */
export type HoldingRate = (db: Db) => Promise<EthRate>

/** Holds nothing, because no rate was ever observed. */
export const noRate = ethRate(0n)

/** Returns a `HoldingRate` with this margin in percent. */
export const createHoldingRate =
  (marginPercent: number): HoldingRate =>
  async (db) => {
    const rate = await newestRate(db)
    return rate ? ethRate(divCeil(rate.usdAttosPerEth * BigInt(100 + marginPercent), 100n)) : noRate
  }
