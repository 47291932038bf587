import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { Period } from '../lib/time.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import { type CreditDebit, type Facts, creditFacts } from './chain.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { TicketCharge, UserCharge } from '../metering/ingest/charges.ts'

/**
 * The account of one user and its arithmetic. Pure: no clock, no database. `store.ts` loads and
 * saves it.
 */

/**
 * Invariants of an account, checked by property tests and by constraints in SQL:
 * 1. balance = sum of the remaining amounts of its credits = sum of its ledger entries.
 * 2. granted + adjusted = balance + (consumed - overage) + expired, to the atto-dollar.
 * 3. Entries are numbered without gaps. Only `remaining` and `expiredAt` of a credit change; a plan
 *    change also moves the end of included usage to an earlier time.
 * 4. Only tickets take money that is held: `lent` or `pending` (docs/escrow.md).
 */
export interface Account {
  readonly appId: AppId
  readonly userId: UserId
  /**
   * Milliseconds by which the app's clock is ahead of real time. All instants of the account use
   * the app's clock, except those of its holds (`lendAfter`, `lateUntil`), which are real time.
   */
  aheadMs: number
  seq: bigint
  balance: UsdAttos
  granted: UsdAttos
  /** The part of `granted` that was not included usage. */
  topup: UsdAttos
  consumed: UsdAttos
  overage: UsdAttos
  expired: UsdAttos
  periodStart: Date
  periodEnd: Date
  /**
   * Tickets signed at or after this instant count in the period. Equals its start; in a user's
   * first period, the epoch.
   */
  periodCountsFrom: Date
  periodConsumed: UsdAttos
  /** Sum of the unused parts of the user's leases. */
  lent: UsdAttos
  /** Sum of the bounds of authorised calls without a booked ticket. */
  pending: UsdAttos
  /** After a recall, core lends nothing before this instant. */
  lendAfter: Date | null
  /** Until this instant, a ticket for a lost or released call may still arrive. */
  lateUntil: Date | null
  /**
   * Nothing is booked before this instant, so that a past balance, once returned, never changes.
   */
  bookedThrough: Date
  /** Hash of the last entry in hexadecimal; null before the first hashed entry. */
  head: string | null
  /** Unexpired credits in burn order. */
  credits: Credit[]
  /** Entries appended since the account was read. */
  readonly entries: Entry[]
  /** Periods entered since the account was read. */
  readonly periods: EnteredPeriod[]
}

/** A period that an account entered, with its plan's terms at that time. */
export interface EnteredPeriod extends Period {
  readonly countsFrom: Date
  readonly enteredAt: Date
  /** Number of the last entry before the period. */
  readonly afterSeq: bigint
  readonly terms: PeriodTerms
}

export interface PeriodTerms {
  readonly planId: string
  readonly planVersion: number
  readonly includedAttos: bigint
  /**
   * Part of `includedAttos` that the period does not give, because free plans already gave it
   * (terms.ts). Null for old periods.
   */
  readonly withheldAttos?: bigint | null
  /** Whether the plan is free. Set only for periods entered since the account was read. */
  readonly isFree?: boolean
}

/** Converts a real instant to the clock of the account's app. */
export const toAppTime = ({ aheadMs }: Pick<Account, 'aheadMs'>, at: Date): Date =>
  aheadMs === 0 ? at : new Date(at.getTime() + aheadMs)

export const creditSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const
export type CreditSource = (typeof creditSources)[number]

/** Money given to a user; a row of the table `grants`. */
export interface Credit {
  readonly id: string
  /**
   * `included`: usage that the plan includes, for one period. `grant`: given through the API.
   * `adjustment`: given by an operator's correction and not counted as granted.
   */
  readonly kind: 'included' | 'grant' | 'adjustment'
  readonly source: CreditSource
  readonly featureKey: string | null
  readonly amount: UsdAttos
  remaining: UsdAttos
  /** Lower burns first. */
  readonly priority: number
  readonly effectiveAt: Date
  /** For included usage, the end of its period; a plan change may move it to an earlier time. */
  expiresAt: Date | null
  expiredAt: Date | null
  readonly createdAt: Date
  /** Difference from the stored row, which the next save writes. */
  state: 'stored' | 'changed' | 'new'
}

