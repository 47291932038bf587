import { type EthRate, divCeil, ethRate } from '../../lib/money.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type Rate, type RateAges, toMaxAge } from './store.ts'

/** The rate used to bound the cost of a call (docs/escrow-bounds.md, "Rates"). */
export interface BoundRate {
  readonly usdAttosPerEth: EthRate
  readonly observedAt: Date
  /** Whether this is an older observation, raised by the margin. */
  readonly isRaised: boolean
}

export interface BoundRateDeps extends RateAges {
  /**
   * The newest observation; null without one. May lie in the future if core's clock was set back.
   */
  readonly findRate: () => Promise<Pick<Rate, 'usdAttosPerEth' | 'observedAt' | 'source'> | null>
  readonly now: Now
  /**
   * Percent added to an observation past its maximum age, which then serves for `graceSeconds`
   * more.
   */
  readonly marginPercent: number
  readonly graceSeconds: number
}

const cacheMs = 1_000

/**
 * Returns a function that returns the newest observation if it still prices tickets; else the same,
 * raised by the margin, within its grace time; else null. Results are cached for one second.
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
    const maxAge = toMaxAge(rate.source, ages)
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
    // Do not cache null or a failure: without a rate users cannot spend, so the first one counts at
    // once.
    const forget = (): void => {
      if (cached?.rate === rate) cached = null
    }
    rate.then((known) => known ?? forget(), forget)
    return rate
  }
}

const raise = (rate: EthRate, percent: number): EthRate =>
  ethRate(divCeil(rate * BigInt(100 + percent), 100n))
