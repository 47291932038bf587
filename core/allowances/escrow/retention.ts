import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { retentionDays } from './losses.ts'
import { forgetClocks } from './stores/clock-store.ts'
import { forgetSessions } from './stores/session-store.ts'
import { forgetSidecars } from './stores/sidecar-store.ts'

export interface RetentionDeps {
  readonly pool: Pool
  readonly now: Now
}

const batch = 1_000
const batchesMax = 50

/** Forgets rows of the escrow that nothing needs any more. Ended authorisations go with the release that ends others. */
export function createRetention({ pool, now }: RetentionDeps) {
  /**
   * Forgets sidecars that core has not heard of for 30 days, their stream clocks, and sessions as old that are not billed by
   * time; nothing of which money is held. Takes 50,000 rows of each at most; the next minute goes on.
   */
  async function forgetUnused(): Promise<void> {
    const before = addSeconds(now(), -retentionDays * 86_400)
    for (const forget of [forgetSidecars, forgetClocks, forgetSessions])
      for (let i = 0; i < batchesMax; i++) if ((await forget(pool, before, batch)) < batch) break
  }

  return { forgetUnused }
}