export interface Entry {
  readonly seq: bigint
  readonly kind: 'grant' | 'charge' | 'expire' | 'adjustment' | 'unpriced'
  /** Number of tickets that a charge covers. */
  readonly tickets?: number
  /** Signed change of the balance. */
  readonly amount: UsdAttos
  /** Cost that no credit covered. Negative if an adjustment takes back earlier overage. */
  readonly overage: UsdAttos
  readonly balanceAfter: UsdAttos
  /** Id of the credit or the adjustment, or the charge id stored with the tickets. */
  readonly causeId: string
  /** Booking time, never before the previous entry's. */
  readonly createdAt: Date
  /**
   * Changes to the remaining amounts of credits, in burn order. Empty if the credit is the cause.
   */
  readonly draws: readonly CreditDebit[]
  /** The part that counts as consumption of the running period. */
  readonly periodAmount: UsdAttos
  /** Change in the number of tickets that wait for a price. */
  readonly unpricedChange: number
  /**
   * When the rates that priced the tickets were read; null if their prices were fixed elsewhere.
   */
  readonly ratesKnownAt: Date | null
  /** Hash of the tickets in hexadecimal (core/metering/batch/tickets-hash.ts). */
  readonly ticketsHash: string | null
  /**
   * Facts of the cause that the chain includes. An adjustment's are set when its row is written.
   */
  facts: Facts
}

// Events arrive late. For 15 minutes after a credit ends, its remaining amount stays reserved for
// tickets signed before its end, so that a late ticket and a balance read may come in either order.
// A ticket that arrives even later finds the amount only if nothing else has locked the account
// since: `charge` expires credits after it burns, every other change before. Such a ticket may
// become overage although the credit would have covered it in time.
export const lateMs = 15 * 60_000

/**
 * Sorts included usage first, then by priority, expiry (credits without expiry last), creation and
 * id (decision 33).
 */
export function burnOrder(a: Credit, b: Credit): number {
  const isIncluded = a.kind === 'included'
  if (isIncluded !== (b.kind === 'included')) return isIncluded ? -1 : 1
  return (
    a.priority - b.priority ||
    (a.expiresAt?.getTime() ?? Infinity) - (b.expiresAt?.getTime() ?? Infinity) ||
    0 ||
    a.createdAt.getTime() - b.createdAt.getTime() ||
    (a.id < b.id ? -1 : 1)
  )
}

type Spend = Pick<TicketCharge, 'signedAt' | 'pipeline' | 'modelId' | 'cost'>

/**
 * Whether the credit may pay for the ticket. Expiry and period depend on when the ticket was
 * signed.
 */
function covers(credit: Credit, ticket: Spend): boolean {
  if (credit.remaining === 0n) return false
  const signedAt = ticket.signedAt.getTime()
  if (credit.expiresAt !== null && signedAt >= credit.expiresAt.getTime()) return false
  if (credit.kind === 'included') return signedAt >= credit.effectiveAt.getTime()
  return coversFeature(credit.featureKey, ticket)
}

/** The feature key for all spend on the network (docs/money.md). */
const everything = 'network_spend'

const paysForAnything = (featureKey: string | null): boolean =>
  featureKey === null || featureKey === everything

function coversFeature(featureKey: string | null, { pipeline, modelId }: Spend): boolean {
  return (
    paysForAnything(featureKey) ||
    featureKey === pipeline ||
    featureKey === `${pipeline}:${modelId}`
  )
}

type NewEntry = Pick<Entry, 'kind' | 'amount' | 'overage' | 'causeId' | 'createdAt'> &
  Partial<Omit<Entry, 'seq' | 'balanceAfter'>>

const silent = {
  draws: [],
  periodAmount: usdAttos(0n),
  unpricedChange: 0,
  ratesKnownAt: null,
  ticketsHash: null,
  facts: [],
}

/**
 * Returns the booking time for an event at `at`: never before the last entry, nor before a past
 * balance that was already returned.
 */
const bookingTime = ({ bookedThrough }: Account, at: Date): Date =>
  at < bookedThrough ? bookedThrough : at

/** Appends a ledger entry and changes the balance by its amount. */
function append(account: Account, entry: NewEntry): void {
  const createdAt = bookingTime(account, entry.createdAt)
  account.seq += 1n
  account.balance = usdAttos(account.balance + entry.amount)
  account.bookedThrough = createdAt
  const { seq, balance: balanceAfter } = account
  account.entries.push({ ...silent, ...entry, createdAt, seq, balanceAfter })
}

