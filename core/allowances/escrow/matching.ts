import type { SettlingTickets } from '../../metering/ingest/charges.ts'
import type { NewAuthorisation } from './port.ts'
import { type CallOfRun, openCalls } from './reports/runs.ts'

/** How far the time of an event may be from the time in the state of its call, where the signer writes two. */
export const approximateMicros = 5_000_000n

interface Ticket extends Pick<NewAuthorisation, 'sessionId' | 'sequence' | 'userId'> {
  readonly signedMicros: bigint
}

/**
 * The tickets of each authorisation: of the same session and number, and of the same microsecond; for an approximate one the
 * nearest within 5 s; for a run one for each of its calls. Each ticket belongs to one authorisation at most.
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

const callKey = (of: Pick<NewAuthorisation, 'sessionId' | 'sequence' | 'userId'>): string =>
  `${of.userId} ${of.sequence} ${of.sessionId}`

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

/** The tickets at these positions, of the same sessions. */
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
