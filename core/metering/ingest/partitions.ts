import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createMonth, monthOf, readMonths } from './partition-store.ts'

const dayMs = 86_400_000

/** Makes sure that tickets have a partition to go to. */
export function createPartitions(pool: Pool, now: Now) {
  const known = new Set<string>()

  /** After this, tickets signed at any of `times` (milliseconds) can be written. */
  async function ensure(times: Iterable<number>): Promise<void> {
    const days = new Set<number>()
    for (const time of times) days.add(Math.floor(time / dayMs))
    const wanted = new Set([...days].map((day) => monthOf(day * dayMs)))
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
