import type { Db } from '../../lib/sql.ts'
import { type Move, aheadAt } from '../../platform/clocks/clocks.ts'
import type { AppId } from '../../platform/ids.ts'
import type { DifferentRow } from '../types.ts'
import type { SoldCharge } from './sales.ts'

/** The moves of an app's clock, in their order; none for an app that is no test app. */
export type ListMoves = (db: Db, app: AppId) => Promise<readonly Move[]>

// The clocks of the core that moved an app's clock, and of the one that booked a ticket, may differ by so much.
const slackMs = 60_000

/** Tickets that are not dated by the clock of their app as it was when they were signed (docs/test-clock.md). */
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

/** The clock was ahead by so much within the slack of the booking. */
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
