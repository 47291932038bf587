import type { EthRate } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import {
  type Micros,
  type ObservedRate,
  type Rate,
  type RateAges,
  ensureRates,
  ratesAt,
} from './store.ts'

/** Returns the rate of each instant; null where a ticket must wait for one (decision 31). */
export type RateLookup = (db: Db, instants: readonly Micros[]) => Promise<(Rate | null)[]>

export interface RateLookupOptions extends RateAges {
  /** RATE_FIXED: prices instants of any age that no observation prices. */
  readonly fixed: EthRate | null
  readonly now: Now
}

/** Returns a `RateLookup` that uses observations first, then the fixed rate. */
export function createRateLookup({ fixed, now, ...ages }: RateLookupOptions): RateLookup {
  return async (db, instants) => {
    const observed = await ratesAt(db, instants, ages)
    if (fixed === null || !observed.includes(null)) return observed
    const constant = await ensureFixedRate(db, fixed, now())
    return observed.map((rate) => rate ?? constant)
  }
}

const forever = 200 * 365 * 86_400

/** Maximum ages of observations for waiting tickets: unlimited if there is a fixed rate. */
export const waitingAges = ({ fixed, ...ages }: Omit<RateLookupOptions, 'now'>): RateAges =>
  fixed === null ? ages : { maxAgeSeconds: forever, manualMaxAgeSeconds: forever }

/**
 * Records the fixed rate as an observation of 1970, which is before every ticket. Looks its id up
 * each time, because the caller's transaction may roll back.
 */
export async function ensureFixedRate(db: Db, fixed: EthRate, at: Date): Promise<Rate> {
  const rate: ObservedRate = {
    usdAttosPerEth: fixed,
    source: 'fixed',
    observedAt: '1970-01-01T00:00:00.000000Z',
  }
  const idOf = await ensureRates(db, [rate], at)
  return { ...rate, id: idOf(rate), observedAt: new Date(0) }
}