/** Adds a credit and its ledger entry. Returns the credit as booked. */
export function addCredit(account: Account, request: Credit, at: Date): Credit {
  const credit = { ...request, createdAt: bookingTime(account, at) }
  account.credits.push(credit)
  account.credits.sort(burnOrder)
  account.granted = usdAttos(account.granted + credit.amount)
  if (credit.kind === 'grant') account.topup = usdAttos(account.topup + credit.amount)
  append(account, {
    kind: 'grant',
    amount: credit.amount,
    overage: usdAttos(0n),
    causeId: credit.id,
    createdAt: at,
    facts: creditFacts(credit),
  })
  return credit
}

/** Remaining amount of each credit, to compute later what was drawn. */
const snapshot = (credits: readonly Credit[]): readonly UsdAttos[] =>
  credits.map(({ remaining }) => remaining)

const drawsSince = (credits: readonly Credit[], before: readonly UsdAttos[]): CreditDebit[] =>
  credits.flatMap(({ id, remaining }, i) => {
    const amount = usdAttos(remaining - (before[i] ?? 0n))
    return amount === 0n ? [] : [{ creditId: id, amount }]
  })

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

/** A charge with its booking data. */
export interface BookedCharge extends UserCharge {
  readonly id: string
  readonly at: Date
  readonly ratesKnownAt: Date | null
}

/** Burns credits for a user's tickets in signing order and appends one entry for all tickets. */
export function burn(account: Account, charge: BookedCharge): void {
  const { tickets, cost, from: signedAt } = charge
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
  })
}

export const bySigning = (a: TicketCharge, b: TicketCharge): number =>
  a.signedAt.getTime() - b.signedAt.getTime() || (a.eventId < b.eventId ? -1 : 1)

/**
 * True if no credit pays for only some of the tickets. One draw of the sum then gives the same
 * result as one draw per ticket (a property test compares both), and the tickets need not be
 * listed: bench row "ingest with 90 % on one user".
 */
