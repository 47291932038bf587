import type { Db } from '../../lib/sql.ts'
import { type Move, aheadAt } from '../../shared/clocks/clocks.ts'
import type { AppId } from '../../shared/ids.ts'
import type { DifferentRow } from '../types.ts'
import type { SoldCharge } from './sales.ts'

/** Lists the moves of an app's clock in order; empty unless it is a test app. */
export type ListMoves = (db: Db, app: AppId) => Promise<readonly Move[]>

// Allowed clock difference between the core that moved an app's clock and the core that booked a
// ticket.
const slackMs = 60_000

/** Finds tickets with another date than by their app's clock at signing (docs/test-clock.md). */
export function* clockDifferences(
  { userId, externalUserId, tickets }: Pick<SoldCharge, 'userId' | 'externalUserId' | 'tickets'>,
  moves: readonly Move[],
): Generator<DifferentRow> {
  for (const { eventId, signedAtMicros, aheadMs, receivedAtMs } of tickets) {
    if (moves.length === 0 && aheadMs === 0) continue
    const signedMs = Math.floor(signedAtMicros / 1000) - aheadMs
    const expected = aheadAt(moves, { signedMs, bookedMs: receivedAtMs })
    if (aheadMs === expected || isNear(moves, { signedMs, receivedAtMs, aheadMs })) continue
    yield {
      userId,
      externalUserId,
      key: { event_id: eventId },
      stored: { clock_ms: String(aheadMs) },
      expected: { clock_ms: String(expected) },
    }
  }
}

/** Whether the clock was ahead by this much within the slack around the booking. */
function isNear(
  moves: readonly Move[],
  {
    signedMs,
    receivedAtMs,
    aheadMs,
  }: Readonly<Record<'signedMs' | 'receivedAtMs' | 'aheadMs', number>>,
): boolean {
  const first = aheadAt(moves, { signedMs, bookedMs: receivedAtMs - slackMs })
  const last = aheadAt(moves, { signedMs, bookedMs: receivedAtMs + slackMs })
  const isMove = aheadMs === 0 || moves.some((move) => move.aheadMs === aheadMs)
  return isMove && aheadMs >= first && aheadMs <= last
}
