import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'

export interface NewestTicket {
  readonly signedAt: Date
  readonly receivedAt: Date
}

/** Ends of the slices of time that are searched one after the other, in seconds before now. */
const slices = [60, 120, 240, 480, 960]
/** How far the clock of a signer may be ahead. */
const aheadSeconds = 60

/**
 * Returns the ticket of the last 16 minutes that was signed last; null without one. Reads short
 * slices, because the block range index of `signed_at` gives no order.
 */
export async function findNewestTicket(db: Db, now: Date): Promise<NewestTicket | null> {
  let until = addSeconds(now, aheadSeconds)
  for (const seconds of slices) {
    const since = addSeconds(now, -seconds)
    const newest = await maybeOne<NewestTicket>(
      db,
      sql`
      select signed_at as "signedAt", received_at as "receivedAt"
      from tickets
      where signed_at > ${since} and signed_at <= ${until} and clock_ms is null
      order by signed_at desc
      limit 1`,
    )
    if (newest) return newest
    until = since
  }
  return null
}
