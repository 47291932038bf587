import { getOrInsert } from '../../lib/maps.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'

/** Ports of metering to the ledger of allowances. */

/** The charge of one priced ticket. */
export interface TicketCharge {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  readonly signedAt: Date
  readonly pipeline: string
  readonly modelId: string
  /** Retail price, charged to the user. */
  readonly cost: UsdAttos
}

/** The charge of one user's tickets together. */
export interface UserCharge {
  readonly appId: AppId
  readonly userId: UserId
  /** Number of tickets with a price. */
  readonly tickets: number
  /** Number of tickets without a price: they are not charged yet, but hold money. */
  readonly unpriced: number
  /** Number of priced tickets that were booked earlier without a price. */
  readonly waited: number
  /** At retail. */
  readonly cost: UsdAttos
  /** Owner charge of the priced tickets: network cost and platform fee. */
  readonly ownerCost: UsdAttos
  /** Hash of the priced tickets (batch/tickets-hash.ts); null without any. */
  readonly ticketsHash: string | null
  /** All tickets were signed at or between these two instants. */
  readonly from: Date
  readonly to: Date
  /**
   * Lists the priced tickets. A function, because there are many and the ledger seldom needs them.
   */
  readonly each: () => readonly TicketCharge[]
}

/** A signer session and its user. */
export interface SessionKey {
  readonly appId: AppId
  readonly userId: UserId
  readonly sessionId: string
}

/**
 * Tickets that the escrow matches with authorisations, in columns: a batch has thousands
 * (docs/escrow.md).
 */
export interface SettlingTickets {
  readonly sessions: readonly SessionKey[]
  /** By ticket: the position of its session in `sessions`. */
  readonly session: readonly number[]
  readonly sequence: readonly (number | bigint)[]
  /** Signing times in microseconds since 1970, rounded down. */
  readonly signedMicros: readonly number[]
  /** Price charged to the user; for a ticket without a price, the amount it holds meanwhile. */
  readonly cost: readonly UsdAttos[]
}

/** Steps of a ticket: booked with a price, booked without one, or priced after it was booked. */
const settlingSteps = ['booked', 'unpriced', 'priced'] as const
export type SettlingStep = (typeof settlingSteps)[number]

/** Lists the tickets of these users, by step. */
export type ListSettling = (
  users: ReadonlySet<UserId>,
) => ReadonlyMap<SettlingStep, SettlingTickets>

export interface ChargeOptions {
  /** Identifies the charge in the ledger. */
  readonly id: string
  readonly at: Date
  /** When the rates of the tickets were read; null if their prices were fixed elsewhere. */
  readonly ratesKnownAt: Date | null
  readonly settling: ListSettling
  /**
   * Called with the locked accounts and their current periods, before anything is charged. Throws
   * if the tickets were rated by other periods.
   */
  readonly confirm: (
    accounts: readonly { readonly userId: UserId; readonly periodStart: Date }[],
  ) => void
}

/** Changes of a settlement, as counts and amounts. */
export interface SettlementSums {
  /** Authorisations whose ticket arrived; amounts are their bounds. */
  readonly settled: Total
  /** The part of `settled` that was lost, charged or released before; amounts are bounds. */
  readonly late: Total
  readonly lateAfterRelease: Total
}

export interface Total {
  readonly count: number
  readonly amount: UsdAttos
}

/** Adds up settlements; null if all are null. */
export function sumSettlements(
  settlements: readonly (SettlementSums | null)[],
): SettlementSums | null {
  const present = settlements.filter((settlement) => settlement !== null)
  if (present.length === 0) return null
  const total = (kind: keyof SettlementSums): Total => ({
    count: present.reduce((sum, settlement) => sum + settlement[kind].count, 0),
    amount: usdAttos(present.reduce((sum, settlement) => sum + settlement[kind].amount, 0n)),
  })
  return {
    settled: total('settled'),
    late: total('late'),
    lateAfterRelease: total('lateAfterRelease'),
  }
}

export interface ChargeResult {
  /** Users with no balance left. */
  readonly exhausted: readonly UserId[]
  /** Null if the users have no holds. */
  readonly settlement: SettlementSums | null
}

/** Charges users in the caller's transaction, and settles the holds of the tickets' calls. */
export type Charge = (
  db: Db,
  charges: readonly UserCharge[],
  options: ChargeOptions,
) => Promise<ChargeResult>

/** A ticket with its owner charge; default is 0. */
export interface OwnedTicketCharge extends TicketCharge {
  readonly ownerCost?: UsdAttos
}

/** Groups tickets that waited for their price into one charge per user. */
export function userCharges(
  tickets: readonly OwnedTicketCharge[],
  hashOf: (user: UserId) => string | null = () => null,
): UserCharge[] {
  return [...Map.groupBy(tickets, ({ userId }) => userId)].map(([userId, each]) => {
    const times = each.map(({ signedAt }) => signedAt.getTime())
    const cost = usdAttos(each.reduce((sum: bigint, ticket) => sum + ticket.cost, 0n))
    const [from, to] = [Math.min(...times), Math.max(...times)].map((ms) => new Date(ms))
    const [first] = each
    if (!first || !from || !to) throw new Error('a charge is for at least one ticket')
    return {
      appId: first.appId,
      userId,
      tickets: each.length,
      unpriced: 0,
      waited: each.length,
      ticketsHash: hashOf(userId),
      cost,
      ownerCost: usdAttos(each.reduce((sum, { ownerCost = usdAttos(0n) }) => sum + ownerCost, 0n)),
      from,
      to,
      each: () => each,
    }
  })
}

/** Returns empty columns, and a function that returns a session's position in them. */
export function createSettlingColumns() {
  const positions = new Map<SessionKey, number>()
  const columns = {
    sessions: [] as SessionKey[],
    session: [] as number[],
    sequence: [] as (number | bigint)[],
    signedMicros: [] as number[],
    cost: [] as UsdAttos[],
  }
  /** Compares sessions by identity: all tickets of a session must pass the same object. */
  const positionOf = (session: SessionKey): number =>
    getOrInsert(positions, session, () => columns.sessions.push(session) - 1)
  return { columns, positionOf }
}

/** One ticket of `SettlingTickets`. */
export interface SettlingTicket extends SessionKey {
  readonly sequence: number | bigint
  readonly signedMicros: number
  readonly cost: UsdAttos
}

/** Converts tickets to columns. */
export function settlingTickets(tickets: Iterable<SettlingTicket>): SettlingTickets {
  const { columns, positionOf } = createSettlingColumns()
  const sessions = new Map<string, SessionKey>()
  for (const { appId, userId, sessionId, sequence, signedMicros, cost } of tickets) {
    const session = getOrInsert(sessions, `${userId} ${sessionId}`, () => ({
      appId,
      userId,
      sessionId,
    }))
    columns.session.push(positionOf(session))
    columns.sequence.push(sequence)
    columns.signedMicros.push(signedMicros)
    columns.cost.push(cost)
  }
  return columns
}

/** Builds the map of steps, without steps that have no tickets. */
export const toSteps = (
  steps: Partial<Record<SettlingStep, { readonly columns: SettlingTickets }>>,
): ReadonlyMap<SettlingStep, SettlingTickets> =>
  new Map(
    settlingSteps.flatMap((step) => {
      const tickets = steps[step]?.columns
      return tickets && tickets.session.length > 0 ? [[step, tickets] as const] : []
    }),
  )
