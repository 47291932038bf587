import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { TicketCharge, UserCharge } from '../../metering/ingest/charges.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { type Account, append, bookingTime } from './account.ts'
import { type CreditDebit, type OwnerShare, chargeFacts } from './chain.ts'
import { type Credit, burnOrder, draw, drawsSince, paysForAnything, snapshot } from './credits.ts'

/** Charges of tickets: the arithmetic of burning credits. */

/** Appends an entry for tickets that arrived without a price. */
export function recordUnpriced(
  account: Account,
  { id, at, unpriced }: { readonly id: string; readonly at: Date; readonly unpriced: number },
): void {
  append(account, {
    kind: 'unpriced',
    amount: usdAttos(0n),
    overage: usdAttos(0n),
    causeId: id,
    createdAt: at,
    unpricedChange: unpriced,
  })
}

export type BurntTicket = Omit<TicketCharge, 'appId' | 'userId'>

/** A charge with its booking data. */
export interface BookedCharge extends Omit<UserCharge, 'each' | 'ownerCost'> {
  readonly each: () => readonly BurntTicket[]
  readonly id: string
  readonly at: Date
  readonly ratesKnownAt: Date | null
  /** Default is null, as in `Entry`. */
  readonly owner?: OwnerShare | null
  readonly chargedApp?: AppId | null
}

/** Burns credits for a user's tickets in signing order and appends one entry for all tickets. */
export function burn(account: Account, charge: BookedCharge): void {
  const { tickets, cost, from: signedAt, owner = null, chargedApp = null } = charge
  const spends = burnsAsOne(account, charge)
    ? [{ signedAt, pipeline: '', modelId: '', cost }]
    : charge.each().toSorted(bySigning)
  const periodFrom = account.periodCountsFrom.getTime()
  const before = snapshot(account.credits)
  let [drawn, ofPeriod] = [0n, 0n]
  for (const spend of spends) {
    drawn += draw(account.credits, spend)
    if (spend.signedAt.getTime() >= periodFrom) ofPeriod += spend.cost
  }
  account.periodConsumed = usdAttos(account.periodConsumed + ofPeriod)
  const overage = usdAttos(cost - drawn)
  account.consumed = usdAttos(account.consumed + cost)
  account.overage = usdAttos(account.overage + overage)
  append(account, {
    kind: 'charge',
    amount: usdAttos(-drawn),
    overage,
    causeId: charge.id,
    createdAt: charge.at,
    tickets,
    draws: drawsSince(account.credits, before),
    periodAmount: usdAttos(ofPeriod),
    unpricedChange: charge.unpriced - charge.waited,
    ratesKnownAt: charge.ratesKnownAt,
    ticketsHash: charge.ticketsHash,
    owner,
    chargedApp,
    facts: chargeFacts({ owner, chargedApp }),
  })
}

/** What the owner of an app pays for tickets of the app. */
export interface OwnerCharge {
  /** The id of the users' charges. */
  readonly id: string
  readonly chargedApp: AppId
  readonly amount: UsdAttos
  readonly tickets: number
  readonly ratesKnownAt: Date | null
}

/**
 * Burns an owner's credits at the booking time, whenever the tickets were signed: they belong to
 * many users and perhaps to the clock of a test app. Only credits that pay for anything are used.
 */
export function burnForOwner(
  account: Account,
  { amount: cost, ...charge }: OwnerCharge,
  at: Date,
): void {
  const { appId, userId } = account
  const signedAt = bookingTime(account, at)
  const spend = { eventId: '', pipeline: '', modelId: '', signedAt, cost }
  const counts = { unpriced: 0, waited: 0, ticketsHash: null }
  const times = { at, from: signedAt, to: signedAt }
  burn(account, { ...charge, ...counts, ...times, appId, userId, cost, each: () => [spend] })
}

export const bySigning = (a: BurntTicket, b: BurntTicket): number =>
  a.signedAt.getTime() - b.signedAt.getTime() || (a.eventId < b.eventId ? -1 : 1)

/**
 * Returns the charge of one user's tickets, booked when the last of them was signed. For replays and
 * simulations, which store nothing.
 */
export function createCharge(
  { appId, userId }: UserKey,
  tickets: readonly BurntTicket[],
  id = '',
): BookedCharge {
  const times = tickets.map(({ signedAt }) => signedAt.getTime())
  const to = new Date(times.reduce((a, b) => Math.max(a, b)))
  return {
    appId,
    userId,
    id,
    at: to,
    tickets: tickets.length,
    unpriced: 0,
    waited: 0,
    cost: usdAttos(tickets.reduce((sum, { cost }) => sum + cost, 0n)),
    ticketsHash: null,
    ratesKnownAt: null,
    from: new Date(times.reduce((a, b) => Math.min(a, b))),
    to,
    each: () => tickets,
  }
}

/**
 * True if no credit pays for only some of the tickets. One draw of the sum then gives the same
 * result as one draw per ticket (a property test compares both), and the tickets need not be
 * listed: bench row "ingest with 90 % on one user".
 */
function burnsAsOne({ credits, periodCountsFrom }: Account, { from, to }: BookedCharge): boolean {
  const splits = (boundary: Date): boolean => from < boundary && boundary <= to
  return (
    !splits(periodCountsFrom) &&
    credits.every(
      (credit) =>
        credit.remaining === 0n ||
        (paysForAnything(credit.featureKey) &&
          !splits(credit.effectiveAt) &&
          !(credit.expiresAt && splits(credit.expiresAt))),
    )
  )
}

/**
 * Returns what each credit paid for one ticket of a charge, in burn order. `remaining` of each of
 * `credits` must be what the charge drew from it: drawing the tickets again in the same order then
 * repeats the original draws.
 */
export function paidFor(
  eventId: string,
  { credits, tickets }: { credits: readonly Credit[]; tickets: readonly BurntTicket[] },
): CreditDebit[] {
  const sources = credits.map((credit) => ({ ...credit })).sort(burnOrder)
  for (const ticket of tickets.toSorted(bySigning)) {
    const before = snapshot(sources)
    draw(sources, ticket)
    if (ticket.eventId === eventId)
      return drawsSince(sources, before).map(({ creditId, amount }) => ({
        creditId,
        amount: usdAttos(-amount),
      }))
  }
  return []
}
