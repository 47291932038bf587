import type { Clocks } from './escrow-core.ts'

/** A larger gap is a suspension, or a wall clock that was set ahead: both end leases. */
const gapMs = 1_000

/**
 * Milliseconds of a clock by which leases end: the monotonic one, and the time for which it stood still because the machine was
 * suspended, which the wall clock then shows. A decision has read the wall clock already, and passes it.
 */
export function createLeaseClock({ mono, wall }: Pick<Clocks, 'mono' | 'wall'>): Clocks['mono'] {
  let aheadMs = wall() - mono()
  let suspendedMs = 0

  return (wallMs = wall()) => {
    const at = mono()
    const ahead = wallMs - at
    const gap = ahead - aheadMs
    if (gap > gapMs) suspendedMs += gap
    // Small gaps add up. A wall clock that was set back starts anew.
    if (gap > gapMs || gap < 0) aheadMs = ahead
    return at + suspendedMs
  }
}
