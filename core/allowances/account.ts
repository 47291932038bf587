import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { Period } from '../lib/time.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import { type Draw, type Facts, creditFacts } from './chain.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { TicketCharge, UserCharge } from '../metering/ingest/charges.ts'

/** One account and its arithmetic, pure: no clock, no database. `store.ts` reads and writes what it changes. */

/**
 * Invariants of an account, checked by property tests and by constraints in SQL:
 * 1. balance = sum of what remains of its credits = fold of its ledger entries.
 * 2. granted + adjusted = balance + (consumed - overage) + expired, to the atto-dollar.
 * 3. Entries are numbered without gaps. Of a credit only what remains ever changes, and of included usage its end: to an
 *    earlier one, when the plan is changed.
 * 4. Only tickets take money that is held: `lent` or `pending` (docs/escrow.md).
 */
export interface Account {
  readonly appId: AppId
  readonly userId: UserId
  /**
   * By how many milliseconds the clock of its app is ahead. All instants of the account are by that clock, but for those of
   * its holds, which are real: `lendAfter` and `lateUntil`.
   */
  aheadMs: number
  seq: bigint
  balance: UsdAttos
  granted: UsdAttos
  /** The part of granted that was not included usage. */
  topup: UsdAttos
  consumed: UsdAttos
  overage: UsdAttos
  expired: UsdAttos
  periodStart: Date
  periodEnd: Date
  /** Tickets signed from here on belong to the period: its start, or any time in a user's first. */
  periodCountsFrom: Date
  periodConsumed: UsdAttos
  /** What remains of the leases of sidecars. */
  lent: UsdAttos
  /** Bounds of authorised calls whose tickets are not booked yet. */
  pending: UsdAttos
  /** After a recall: nothing is lent before this instant. */
  lendAfter: Date | null
  /** Until then a ticket may come of a call that was lost or released. */
  lateUntil: Date | null
  /** Nothing is booked before this instant: an answered balance of the past stays as it was. */
  bookedThrough: Date
  /** The hash of the last entry in hexadecimal; null before the first that has one. */
  head: string | null
  /** Unexpired credits in burn order. */
  credits: Credit[]
  /** Entries appended since the account was read. */
  readonly entries: Entry[]
  /** Periods entered since the account was read. */
  readonly periods: EnteredPeriod[]
}

/** A period that an account entered, with the terms of its plan then. */
export interface EnteredPeriod extends Period {
  readonly countsFrom: Date
  readonly enteredAt: Date
  /** The last entry of before. */
  readonly afterSeq: bigint
  readonly terms: PeriodTerms
}

export interface PeriodTerms {
  readonly planId: string
  readonly planVersion: number
  readonly includedAttos: bigint
  /** The part of it that the period does not give, because free plans have given it (terms.ts); null for old periods. */
  readonly withheldAttos?: bigint | null
  /** Of a free plan; known of periods that were entered since the account was read. */
  readonly isFree?: boolean
}

/** What the clock of an account's app shows at a real instant. */
export const timeOf = ({ aheadMs }: Pick<Account, 'aheadMs'>, at: Date): Date =>
  aheadMs === 0 ? at : new Date(at.getTime() + aheadMs)

export const creditSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const
export type CreditSource = (typeof creditSources)[number]

/** Money given to a user. Its row stands in the table `grants`. */
export interface Credit {
  readonly id: string
  /**
   * `included`: usage that the plan includes, for one period. `grant`: given through the API. `adjustment`: given by
   * an operator's correction; the figures of granted money leave it out.
   */
  readonly kind: 'included' | 'grant' | 'adjustment'
  readonly source: CreditSource
  readonly featureKey: string | null
  readonly amount: UsdAttos
  remaining: UsdAttos
  /** Lower burns first. */
  readonly priority: number
  readonly effectiveAt: Date
  /** Of included usage the end of its period, which comes early when the plan is changed. */
  expiresAt: Date | null
  expiredAt: Date | null
  readonly createdAt: Date
  /** How it differs from its row; the next save writes the difference. */
  state: 'stored' | 'changed' | 'new'
}

