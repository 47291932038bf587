import type { CreditDebit } from '../../../../core/balances/accounts/chain.ts'
import { type UsdAttos, usdAttos } from '../../../../core/lib/money.ts'
import { clockRange } from '../../../../core/balances/escrow/due.ts'
import { approximateMicros } from '../../../../core/balances/escrow/matching.ts'
import type {
  DueSearch,
  MatchSum,
  PriorCall,
  StoredAuthorisation,
} from '../../../../core/balances/escrow/port.ts'
import { removeNumbers } from '../../../../core/balances/escrow/reports/number-ranges.ts'
import { openCalls } from '../../../../core/balances/escrow/reports/runs.ts'
import type { SessionKey, SettlingTickets } from '../../../../core/metering/ingest/charges.ts'

/** Rows of the escrow's tables in memory, and their rules. */

export interface SidecarRow {
  readonly instance: string
  readonly seenAt: Date
  readonly stopped: boolean
  readonly reportedThrough: bigint
  readonly lastAuthorisedAt: Date | null
  readonly completeAt: Date
  readonly sharedThrough: Date
}

export interface EarlyTicket extends TicketRow {
  readonly bookedAt: Date
}

export interface TicketRow extends SessionKey {
  readonly sequence: bigint
  readonly signedMicros: bigint
  readonly cost: UsdAttos
}

/** A session without its totals, which no rule reads. */
export interface SessionRow {
  readonly start: PriorCall
  readonly top: PriorCall
  readonly instance: string
  readonly sharedAt: Date | null
}

export function counts(clock: Date, due: DueSearch): boolean {
  const { from, to } = clockRange(due)
  return clock >= from && clock <= to
}

export const latest = (a: Date | null, b: Date | null): Date | null =>
  a && b ? (a > b ? a : b) : (a ?? b)

export const after = (instant: Date, seconds: number): Date =>
  new Date(instant.getTime() + seconds * 1_000)

export const compare = (a: bigint | string, b: bigint | string): number =>
  a < b ? -1 : a > b ? 1 : 0

export const isEarlier = (a: PriorCall, b: PriorCall): boolean =>
  a.seconds < b.seconds || (a.seconds === b.seconds && a.nanos < b.nanos)
export const comesFirst = (a: PriorCall, b: PriorCall): boolean =>
  a.sequence < b.sequence || (a.sequence === b.sequence && isEarlier(a, b))
export const comesLast = (a: PriorCall, b: PriorCall): boolean =>
  a.sequence > b.sequence || (a.sequence === b.sequence && isEarlier(a, b))

export const callsBefore = (rows: readonly StoredAuthorisation[], index: number): number =>
  rows.slice(0, index).reduce((sum, row) => sum + openCalls(row).length, 0)

export type StoredRun = StoredAuthorisation & Required<Pick<StoredAuthorisation, 'run'>>

/** Returns a run without one of its numbers; null if that was the last. */
export function settleNumber(row: StoredRun, number: bigint): StoredRun | null {
  const settled = { ...row, run: { ...row.run, open: removeNumbers(row.run.open, [number]) } }
  const calls = openCalls(settled)
  if (calls.length === 0) return null
  const bound = usdAttos(calls.reduce((sum: bigint, call) => sum + call.bound, 0n))
  return { ...settled, bound, isProven: row.isProven || number === row.sequence }
}

export const isSameMoment = ({ signedMicros }: StoredAuthorisation, micros: bigint): boolean =>
  signedMicros === micros
export const distance = ({ signedMicros }: StoredAuthorisation, micros: bigint): bigint =>
  signedMicros > micros ? signedMicros - micros : micros - signedMicros
export const isNear = (row: StoredAuthorisation, micros: bigint): boolean =>
  row.isApproximate && distance(row, micros) <= approximateMicros

export function ticketAt(tickets: SettlingTickets, position: number): TicketRow {
  const session = tickets.sessions[tickets.session[position] ?? -1]
  const cost = tickets.cost[position]
  if (!session || cost === undefined) throw new Error(`no ticket at ${position}`)
  return {
    ...session,
    sequence: BigInt(tickets.sequence[position] ?? 0),
    signedMicros: BigInt(tickets.signedMicros[position] ?? 0),
    cost,
  }
}

// Returns a sum for each ticket, which is a valid grouping, too.
export function toSum(
  tickets: SettlingTickets,
  position: number,
  row: StoredAuthorisation & { readonly drawn: readonly CreditDebit[] | null },
): MatchSum {
  const { appId, userId, keyId, sessionId, sessionType, sidecarId, state, bound, authorisedAt } =
    row
  const { cost } = ticketAt(tickets, position)
  return {
    drawn: row.drawn ?? [],
    undrawn: usdAttos(state === 'charged' && row.drawn === null ? bound : 0n),
    appId,
    userId,
    keyId,
    sessionId,
    sessionType,
    sidecarId,
    state,
    count: 1,
    bound,
    cost,
    latestAt: authorisedAt,
    bookedThrough: authorisedAt,
  }
}
