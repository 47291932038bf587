import { type EthRate, divCeil, ethRate } from '../../lib/money.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Rate } from './store.ts'

/** The rate by which the most that a call can cost is computed (docs/escrow.md "Rates"). */
export interface BoundRate {
  readonly usdAttosPerEth: EthRate
  readonly observedAt: Date
  /** True for an old observation with a margin. */
  readonly isRaised: boolean
}

export interface BoundRateDeps {
  /**
   * The newest observation that is not older than an instant; null without one. Also one later than now: core's clock was set
   * back since.
   */
  readonly findRate: (since: Date) => Promise<Pick<Rate, 'usdAttosPerEth' | 'observedAt'> | null>
  readonly now: Now
  /** How old an observation may be that prices tickets. */
  readonly maxAgeSeconds: number
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
  maxAgeSeconds,
  marginPercent,
  graceSeconds,
}: BoundRateDeps): () => Promise<BoundRate | null> {
  let cached: { readonly at: number; readonly rate: Promise<BoundRate | null> } | null = null

  async function read(at: Date): Promise<BoundRate | null> {
    const rate = await findRate(addSeconds(at, -maxAgeSeconds - graceSeconds))
    if (!rate) return null
    const { usdAttosPerEth, observedAt } = rate
    const isRaised = observedAt < addSeconds(at, -maxAgeSeconds)
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
