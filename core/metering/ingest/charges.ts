import { getOrInsert } from '../../lib/maps.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../platform/ids.ts'

/** What metering asks of the ledger of allowances. */

/** What one priced ticket takes from its user's allowances. */
export interface TicketCharge {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  readonly signedAt: Date
  readonly pipeline: string
  readonly modelId: string
  /** At retail: what its user is charged. */
  readonly cost: UsdAttos
}

/** What tickets of one user take together. */
export interface UserCharge {
  readonly appId: AppId
  readonly userId: UserId
  /** Those with a price. */
  readonly tickets: number
  /** Those without one: nothing is charged for them yet, but money is held. */
  readonly unpriced: number
  /** Of those with a price, the ones that were booked before, without it. */
  readonly waited: number
  /** At retail. */
  readonly cost: UsdAttos
  /** Of those with a price (batch/tickets-hash.ts); null without any. */
  readonly ticketsHash: string | null
  /** None of them was signed before this instant, and none after the next. */
  readonly from: Date
  readonly to: Date
  /** Lists the priced tickets. The ledger seldom needs them, and they are many. */
  readonly each: () => readonly TicketCharge[]
}

/** A session of the signer, by its user. */
export interface SessionKey {
  readonly appId: AppId
  readonly userId: UserId
  readonly sessionId: string
}

/** Tickets as the escrow matches them with authorisations, in columns: a batch has thousands (docs/escrow.md). */
export interface SettlingTickets {
  readonly sessions: readonly SessionKey[]
  /** By ticket: the position of its session in `sessions`. */
  readonly session: readonly number[]
  readonly sequence: readonly (number | bigint)[]
  /** When they were signed, in microseconds since 1970, rounded down. */
  readonly signedMicros: readonly number[]
  /** What their users are charged; of tickets without a price what they hold until they have one. */
  readonly cost: readonly UsdAttos[]
}

/** What becomes of tickets: they are booked with a price, booked without one, or get it after they were booked. */
const settlingSteps = ['booked', 'unpriced', 'priced'] as const
export type SettlingStep = (typeof settlingSteps)[number]

/** The tickets of these users, by what becomes of them. */
export type ListSettling = (
  users: ReadonlySet<UserId>,
) => ReadonlyMap<SettlingStep, SettlingTickets>

export interface ChargeOptions {
  /** Names the charge in the ledger. */
  readonly id: string
  readonly at: Date
  /** When the rates were read that priced the tickets; null where their prices were fixed elsewhere. */
  readonly ratesKnownAt: Date | null
  readonly settling: ListSettling
  /**
   * Called with the locked accounts, in the periods that they are in, before anything is charged. Throws when the tickets
   * were rated by others.
   */
  readonly confirm: (
    accounts: readonly { readonly userId: UserId; readonly periodStart: Date }[],
  ) => void
}

/** What a settlement changed, as counts and amounts. */
export interface SettlementSums {
  /** Authorisations whose ticket came, by their bounds. */
  readonly settled: Total
  /** Of them those that had been lost, charged or released before, by their bounds. */
  readonly late: Total
  readonly lateAfterRelease: Total
}

export interface Total {
  readonly count: number
  readonly amount: UsdAttos
}

/** The sums of several settlements; null when none settled anything. */
export function sumSettlements(
  settlements: readonly (SettlementSums | null)[],
): SettlementSums | null {
  const present = settlements.filter((settlement) => settlement !== null)
  if (present.length === 0) return null
  const total = (of: keyof SettlementSums): Total => ({
    count: present.reduce((sum, settlement) => sum + settlement[of].count, 0),
    amount: usdAttos(present.reduce((sum, settlement) => sum + settlement[of].amount, 0n)),
  })
  return {
    settled: total('settled'),
    late: total('late'),
    lateAfterRelease: total('lateAfterRelease'),
  }
}

export interface ChargeResult {
  /** Users that have nothing left now. */
  readonly exhausted: readonly UserId[]
  /** Null when none of the users has anything held. */
  readonly settlement: SettlementSums | null
}

/** Charges users inside the caller's transaction, and settles what the tickets' calls held. */
export type Charge = (
  db: Db,
  charges: readonly UserCharge[],
  options: ChargeOptions,
) => Promise<ChargeResult>

/** Groups tickets, which waited for their price, into one charge for each user. */
export function userCharges(
  tickets: readonly TicketCharge[],
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
      from,
      to,
      each: () => each,
    }
  })
}

/** Empty columns, and where a session stands in them. */
export function createSettlingColumns() {
  const positions = new Map<SessionKey, number>()
  const columns = {
    sessions: [] as SessionKey[],
    session: [] as number[],
    sequence: [] as (number | bigint)[],
    signedMicros: [] as number[],
    cost: [] as UsdAttos[],
  }
  /** `session` is the same object for all of its tickets. */
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

/** Puts tickets into columns. */
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

/** Without the steps that have no tickets. */
export const stepsOf = (
  steps: Partial<Record<SettlingStep, { readonly columns: SettlingTickets }>>,
): ReadonlyMap<SettlingStep, SettlingTickets> =>
  new Map(
    settlingSteps.flatMap((step) => {
      const tickets = steps[step]?.columns
      return tickets && tickets.session.length > 0 ? [[step, tickets] as const] : []
    }),
  )
