import { type EthRate, divCeil, ethRate } from '../../lib/money.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type Rate, type RateAges, maxAgeOf } from './store.ts'

/** The rate by which the most that a call can cost is computed (docs/escrow.md "Rates"). */
export interface BoundRate {
  readonly usdAttosPerEth: EthRate
  readonly observedAt: Date
  /** True for an old observation with a margin. */
  readonly isRaised: boolean
}

export interface BoundRateDeps extends RateAges {
  /** The newest observation; null without one. Also one later than now: core's clock was set back since. */
  readonly findRate: () => Promise<Pick<Rate, 'usdAttosPerEth' | 'observedAt' | 'source'> | null>
  readonly now: Now
  /** So much is added to an older one, which then serves for so long. */
  readonly marginPercent: number
  readonly graceSeconds: number
}

const cacheMs = 1_000

/**
 * Returns a function to the newest observation that prices tickets, else to the last one with the margin, else to null. Its
 * answers are a second old at most.
 */
export function createBoundRate({
  findRate,
  now,
  marginPercent,
  graceSeconds,
  ...ages
}: BoundRateDeps): () => Promise<BoundRate | null> {
  let cached: { readonly at: number; readonly rate: Promise<BoundRate | null> } | null = null

  async function read(at: Date): Promise<BoundRate | null> {
    const rate = await findRate()
    if (!rate) return null
    const { usdAttosPerEth, observedAt } = rate
    const maxAge = maxAgeOf(rate.source, ages)
    if (observedAt < addSeconds(at, -maxAge - graceSeconds)) return null
    const isRaised = observedAt < addSeconds(at, -maxAge)
    return {
      usdAttosPerEth: isRaised ? raise(usdAttosPerEth, marginPercent) : usdAttosPerEth,
      observedAt,
      isRaised,
    }
  }

  return () => {
    const at = now()
    const age = cached ? at.getTime() - cached.at : Infinity
    if (cached && age >= 0 && age < cacheMs) return cached.rate
    const rate = read(at)
    cached = { at: at.getTime(), rate }
    // The first rate counts at once: without one nobody may spend.
    const forget = (): void => {
      if (cached?.rate === rate) cached = null
    }
    rate.then((known) => known ?? forget(), forget)
    return rate
  }
}

const raise = (rate: EthRate, percent: number): EthRate =>
  ethRate(divCeil(rate * BigInt(100 + percent), 100n))
