import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type SessionKey, findLosses } from '../ingest/session-store.ts'

export interface LossWatchDeps {
  readonly pool: Pool
  readonly now: Now
  /** How long a ticket may be missing before it counts as lost. */
  readonly graceSeconds: number
  /** Called with the number of newly lost tickets. */
  readonly onLost: (count: bigint) => void
}

const batchSize = 200
const batchesPerRound = 500
const first: SessionKey = {
  appId: '00000000-0000-0000-0000-000000000000',
  userId: '00000000-0000-0000-0000-000000000000',
  sessionId: '',
}

/**
 * Finds lost tickets. Sequence numbers of a signer session run from 0 without a hole
 * (docs/signer-events.md); a number still missing one grace time after it was first missed is
 * lost, until its ticket arrives after all. Keeps no state between rounds, so any number of cores
 * may run it at once.
 */
export function createLossWatch({ pool, now, graceSeconds, onLost }: LossWatchDeps) {
  /** Examines each due session once, up to the bound of one round. */
  async function round(signal?: AbortSignal): Promise<void> {
    const at = now()
    const before = addSeconds(at, -graceSeconds)
    let after = first
    for (let batch = 0; batch < batchesPerRound; batch++) {
      const { lost, last } = await findLosses(pool, { after, at, before, limit: batchSize })
      if (lost > 0n) onLost(lost)
      if (last === null || signal?.aborted) return
      after = last
    }
  }

  return { round }
}
