import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import { retentionDays } from './losses.ts'
import { forgetClocks } from './stores/clock-store.ts'
import { forgetSessions } from './stores/session-store.ts'
import { forgetSidecars } from './stores/sidecar-store.ts'
import { deleteInBatches } from '../../shared/upkeep.ts'

export interface RetentionDeps extends Pick<Shared, 'pool' | 'now'> {}

/**
 * Deletes rows of the escrow that are no longer needed. The release deletes ended authorisations.
 */
export function createRetention({ pool, now }: RetentionDeps) {
  /**
   * Deletes, in batches, sidecars without contact for 30 days, their stream clocks, and sessions of
   * that age that are not billed by time. Keeps everything with held money.
   */
  async function forgetUnused(): Promise<void> {
    const before = addSeconds(now(), -retentionDays * 86_400)
    for (const forget of [forgetSidecars, forgetClocks, forgetSessions])
      await deleteInBatches((limit) => forget(pool, before, limit))
  }

  return { forgetUnused }
}