export interface Entry {
  readonly seq: bigint
  readonly kind: 'grant' | 'charge' | 'expire' | 'adjustment' | 'unpriced'
  /** Tickets that a charge covers. */
  readonly tickets?: number
  /** Signed change of the balance. */
  readonly amount: UsdAttos
  /** What nothing was left for; below zero where an adjustment takes back an earlier one's. */
  readonly overage: UsdAttos
  readonly balanceAfter: UsdAttos
  /** Id of the credit, of the adjustment, or of the charge that the tickets name. */
  readonly causeId: string
  /** When it was booked: never before the entry in front of it. */
  readonly createdAt: Date
  /** By how much it changed what remains of credits, in burn order; empty where the credit is the cause. */
  readonly draws: readonly Draw[]
  /** What counts as consumption of the running period. */
  readonly periodAmount: UsdAttos
  /** By how much the number of tickets that wait for a price changed. */
  readonly unpricedChange: number
  /** When the rates were read that priced its tickets; null where their prices were fixed elsewhere. */
  readonly ratesKnownAt: Date | null
  /** Of its tickets, in hexadecimal (core/metering/batch/tickets-hash.ts). */
  readonly ticketsHash: string | null
  /** What is chained of its cause; an adjustment's are known when its row is written. */
  facts: Facts
}

// Events arrive late. For 15 minutes after a credit ends, what is left of it stays reserved for tickets signed before its
// end; a late ticket and a balance read may then come in either order. A ticket that arrives later still finds the rest
// only if nothing else has locked the account since: `charge` expires credits after it burns, every other change before,
// so such a ticket may become overage although it would have been covered in time.
export const lateMs = 15 * 60_000

/** Included usage first, then by priority, expiry (no expiry last), creation and id (decision 33). */
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

/** May this credit pay for that ticket? The ticket's own time decides about expiry and period. */
function covers(credit: Credit, ticket: Spend): boolean {
  if (credit.remaining === 0n) return false
  const signedAt = ticket.signedAt.getTime()
  if (credit.expiresAt !== null && signedAt >= credit.expiresAt.getTime()) return false
  if (credit.kind === 'included') return signedAt >= credit.effectiveAt.getTime()
  return coversFeature(credit.featureKey, ticket)
}

/** The feature that stands for all spend on the network (docs/money.md). */
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

/** When something may be booked that happened at `at`: not before what is booked, or was answered, already. */
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

/** Adds a credit and its ledger entry. Returns the credit as it was booked. */
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

/** What is left of each credit, to tell later what was drawn. */
const snapshot = (credits: readonly Credit[]): readonly UsdAttos[] =>
  credits.map(({ remaining }) => remaining)

const drawsSince = (credits: readonly Credit[], before: readonly UsdAttos[]): Draw[] =>
  credits.flatMap(({ id, remaining }, i) => {
    const amount = usdAttos(remaining - (before[i] ?? 0n))
    return amount === 0n ? [] : [{ creditId: id, amount }]
  })

