import { type UsdAttos, divFloor, usdAttos } from '../../lib/money.ts'

/** A paid period that an immediate change ends at `at`. */
export interface EndedPeriod {
  readonly price: UsdAttos
  readonly start: Date
  readonly end: Date
  readonly at: Date
  readonly included: UsdAttos
  /** The part of `included` that is not used. */
  readonly unused: UsdAttos
}

export interface Prorated {
  readonly amount: UsdAttos
  /** The unused included usage if it decided the amount; null if the unused time did. */
  readonly unused: UsdAttos | null
}

/**
 * Returns the part of the price for what is not used: the lesser of the unused time and the unused
 * share of the included usage. By time alone, a user could use up a plan, change, and get most of
 * its price back.
 */
export function prorate({ price, start, end, at, included, unused }: EndedPeriod): Prorated {
  const length = BigInt(end.getTime() - start.getTime())
  const left = BigInt(end.getTime() - Math.max(at.getTime(), start.getTime()))
  if (price <= 0n || left <= 0n) return nothing
  const byTime = divFloor(price * left, length)
  const byUsage = included > 0n ? divFloor(price * unused, included) : price
  return byUsage < byTime
    ? { amount: usdAttos(byUsage), unused }
    : { amount: usdAttos(byTime), unused: null }
}

export const nothing: Prorated = { amount: usdAttos(0n), unused: null }
