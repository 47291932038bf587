import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { retentionDays } from './losses.ts'
import { forgetClocks } from './stores/clock-store.ts'
import { forgetSessions } from './stores/session-store.ts'
import { forgetSidecars } from './stores/sidecar-store.ts'
import { deleteInBatches } from '../../platform/upkeep.ts'

export interface RetentionDeps {
  readonly pool: Pool
  readonly now: Now
}

/** Forgets rows of the escrow that nothing needs any more. Ended authorisations go with the release that ends others. */
export function createRetention({ pool, now }: RetentionDeps) {
  /**
   * Forgets sidecars that core has not heard of for 30 days, their stream clocks, and sessions as old that are not billed by
   * time; nothing of which money is held. In batches, as the other upkeep.
   */
  async function forgetUnused(): Promise<void> {
    const before = addSeconds(now(), -retentionDays * 86_400)
    for (const forget of [forgetSidecars, forgetClocks, forgetSessions])
      await deleteInBatches((limit) => forget(pool, before, limit))
  }

  return { forgetUnused }
}
