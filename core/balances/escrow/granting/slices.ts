import { type UsdAttos, networkRatio, usdAttos } from '../../../lib/money.ts'

/**
 * Pure policy: how much of a user's money a lease holds (docs/escrow.md, "Lease"). Amounts are
 * atto-dollars.
 */

export interface SliceRequest {
  /** Money that is neither lent nor pending; never negative. */
  readonly free: UsdAttos
  /** The sidecar's remaining amount of its lease. */
  readonly rest: UsdAttos
  /** Bound of the current call; 0 if not known yet. */
  readonly bound: UsdAttos
  /** The user's spending per second at this sidecar. */
  readonly spending: UsdAttos
  /** Ratio by which a bound at network price is multiplied, scaled by 10^18. */
  readonly retailRatio?: bigint
}

const shareOfFree = 4n
const callsMin = 4n
/** Slice for calls with an unknown bound: 0.05 USD. */
const callsUnknown = 50_000_000_000_000_000n
/** A sidecar counts in nano-dollars. */
const attosPerNano = 1_000_000_000n

/**
 * Returns what the sidecar should have left after a renewal, never less than it has. Returns null
 * if there should be no lease, because a quarter of what is free does not cover the current call.
 */
export function computeSlice(
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
