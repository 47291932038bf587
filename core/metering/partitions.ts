import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { createMonth, monthOf, readMonths } from './partition-store.ts'

/** Makes sure that tickets have a partition to go to. */
export function createPartitions(pool: Pool, now: Now) {
  const known = new Set<string>()

  /** After this, tickets signed at any of `times` (milliseconds) can be written. */
  async function ensure(times: Iterable<number>): Promise<void> {
    const wanted = new Set<string>()
    for (const time of times) wanted.add(monthOf(time))
    const missing = [...wanted].filter((month) => !known.has(month)).sort()
    if (missing.length === 0) return
    for (const month of await readMonths(pool)) known.add(month)
    for (const month of missing.filter((month) => !known.has(month))) {
      await createMonth(pool, month)
      known.add(month)
    }
  }

  /** Makes this month and the next before they are needed. */
  async function prepare(): Promise<void> {
    const at = now()
    await ensure([at.getTime(), Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1)])
  }

  return { ensure, prepare }
}

export type Partitions = ReturnType<typeof createPartitions>
