import { addSeconds } from '../../lib/time.ts'
import type { DueSearch } from './port.ts'

/**
 * Pure rules for which stored instants a release may compare with the present
 * (docs/escrow-settlement.md, "Time").
 */

/**
 * Upper limit for the difference between two cores' clocks, and for a jump that no core notices.
 */
const skewSeconds = 1

/**
 * Returns the latest plausible instant. A later one was stored before the database's clock jumped.
 */
export const latestPlausible = (at: Date): Date => addSeconds(at, skewSeconds)

/**
 * Returns the range of stream clocks that count. A clock later than now is unknown. A clock earlier
 * than the lag after a jump is not that far past any authorisation from before the jump.
 */
export const clockRange = ({ at, lagSeconds, jumpedAt }: DueSearch): { from: Date; to: Date } => ({
  from: addSeconds(jumpedAt, lagSeconds),
  to: latestPlausible(at),
})

const never = new Date(0)

/** Returns the instant `holdMaxSeconds` ago, or 1970 if the clock has jumped since. */
export const idleSince = ({ at, holdMaxSeconds, jumpedAt }: DueSearch): Date =>
  addSeconds(jumpedAt, holdMaxSeconds) <= at ? addSeconds(at, -holdMaxSeconds) : never
