import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type SessionKey, look } from './store.ts'

export interface LossWatchDeps {
  readonly pool: Pool
  readonly now: Now
  /** How long a ticket may be missing before it is lost. */
  readonly graceSeconds: number
  /** Told how many tickets more are lost. */
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
 * Finds out which tickets were lost: sequence numbers run from 0 without a hole in each signer session (signer-contract
 * 5.2), and what is still missing a grace time after it was first missed is lost. A ticket that comes after all is lost
 * no more. Keeps nothing between rounds: any number of cores may do it at once, and each goes on where another stopped.
 */
export function createLossWatch({ pool, now, graceSeconds, onLost }: LossWatchDeps) {
  /** Looks once at every session that is due, as far as one round goes. */
  async function round(signal?: AbortSignal): Promise<void> {
    const at = now()
    const before = addSeconds(at, -graceSeconds)
    let after = first
    for (let batch = 0; batch < batchesPerRound; batch++) {
      const { lost, last } = await look(pool, { after, at, before, limit: batchSize })
      if (lost > 0n) onLost(lost)
      if (last === null || signal?.aborted) return
      after = last
    }
  }

  return { round }
}
