import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { enqueue } from '../../platform/outbox/outbox.ts'
import { customerEntry } from './emit.ts'
import * as store from './emit-store.ts'

const mark = 'customers'
const pageSize = 2_000
// Clocks of several cores differ, and a transaction that began earlier may commit later.
const overlapSeconds = 600

/**
 * Puts users that were made while there was no backend on their way to it: at the start, all that are newer than the
 * last time. Customers that are there already stay as they are, so doing it twice does no harm.
 */
export function createBackfill({ pool, log, now }: { pool: Pool; log: Log; now: Now }) {
  async function run(signal: AbortSignal): Promise<number> {
    const startedAt = now()
    const since = await store.readMark(pool, mark)
    let after: store.UserPage['after'] = null
    let count = 0
    do {
      const page: store.UserPage = await store.usersSince(pool, since, { after, limit: pageSize })
      await enqueue(pool, page.users.map(customerEntry), now())
      count += page.users.length
      after = page.after
    } while (after !== null && !signal.aborted)
    if (after === null) await store.setMark(pool, mark, addSeconds(startedAt, -overlapSeconds))
    if (count > 0)
      log.info(
        { users: count },
        'users that the metering backend may not know are on their way to it',
      )
    return count
  }

  return { run }
}
