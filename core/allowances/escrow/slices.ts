import { type UsdAttos, networkRatio, usdAttos } from '../../lib/money.ts'

/** How much of a user's money a lease holds: pure policy (docs/escrow.md "Lease"). Amounts are atto-dollars. */

export interface SliceRequest {
  /** What is neither lent nor pending; never negative. */
  readonly free: UsdAttos
  /** What the sidecar has left of its lease. */
  readonly rest: UsdAttos
  /** Bound of the call at hand; 0 when it is not known yet. */
  readonly bound: UsdAttos
  /** What the user spends in a second at this sidecar. */
  readonly spending: UsdAttos
  /** What a bound at network price is multiplied by, scaled by 10^18. */
  readonly retailRatio?: bigint
}

const shareOfFree = 4n
const callsMin = 4n
/** For calls whose bound is not known yet: 0.05 USD. */
const callsUnknown = 50_000_000_000_000_000n
/** A sidecar counts in nano-dollars. */
const attosPerNano = 1_000_000_000n

/**
 * What the sidecar shall have left after a renewal: at least what it has; null when there shall be no lease, because a
 * quarter of what is free does not cover the call at hand.
 */
export function sliceOf(
  { free, rest, bound, spending, retailRatio = networkRatio }: SliceRequest,
  leaseSeconds: number,
): UsdAttos | null {
  const unknown =
    retailRatio < networkRatio ? (callsUnknown * retailRatio) / networkRatio : callsUnknown
  const calls = bound === 0n ? unknown : bound * callsMin
  const useful = max(spending * BigInt(leaseSeconds), calls)
  const most = (free + rest) / shareOfFree
  const slice = min(useful, most)
  const next = max(slice - (slice % attosPerNano), rest)
  return next < max(bound, attosPerNano) ? null : usdAttos(next)
}

const max = (a: bigint, b: bigint): bigint => (a > b ? a : b)
const min = (a: bigint, b: bigint): bigint => (a < b ? a : b)
