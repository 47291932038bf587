import type { UserKey } from '../../../shared/ids.ts'
import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import type { SettlingTickets } from '../../../metering/ingest/charges.ts'

/** Key columns as parameters of statements. */

interface SessionKey extends UserKey {
  readonly sessionId: string
}
interface CallKey extends SessionKey {
  readonly sequence: bigint
}

export const appColumn = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.appId))
export const userColumn = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.userId))
export const sessionColumn = (rows: readonly SessionKey[]) =>
  textArray(rows.map((row) => row.sessionId))
export const numberColumn = (rows: readonly CallKey[]) =>
  plainArray(rows.map((row) => row.sequence))

/** Returns the full key of each ticket. */
export function keyColumns(tickets: SettlingTickets) {
  const sessions = tickets.session.flatMap((position) =>
    tickets.sessions.slice(position, position + 1),
  )
  return {
    apps: appColumn(sessions),
    users: userColumn(sessions),
    sessions: sessionColumn(sessions),
    sequences: plainArray(tickets.sequence),
    micros: plainArray(tickets.signedMicros),
  }
}
