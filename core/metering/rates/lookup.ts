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

/** The rate of each instant; null where a ticket has to wait for one (decision 31). */
export type RateLookup = (db: Db, instants: readonly Micros[]) => Promise<(Rate | null)[]>

export interface RateLookupOptions extends RateAges {
  /** RATE_FIXED: prices the instants that no observation prices, however long ago. */
  readonly fixed: EthRate | null
  readonly now: Now
}

/** A `RateLookup` by observations, then by the fixed rate. */
export function createRateLookup({ fixed, now, ...ages }: RateLookupOptions): RateLookup {
  return async (db, instants) => {
    const observed = await ratesAt(db, instants, ages)
    if (fixed === null || !observed.includes(null)) return observed
    const constant = await ensureFixedRate(db, fixed, now())
    return observed.map((rate) => rate ?? constant)
  }
}

const forever = 200 * 365 * 86_400

/** The ages up to which an observation serves a ticket that waits: without a bound where there is a fixed rate. */
export const waitingAges = ({ fixed, ...ages }: Omit<RateLookupOptions, 'now'>): RateAges =>
  fixed === null ? ages : { maxAgeSeconds: forever, manualMaxAgeSeconds: forever }

/**
 * Records the fixed rate as an observation of 1970, which is before every ticket. The caller may be inside a transaction
 * that does not commit, so its id is looked up each time.
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
