import type { Random } from '../random.ts'

/**
 * An observation of the price of one ETH. Instants are microseconds since 1970, the resolution of
 * the database.
 */
export interface Observation {
  readonly at: number
  readonly attosPerEth: bigint
  /** Whether it is recorded only after tickets of its time have been booked. */
  readonly late: boolean
}

const minute = 60_000_000
const maxAge = 10 * minute

/**
 * Returns observations from `start` to `end` that give every instant exactly one rate. Before the
 * first late observation, the previous one has just become too old.
 */
export function createRates(
  random: Random,
  { start, end }: { start: number; end: number },
): Observation[] {
  const observations: Observation[] = []
  const lateFrom = start + (end - start) * 0.4
  const lateUntil = start + (end - start) * 0.55
  let wasLate = false
  for (let at = start; at < end;) {
    const late = at >= lateFrom && at < lateUntil
    if (late && !wasLate) at = (observations.at(-1)?.at ?? start) + maxAge + 1
    observations.push({ at, late, attosPerEth: randomRate(random) })
    // For two observations of one instant, the one recorded last counts.
    if (random.chance(0.2)) observations.push({ at, late, attosPerEth: randomRate(random) })
    wasLate = late
    // Sometimes the longest pause that leaves no instant without a rate.
    at += random.chance(0.1) ? maxAge + 1 : minute + random.below(8 * minute)
  }
  return observations
}

/** About 3000 USD, with random digits down to the atto-dollar. */
const randomRate = (random: Random): bigint =>
  2_800n * 10n ** 18n +
  BigInt(random.below(400)) * 10n ** 18n +
  BigInt(random.below(10 ** 9)) * 10n ** 9n +
  BigInt(random.below(10 ** 9))

/**
 * Returns the newest observation at or before `at`. Throws if it is older than ten minutes or
 * missing.
 */
export function rateAt(observations: readonly Observation[], at: number): Observation {
  let [low, high] = [0, observations.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((observations[middle]?.at ?? Infinity) <= at) low = middle + 1
    else high = middle
  }
  const newest = observations[low - 1]
  if (!newest || newest.at < at - maxAge) throw new Error(`no rate at ${at}`)
  return newest
}

/** Returns the cost of an amount of wei at a rate, rounded down to the atto-dollar. */
export const costOf = (fee: bigint, attosPerEth: bigint): bigint => (fee * attosPerEth) / 10n ** 18n
