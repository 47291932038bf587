import type { Db } from '../../lib/sql.ts'
import { type Clocks, aheadAt } from '../../shared/clocks/clocks.ts'
import { type ParsedBatch, signedAtMs, putAhead, readSession } from './parsed-batch.ts'

/**
 * Moves the tickets of test apps to their apps' clocks (docs/test-clock.md): once per batch, after
 * its users are known and before its times are used. `at` is when the tickets are booked.
 */
export async function dateByClocks(
  db: Db,
  { tickets, sessions, payers }: Pick<ParsedBatch, 'tickets' | 'sessions' | 'payers'>,
  { clocks, at }: { readonly clocks: Clocks; readonly at: Date },
): Promise<void> {
  const moves = await clocks.moves(
    db,
    [...payers.values()].flatMap(({ subject }) => subject ?? []),
  )
  if (moves.size === 0) return
  for (let place = 0; place < tickets.count; place++) {
    const subject = sessions[readSession(tickets, place)]?.payer.subject
    const own = subject && moves.get(subject.appId)
    if (!own) continue
    const times = { signedMs: signedAtMs(tickets, place), bookedMs: at.getTime() }
    putAhead(tickets, place, aheadAt(own, times))
  }
}
