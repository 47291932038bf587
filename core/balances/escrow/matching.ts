import type { SettlingTickets } from '../../metering/ingest/charges.ts'
import type { NewAuthorisation } from './port.ts'
import { type CallOfRun, openCalls } from './reports/runs.ts'

/**
 * The most that the time of an event may differ from the time in its call's state, if the signer
 * writes two different times.
 */
export const approximateMicros = 5_000_000n

interface Ticket extends Pick<NewAuthorisation, 'sessionId' | 'sequence' | 'userId'> {
  readonly signedMicros: bigint
}

/**
 * Returns the tickets of each authorisation: those with the same session, number and microsecond;
 * for an approximate authorisation the nearest within 5 s; for a run one per call. Each ticket
 * belongs to at most one authorisation.
 */
export function matchEarlyTickets<T extends Ticket>(
  authorisations: readonly NewAuthorisation[],
  tickets: readonly T[],
): T[][] {
  const open = Map.groupBy(tickets, callKey)
  const take = (authorisation: NewAuthorisation, call: CallOfRun): T[] => {
    const candidates = open.get(callKey({ ...authorisation, sequence: call.sequence })) ?? []
    const ticket = authorisation.isApproximate
      ? nearest(candidates, call.signedMicros)
      : candidates.find(({ signedMicros }) => signedMicros === call.signedMicros)
    if (!ticket) return []
    candidates.splice(candidates.indexOf(ticket), 1)
    return [ticket]
  }
  return authorisations.map((authorisation) =>
    openCalls(authorisation).flatMap((call) => take(authorisation, call)),
  )
}

const callKey = (call: Pick<NewAuthorisation, 'sessionId' | 'sequence' | 'userId'>): string =>
  `${call.userId} ${call.sequence} ${call.sessionId}`

function nearest<T extends Ticket>(tickets: readonly T[], micros: bigint): T | undefined {
  const distance = ({ signedMicros }: T): bigint =>
    signedMicros > micros ? signedMicros - micros : micros - signedMicros
  return tickets
    .filter((ticket) => distance(ticket) <= approximateMicros)
    .reduce<T | undefined>(
      (best, ticket) => (best && distance(best) <= distance(ticket) ? best : ticket),
      undefined,
    )
}

/** Returns the tickets at these positions, with unchanged `sessions`. */
export function selectTickets(
  tickets: SettlingTickets,
  positions: readonly number[],
): SettlingTickets {
  const pick = <T>(values: readonly T[]): T[] =>
    positions.flatMap((position) => values.slice(position, position + 1))
  return {
    sessions: tickets.sessions,
    session: pick(tickets.session),
    sequence: pick(tickets.sequence),
    signedMicros: pick(tickets.signedMicros),
    cost: pick(tickets.cost),
  }
}
