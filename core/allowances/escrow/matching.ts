import type { SettlingTickets } from '../../metering/ingest/charges.ts'
import type { EarlyMatch, NewAuthorisation } from './port.ts'

/** How far the time of an event may be from the time in the state of its call, where the signer writes two. */
export const approximateMicros = 5_000_000n

interface Ticket extends EarlyMatch, Pick<NewAuthorisation, 'sessionId' | 'sequence' | 'userId'> {
  readonly signedMicros: bigint
}

/**
 * The ticket of each call, or null: of the same session and number, and of the same microsecond; for an approximate call the
 * nearest within 5 s. Each ticket is that of one call at most.
 */
export function matchEarlyTickets<T extends Ticket>(
  calls: readonly NewAuthorisation[],
  tickets: readonly T[],
): (T | null)[] {
  const open = Map.groupBy(tickets, callKey)
  return calls.map((call) => {
    const candidates = open.get(callKey(call)) ?? []
    const ticket = call.isApproximate
      ? nearest(candidates, call.signedMicros)
      : candidates.find(({ signedMicros }) => signedMicros === call.signedMicros)
    if (!ticket) return null
    candidates.splice(candidates.indexOf(ticket), 1)
    return ticket
  })
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