/** Appends that tickets came which wait for a price. */
export function noteUnpriced(
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

/** A charge as it is booked. */
export interface BookedCharge extends UserCharge {
  readonly id: string
  readonly at: Date
  readonly ratesKnownAt: Date | null
}

/** Burns credits for a user's tickets, in the order of signing, and appends one entry for all of them. */
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
 * True when each credit pays for all of the tickets or for none of them. One draw of the sum then has the same result as
 * a draw for each ticket, which is what the property test compares it with, and the tickets need not be listed: bench row
 * "ingest with 90 % on one user".
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

/** Takes a ticket's cost from credits in burn order, as far as they may pay for it. Returns what they paid. */
function draw(credits: readonly Credit[], ticket: Spend): bigint {
  let open: bigint = ticket.cost
  for (const credit of credits) {
    if (open === 0n) break
    if (covers(credit, ticket)) open -= take(credit, open)
  }
  return ticket.cost - open
}

/** Takes up to `amount` from a credit. Returns what it took. */
function take(credit: Credit, amount: bigint): bigint {
  const part = credit.remaining < amount ? credit.remaining : amount
  credit.remaining = usdAttos(credit.remaining - part)
  if (credit.state === 'stored') credit.state = 'changed'
  return part
}

/**
 * Expires every credit that had ended by `until`, with an entry at `at` for what remained of it. A credit stays while what
 * is held could not be paid without it: the tickets of calls from before its end may still come.
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
      // The entry records what remained; the credit holds only what may still burn.
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

/** True for the included usage of a later period, which pays for no call from before. */
const beginsAfter = ({ kind, effectiveAt }: Credit, end: Date | null): boolean =>
  kind === 'included' && end !== null && effectiveAt >= end

/** Ends the included usage of the running period before its time. It goes on to pay for what was signed before `at`. */
export function endIncluded(account: Account, at: Date): void {
  for (const credit of account.credits) {
    if (credit.kind !== 'included' || credit.expiresAt === null || credit.expiresAt <= at) continue
    credit.expiresAt = at
    if (credit.state === 'stored') credit.state = 'changed'
  }
  account.credits.sort(burnOrder)
}

/** The first instant at or after `at` at which a period may begin that follows the running one early. */
export const nextStart = ({ periodStart, bookedThrough }: Account, at: Date): Date =>
  new Date(Math.max(at.getTime(), periodStart.getTime() + 1, bookedThrough.getTime()))

export interface PeriodEntry extends Pick<EnteredPeriod, 'start' | 'end' | 'enteredAt' | 'terms'> {
  /** Its start unless it is a user's first. */
  readonly countsFrom?: Date
}

/** Moves to the period that is running and starts its consumption at zero. */
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

/** What may be spent at `at`: the sum over all credits in effect. */
export function remainingAt(credits: readonly Credit[], at: Date): UsdAttos {
  return usdAttos(activeAt(credits, at).reduce((sum: bigint, { remaining }) => sum + remaining, 0n))
}

/**
 * What may back a payment at `at`: of the credits in effect those that pay for anything. The feature of a payment is
 * known only when its ticket arrives, so a credit bound to one feature backs none.
 */
export function spendableAt(credits: readonly Credit[], at: Date): UsdAttos {
  return remainingAt(
    credits.filter(({ featureKey }) => paysForAnything(featureKey)),
    at,
  )
}

/** What is left at `at` of the money that pays for one feature only, by feature key in order; in atto-dollars. */
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

// How far the clock of a signer, which dates the tickets, may be ahead of core's.
const clockMarginMs = 5_000

/**
 * What at `at` is not held, of the money that pays for anything and does not end before a call may be signed, `until`; in
 * atto-dollars. Negative when holds need money that ends before.
 */
export function uncommittedAt(
  account: Account,
  { at, until }: { at: Date; until: Date },
): UsdAttos {
  const last = new Date(until.getTime() + clockMarginMs)
  const lasting = account.credits.filter(({ expiresAt }) => expiresAt === null || expiresAt > last)
  return usdAttos(spendableAt(lasting, at) - account.lent - account.pending)
}

/** What is free at `at` for a call that may be signed until `until` (docs/escrow.md): `uncommittedAt`, never negative. */
export const freeAt = (account: Account, times: { at: Date; until: Date }): UsdAttos =>
  neverNegative(uncommittedAt(account, times))

/** What a user may still spend at `at`: of the money that pays for anything what is not held. Never negative. */
export const unheldAt = (account: Account, at: Date): UsdAttos =>
  neverNegative(spendableAt(account.credits, at) - account.lent - account.pending)

const neverNegative = (amount: bigint): UsdAttos => usdAttos(amount > 0n ? amount : 0n)

/** Credits in effect at `at`. */
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
  /** The feature of the ticket that it corrects; null when it names no ticket. */
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
}

const adjustmentPriority = 10

/**
 * Appends a compensating entry. A positive amount becomes a credit that pays for anything and never expires. A negative
 * one is drawn from the credits in effect, in burn order: those that pay for anything and, where a ticket is named, those
 * of its feature. What is held is not drawn. Returns what nothing covered: the entry records it as overage.
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

/** A part of what is given back: to the credit that it was burned from, or, where that is gone, as a new one. */
export interface Return extends Draw {
  readonly featureKey: string | null
}

export interface GiveBack {
  readonly id: string
  readonly at: Date
  readonly parts: readonly Return[]
  /** Overage of an earlier debit that goes as well; nobody had paid it. None by default. */
  readonly overage?: UsdAttos
}

/**
 * Gives money back, in one entry. Of a credit that has ended it becomes a new one for the same feature, without an end:
 * what is given back can be spent.
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
  const draws: Draw[] = []
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
 * What each credit paid for one ticket of a charge, in burn order. `credits` hold, as what remains, what the charge drew
 * from each: drawing the tickets again from those, in the same order, each finds what it found then.
 */
export function paidFor(
  eventId: string,
  { credits, tickets }: { credits: readonly Credit[]; tickets: readonly TicketCharge[] },
): Draw[] {
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