function burnsAsOne({ credits, periodCountsFrom }: Account, { from, to }: UserCharge): boolean {
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
 * Takes a ticket's cost from the credits that may pay for it, in burn order. Returns the amount
 * paid.
 */
function draw(credits: readonly Credit[], ticket: Spend): bigint {
  let open: bigint = ticket.cost
  for (const credit of credits) {
    if (open === 0n) break
    if (covers(credit, ticket)) open -= take(credit, open)
  }
  return ticket.cost - open
}

/** Takes up to `amount` from a credit. Returns the amount taken. */
function take(credit: Credit, amount: bigint): bigint {
  const part = credit.remaining < amount ? credit.remaining : amount
  credit.remaining = usdAttos(credit.remaining - part)
  if (credit.state === 'stored') credit.state = 'changed'
  return part
}

/**
 * Expires each credit that ended by `until`, with an entry at `at` if anything remained. Keeps a
 * credit if the holds could not be paid without it, because tickets for calls made before its end
 * may still come.
 */
export function expire(account: Account, { until, at }: { until: Date; at: Date }): void {
  for (const credit of account.credits) {
    if (credit.expiresAt === null || credit.expiresAt > until || credit.expiredAt !== null) continue
    if (isHeld(account, credit)) continue
    credit.expiredAt = bookingTime(account, at)
    if (credit.state === 'stored') credit.state = 'changed'
    if (credit.remaining > 0n) {
      account.expired = usdAttos(account.expired + credit.remaining)
      append(account, {
        kind: 'expire',
        amount: usdAttos(-credit.remaining),
        overage: usdAttos(0n),
        causeId: credit.id,
        createdAt: at,
      })
      // The entry records the remaining amount; the credit holds only what can still burn.
      credit.remaining = usdAttos(0n)
    }
  }
}

function isHeld(account: Account, credit: Credit): boolean {
  const held = account.lent + account.pending
  if (held === 0n || credit.remaining === 0n || !paysForAnything(credit.featureKey)) return false
  const others = account.credits.filter(
    (other) =>
      other !== credit &&
      paysForAnything(other.featureKey) &&
      !beginsAfter(other, credit.expiresAt),
  )
  return others.reduce((sum, { remaining }) => sum + remaining, 0n) < held
}

/** True for the included usage of a later period, which cannot pay for calls made before it. */
const beginsAfter = ({ kind, effectiveAt }: Credit, end: Date | null): boolean =>
  kind === 'included' && end !== null && effectiveAt >= end

/**
 * Ends the included usage of the running period early. It still pays for tickets signed before
 * `at`.
 */
export function endIncluded(account: Account, at: Date): void {
  for (const credit of account.credits) {
    if (credit.kind !== 'included' || credit.expiresAt === null || credit.expiresAt <= at) continue
    credit.expiresAt = at
    if (credit.state === 'stored') credit.state = 'changed'
  }
  account.credits.sort(burnOrder)
}

/** Returns the earliest instant, not before `at`, at which the next period may begin early. */
export const nextStart = ({ periodStart, bookedThrough }: Account, at: Date): Date =>
  new Date(Math.max(at.getTime(), periodStart.getTime() + 1, bookedThrough.getTime()))

export interface PeriodEntry extends Pick<EnteredPeriod, 'start' | 'end' | 'enteredAt' | 'terms'> {
  /** Default is `start`. Earlier only in a user's first period. */
  readonly countsFrom?: Date
}

/** Enters a period and starts its consumption at zero. */
export function enterPeriod(
  account: Account,
  { start, end, countsFrom = start, enteredAt, terms }: PeriodEntry,
): void {
  const period = { start, end }
  account.periods.push({
    ...period,
    countsFrom,
    terms,
    enteredAt: bookingTime(account, enteredAt),
    afterSeq: account.seq,
  })
  account.periodStart = period.start
  account.periodEnd = period.end
  account.periodCountsFrom = countsFrom
  account.periodConsumed = usdAttos(0n)
}

/** Returns the sum of all credits in effect at `at`. */
export function remainingAt(credits: readonly Credit[], at: Date): UsdAttos {
  return usdAttos(activeAt(credits, at).reduce((sum: bigint, { remaining }) => sum + remaining, 0n))
}

/**
 * Returns what may back a payment at `at`: the credits in effect that pay for any feature. A
 * payment's feature is known only when its ticket arrives, so a credit bound to one feature backs
 * no payment.
 */
export function spendableAt(credits: readonly Credit[], at: Date): UsdAttos {
  return remainingAt(
    credits.filter(({ featureKey }) => paysForAnything(featureKey)),
    at,
  )
}

/**
 * Returns the remaining money that is bound to each feature at `at`, in atto-dollars, sorted by
 * feature key.
 */
export function boundAt(
  credits: readonly Credit[],
  at: Date,
): readonly { readonly featureKey: string; readonly remaining: UsdAttos }[] {
  const bound = activeAt(credits, at).filter(({ featureKey }) => !paysForAnything(featureKey))
  const byKey = Map.groupBy(bound, ({ featureKey }) => featureKey ?? '')
  return [...byKey]
    .map(([featureKey, same]) => ({ featureKey, remaining: remainingAt(same, at) }))
    .toSorted((a, b) => (a.featureKey < b.featureKey ? -1 : 1))
}

// How far a signer's clock, which dates the tickets, may be ahead of core's.
const clockMarginMs = 5_000

/**
 * Returns the unheld money at `at`, in atto-dollars, from credits that pay for anything and outlast
 * `until`, the latest signing time of a call, by the clock margin. Negative if holds rely on
 * credits that end earlier.
 */
export function uncommittedAt(
  account: Account,
  { at, until }: { at: Date; until: Date },
): UsdAttos {
  const last = new Date(until.getTime() + clockMarginMs)
  const lasting = account.credits.filter(({ expiresAt }) => expiresAt === null || expiresAt > last)
  return usdAttos(spendableAt(lasting, at) - account.lent - account.pending)
}

/**
 * What is free at `at` for a call signed by `until` (docs/escrow.md): `uncommittedAt`, never
 * negative.
 */
export const freeAt = (account: Account, times: { at: Date; until: Date }): UsdAttos =>
  neverNegative(uncommittedAt(account, times))

/**
 * Returns what a user may still spend at `at`: credits that pay for anything, minus holds. Never
 * negative.
 */
export const unheldAt = (account: Account, at: Date): UsdAttos =>
  neverNegative(spendableAt(account.credits, at) - account.lent - account.pending)

const neverNegative = (amount: bigint): UsdAttos => usdAttos(amount > 0n ? amount : 0n)

/** Returns the credits in effect at `at`. */
export const activeAt = (credits: readonly Credit[], at: Date): Credit[] =>
  credits.filter(
    (credit) =>
      credit.expiredAt === null &&
      credit.effectiveAt <= at &&
      (credit.expiresAt === null || credit.expiresAt > at),
  )

/** A correction of an account: a positive amount gives, a negative one takes. */
export interface Adjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly at: Date
  /** Feature of the corrected ticket; null if no ticket is named. */
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
}

const adjustmentPriority = 10

