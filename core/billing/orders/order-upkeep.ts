import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Booking } from './booking.ts'
import { lockAbandoned } from './order-store.ts'

const atOnce = 100
/** By then, the process of a request has opened its checkout or charge, unless it crashed. */
const abandonedSeconds = 300

/** Ends orders that a crash left before their card step. Several cores may run it at once. */
export const createOrderUpkeep =
  ({
    pool,
    booking,
    now,
  }: {
    readonly pool: Pool
    readonly booking: Pick<Booking, 'end'>
    readonly now: Now
  }) =>
  (): Promise<void> =>
    tx(pool, async (db) => {
      const before = addSeconds(now(), -abandonedSeconds)
      for (const order of await lockAbandoned(db, { before, limit: atOnce }))
        await booking.end(db, order, {
          state: 'expired',
          problem: 'the request was interrupted before the card step',
          attemptId: null,
        })
    })
