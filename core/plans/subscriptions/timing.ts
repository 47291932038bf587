import { DomainError } from '../../../proto/errors.ts'
import { parseDecimal18 } from '../../lib/money.ts'
import type { PlanTerms } from '../offers/plan.ts'

export const timings = ['immediate', 'next_billing_cycle'] as const
export type Timing = (typeof timings)[number]

/** The plan fields that decide when a change of plan takes effect. */
export interface Sold extends Pick<PlanTerms, 'type' | 'priceAmount' | 'priceCurrency'> {
  readonly isStarterDefault: boolean
}

/**
 * Throws REQUEST_INVALID for an unknown word. Returns undefined when the caller leaves the choice
 * to `defaultTiming`.
 */
export function parseTiming(text: string | undefined): Timing | undefined {
  if (text === undefined) return undefined
  const timing = timings.find((known) => known === text)
  if (timing) return timing
  throw new DomainError('REQUEST_INVALID', `timing must be one of: ${timings.join(', ')}`)
}

/**
 * Default time of a change: now for a more expensive plan and for the first usage plan; otherwise
 * at the end of the paid period.
 */
export function defaultTiming(from: Sold, to: Sold): Timing {
  const isFirstByUsage =
    to.type === 'usage' && !to.isStarterDefault && (from.type === 'free' || from.isStarterDefault)
  return isFirstByUsage || costsMore(from, to) ? 'immediate' : 'next_billing_cycle'
}

/** Prices in two currencies compare only when one is zero. */
function costsMore(from: Sold, to: Sold): boolean {
  const [before, after] = [priceOf(from), priceOf(to)]
  return after > before && (before === 0n || from.priceCurrency === to.priceCurrency)
}

/**
 * Whether the plan requires a payment method, because usage or a price per period must be
 * collected.
 */
export const needsCard = (plan: Sold): boolean =>
  !plan.isStarterDefault && (plan.type === 'usage' || isPriced(plan))

export const isPriced = (plan: Pick<Sold, 'priceAmount'>): boolean => priceOf(plan) > 0n

const priceOf = ({ priceAmount }: Pick<Sold, 'priceAmount'>): bigint =>
  parseDecimal18(priceAmount) ?? 0n
