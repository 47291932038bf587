import { addSeconds } from '../../lib/time.ts'
import type { DueSearch } from './port.ts'

/** Which stored instants a release may compare with the present (docs/escrow.md, "Time"): pure rules. */

/** The clocks of two cores differ by less, and a jump that no core notices is shorter. */
const skewSeconds = 1

/** An instant later than this is from before a jump of the database's clock. */
export const latestPlausible = (at: Date): Date => addSeconds(at, skewSeconds)

/**
 * The stream clocks that count. A later one than now is unknown. An earlier one than the lag after a jump is not that far past
 * anything that was authorised before the jump.
 */
export const clockRange = ({ at, lagSeconds, jumpedAt }: DueSearch): { from: Date; to: Date } => ({
  from: addSeconds(jumpedAt, lagSeconds),
  to: latestPlausible(at),
})

const never = new Date(0)

/** Instants until then are `holdMaxSeconds` old; 1970 while the clock has jumped within this time. */
export const idleSince = ({ at, holdMaxSeconds, jumpedAt }: DueSearch): Date =>
  addSeconds(jumpedAt, holdMaxSeconds) <= at ? addSeconds(at, -holdMaxSeconds) : never
