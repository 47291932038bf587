import type { Clocks } from './escrow-core.ts'

/**
 * A larger gap means that the machine was suspended or the wall clock was set forward. Both end
 * leases.
 */
const gapMs = 1_000

/**
 * Returns the clock by which leases end: monotonic milliseconds plus the time for which the
 * monotonic clock stood still because the machine was suspended, measured with the wall clock. A
 * decision has already read the wall clock and passes its reading.
 */
export function createLeaseClock({ mono, wall }: Pick<Clocks, 'mono' | 'wall'>): Clocks['mono'] {
  let aheadMs = wall() - mono()
  let suspendedMs = 0

  return (wallMs = wall()) => {
    const at = mono()
    const ahead = wallMs - at
    const gap = ahead - aheadMs
    if (gap > gapMs) suspendedMs += gap
    // Let small gaps add up. Start again after the wall clock was set back.
    if (gap > gapMs || gap < 0) aheadMs = ahead
    return at + suspendedMs
  }
}