/**
 * Appends a compensating entry. A positive amount becomes a credit that pays for anything and never
 * expires. A negative one is drawn, in burn order, from credits in effect that pay for anything or
 * for the feature of the named ticket. Held money is not drawn. Returns the uncovered part, which
 * the entry records as overage.
 */
export function adjust(account: Account, adjustment: Adjustment): UsdAttos {
  const { id, amount, at } = adjustment
  if (amount > 0n) {
    giveBack(account, { id, at, parts: [{ creditId: '', featureKey: null, amount }] })
    return usdAttos(0n)
  }
  const before = snapshot(account.credits)
  const drawn = takeFrom(account, adjustment)
  const overage = usdAttos(-amount - drawn)
  account.overage = usdAttos(account.overage + overage)
  append(account, {
    kind: 'adjustment',
    amount: usdAttos(-drawn),
    overage,
    causeId: id,
    createdAt: at,
    draws: drawsSince(account.credits, before),
  })
  return overage
}

/**
 * A part of a refund. Returned to the credit that paid it, or as a new credit if that one has
 * ended.
 */
export interface Return extends CreditDebit {
  readonly featureKey: string | null
}

export interface GiveBack {
  readonly id: string
  readonly at: Date
  readonly parts: readonly Return[]
  /** Overage of an earlier debit to cancel, which was never paid. Default is 0. */
  readonly overage?: UsdAttos
}

/**
 * Gives money back in one entry. For a credit that has ended, adds a new one for the same feature
 * that never expires, so that the money can be spent.
 */
export function giveBack(
  account: Account,
  { id, at, parts, overage = usdAttos(0n) }: GiveBack,
): void {
  const open = new Map(
    account.credits
      .filter(({ expiresAt, expiredAt }) => expiredAt === null && !(expiresAt && expiresAt <= at))
      .map((credit) => [credit.id, credit]),
  )
  const draws: CreditDebit[] = []
  const ofFeature = new Map<string | null, bigint>()
  for (const { creditId, featureKey, amount } of parts) {
    const credit = open.get(creditId)
    if (credit) {
      credit.remaining = usdAttos(credit.remaining + amount)
      if (credit.state === 'stored') credit.state = 'changed'
      draws.push({ creditId, amount })
    } else ofFeature.set(featureKey, (ofFeature.get(featureKey) ?? 0n) + amount)
  }
  for (const [featureKey, amount] of ofFeature) {
    const creditId = draws.some((draw) => draw.creditId === id) ? uuidV7(at.getTime()) : id
    account.credits.push(
      returnedCredit(account, { id: creditId, featureKey, at, amount: usdAttos(amount) }),
    )
    draws.push({ creditId, amount: usdAttos(amount) })
  }
  account.credits.sort(burnOrder)
  account.overage = usdAttos(account.overage - overage)
  append(account, {
    kind: 'adjustment',
    amount: usdAttos(draws.reduce((sum, { amount }) => sum + amount, 0n)),
    overage: usdAttos(-overage),
    causeId: id,
    createdAt: at,
    draws,
  })
}

const returnedCredit = (
  account: Account,
  { at, ...of }: Pick<Credit, 'id' | 'featureKey' | 'amount'> & { readonly at: Date },
): Credit => ({
  ...of,
  kind: 'adjustment',
  source: 'manual',
  remaining: of.amount,
  priority: adjustmentPriority,
  effectiveAt: at,
  expiresAt: null,
  expiredAt: null,
  createdAt: bookingTime(account, at),
  state: 'new',
})

/**
 * Returns what each credit paid for one ticket of a charge, in burn order. `remaining` of each of
 * `credits` must be what the charge drew from it: drawing the tickets again in the same order then
 * repeats the original draws.
 */
export function paidFor(
  eventId: string,
  { credits, tickets }: { credits: readonly Credit[]; tickets: readonly TicketCharge[] },
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

function takeFrom(account: Account, { amount, at, feature }: Adjustment): bigint {
  const { pipeline, modelId } = feature ?? { pipeline: '', modelId: '' }
  const spend = { signedAt: at, pipeline, modelId, cost: usdAttos(-amount) }
  let open: bigint = -amount
  let unheld: bigint = unheldAt(account, at)
  for (const credit of activeAt(account.credits, at)) {
    if (!covers(credit, spend)) continue
    const isGeneral = paysForAnything(credit.featureKey)
    const part = take(credit, isGeneral && unheld < open ? unheld : open)
    if (isGeneral) unheld -= part
    open -= part
  }
  return -amount - open
}
