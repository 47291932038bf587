import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Period } from '../../lib/time.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { type CreditDebit, type Facts, type OwnerShare, creditFacts } from './chain.ts'
import type { Collecting } from './credit-line.ts'
import { type Credit, burnOrder, paysForAnything } from './credits.ts'

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
export interface Account extends UserKey {
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
  /** Sum of the payments of overage, less refunds. */
  collected: UsdAttos
  /**
   * The debt (overage minus collected) that the account may run up. 0 unless a paid plan and a
   * chargeable card are known.
   */
  ceiling: UsdAttos
  /** Whether only a missing card keeps the ceiling at 0. */
  lacksCard: boolean
  /** The part of the debt that is on issued invoices which are neither paid nor void. */
  invoiced: UsdAttos
  /** When the other debt is collected; null if it never is: on free plans, and if the app's owner pays. */
  collecting: Collecting | null
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
   * (terms.ts).
   */
  readonly withheldAttos: bigint
  /**
   * What is charged for the period in advance; null for periods from before prices were collected.
   */
  readonly priceAttos: bigint | null
  /** Whether the plan is free. Set only for periods entered since the account was read. */
  readonly isFree?: boolean
}

export interface Entry {
  readonly seq: bigint
  readonly kind: 'grant' | 'charge' | 'expire' | 'adjustment' | 'unpriced' | 'payment'
  /** Number of tickets that a charge covers. */
  readonly tickets?: number
  /** Signed change of the balance. */
  readonly amount: UsdAttos
  /** Cost that no credit covered. Negative if an adjustment takes back earlier overage. */
  readonly overage: UsdAttos
  /** Payment of overage; 0 unless the entry is a payment. */
  readonly collected: UsdAttos
  readonly balanceAfter: UsdAttos
  /** Id of the credit, the adjustment or the payment, or the charge id stored with the tickets. */
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
  /** The part of a user's charge that the app's owner paid; null if no owner paid (decision 59). */
  readonly owner: OwnerShare | null
  /** Of an owner charge: the app whose tickets it covers. */
  readonly chargedApp: AppId | null
  /**
   * Facts of the cause that the chain includes. An adjustment's are set when its row is written.
   */
  facts: Facts
}

/** Returns an account without a stored past, with the figures of its credits. */
export function newAccount({
  appId,
  userId,
  credits = [],
}: UserKey & {
  readonly credits?: readonly Credit[]
}): Account {
  const balance = usdAttos(credits.reduce((sum, { remaining }) => sum + remaining, 0n))
  return {
    appId,
    userId,
    aheadMs: 0,
    seq: 0n,
    balance,
    granted: balance,
    topup: zero,
    consumed: zero,
    overage: zero,
    collected: zero,
    ceiling: zero,
    lacksCard: false,
    invoiced: zero,
    collecting: null,
    expired: zero,
    periodStart: beginning,
    periodEnd: beginning,
    periodCountsFrom: beginning,
    periodConsumed: zero,
    lent: zero,
    pending: zero,
    lendAfter: null,
    lateUntil: null,
    bookedThrough: beginning,
    head: null,
    credits: credits.map((credit) => ({ ...credit })).sort(burnOrder),
    entries: [],
    periods: [],
  }
}

const zero = usdAttos(0n)
const beginning = new Date(0)

/** Converts a real instant to the clock of the account's app. */
export const toAppTime = ({ aheadMs }: Pick<Account, 'aheadMs'>, at: Date): Date =>
  aheadMs === 0 ? at : new Date(at.getTime() + aheadMs)

type NewEntry = Pick<Entry, 'kind' | 'amount' | 'overage' | 'causeId' | 'createdAt'> &
  Partial<Omit<Entry, 'seq' | 'balanceAfter'>>

const silent = {
  collected: usdAttos(0n),
  draws: [],
  periodAmount: usdAttos(0n),
  unpricedChange: 0,
  ratesKnownAt: null,
  ticketsHash: null,
  owner: null,
  chargedApp: null,
  facts: [],
}

/**
 * Returns the booking time for an event at `at`: never before the last entry, nor before a past
 * balance that was already returned.
 */
export const bookingTime = ({ bookedThrough }: Account, at: Date): Date =>
  at < bookedThrough ? bookedThrough : at

/** Appends a ledger entry and changes the balance by its amount. */
export function append(account: Account, entry: NewEntry): void {
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

/**
 * Returns the unused included usage of the running period, less all holds, because it may have to
 * pay for each of them.
 */
export function unusedIncluded({ credits, periodEnd, lent, pending }: Account): UsdAttos {
  const left = credits
    .filter(
      ({ kind, expiresAt }) => kind === 'included' && expiresAt?.getTime() === periodEnd.getTime(),
    )
    .reduce((sum, { remaining }) => sum + remaining, 0n)
  return usdAttos(left > lent + pending ? left - lent - pending : 0n)
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
