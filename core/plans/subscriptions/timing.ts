import { DomainError } from '../../../proto/errors.ts'
import { parseDecimal18 } from '../../lib/money.ts'
import type { PlanTerms } from '../offers/plan.ts'

export const timings = ['immediate', 'next_billing_cycle'] as const
export type Timing = (typeof timings)[number]

/** A plan, as far as it matters when a change to it or from it takes effect. */
export interface Sold extends Pick<PlanTerms, 'type' | 'priceAmount' | 'priceCurrency'> {
  readonly isStarterDefault: boolean
}

/** REQUEST_INVALID for another word; undefined leaves it to `defaultTiming`. */
export function parseTiming(text: string | undefined): Timing | undefined {
  if (text === undefined) return undefined
  const timing = timings.find((known) => known === text)
  if (timing) return timing
  throw new DomainError('REQUEST_INVALID', `timing must be one of: ${timings.join(', ')}`)
}

/**
 * When a change takes effect unless the request says so: what costs more, and the first plan by usage, at once; everything
 * else when what was paid for is over.
 */
export function defaultTiming(from: Sold, to: Sold): Timing {
  const isFirstByUsage =
    to.type === 'usage' && !to.isStarterDefault && (from.type === 'free' || from.isStarterDefault)
  return isFirstByUsage || costsMore(from, to) ? 'immediate' : 'next_billing_cycle'
}

/** Prices of two currencies compare only with nothing. */
function costsMore(from: Sold, to: Sold): boolean {
  const [before, after] = [priceOf(from), priceOf(to)]
  return after > before && (before === 0n || from.priceCurrency === to.priceCurrency)
}

/** Whether nobody may be on the plan without a payment method: what is used, or owed for each period, must be collected. */
export const needsCard = (plan: Sold): boolean =>
  !plan.isStarterDefault && (plan.type === 'usage' || isPriced(plan))

export const isPriced = (plan: Pick<Sold, 'priceAmount'>): boolean => priceOf(plan) > 0n

const priceOf = ({ priceAmount }: Pick<Sold, 'priceAmount'>): bigint =>
  parseDecimal18(priceAmount) ?? 0n
