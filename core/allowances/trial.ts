import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { Period } from '../lib/time.ts'
import type { TicketCharge } from '../metering/ingest/charges.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import {
  type Account,
  type Credit,
  addCredit,
  burn,
  burnOrder,
  enterPeriod,
  expire,
} from './account.ts'

/**
 * Simulates an account without storing it, with the arithmetic of the real one (docs/whatif.md).
 * Events must be passed in the order in which tickets were signed.
 */

export interface TrialStart {
  readonly appId: AppId
  readonly userId: UserId
  /** With their current remaining amounts. */
  readonly credits: readonly Credit[]
}

/** A ticket of the simulated user; `cost` is in atto-dollars. */
export type TrialTicket = Omit<TicketCharge, 'appId' | 'userId'>

export interface TrialPeriod extends Period {
  readonly included: bigint
  /** Tickets signed at or after this instant may use the included usage. */
  readonly countsFrom: Date
}

const notOfAVersion = { planId: '', planVersion: 0, includedAttos: 0n }

export function simulateLedger({ appId, userId, credits }: TrialStart) {
  const account = newAccount({ appId, userId, credits })
  let included = account.credits.reduce(
    (sum, { kind, remaining }) => (kind === 'included' ? sum + remaining : sum),
    0n,
  )
  let expiredIncluded = 0n
  let ranOutAt: Date | null = null

  /** Discards what the ledger would store. */
  function forget(): void {
    account.entries.length = 0
    account.periods.length = 0
  }

  function give(credit: Credit): void {
    addCredit(account, credit, credit.createdAt)
    forget()
  }

  /** Enters a period and adds its included usage. Credits that ended by its start expire. */
  function enter({ start, end, included: amount, countsFrom }: TrialPeriod): void {
    for (const { kind, expiresAt, remaining } of account.credits)
      if (kind === 'included' && expiresAt && expiresAt <= start) expiredIncluded += remaining
    expire(account, { until: start, at: start })
    account.credits = account.credits.filter(({ expiredAt }) => expiredAt === null)
    enterPeriod(account, { start, end, countsFrom, enteredAt: start, terms: notOfAVersion })
    included += amount
    if (amount > 0n) addCredit(account, includedCredit({ amount, countsFrom, start, end }), start)
    forget()
  }

  /** Skips periods without usage; `amount` is their included usage. */
  function skip(amount: bigint): void {
    included += amount
    expiredIncluded += amount
  }

  /** Burns credits for tickets, which must be signed after all tickets spent before. */
  function spend(tickets: readonly TrialTicket[]): void {
    const [first, last] = [tickets[0], tickets.at(-1)]
    if (!first || !last) return
    const before = ranOutAt === null ? account.credits.map((credit) => ({ ...credit })) : null
    const overage = account.overage
    burn(account, chargeOf(account, tickets))
    if (before && account.overage > overage)
      ranOutAt = firstUncovered(newAccount({ appId, userId, credits: before }), tickets)
    forget()
  }

  const unusedIncluded = (): UsdAttos =>
    usdAttos(
      account.credits.reduce(
        (sum, { kind, remaining }) => (kind === 'included' ? sum + remaining : sum),
        expiredIncluded,
      ),
    )

  /**
   * Included usage, its unused part, and the overage with its start time; amounts in atto-dollars.
   */
  const sums = () => ({
    included: usdAttos(included),
    unused: unusedIncluded(),
    overage: account.overage,
    ranOutAt,
  })

  return { give, enter, skip, spend, sums }
}

export type SimulateLedger = typeof simulateLedger
export type Trial = ReturnType<SimulateLedger>

/** Burns tickets one by one. Returns when the first uncovered ticket was signed. */
function firstUncovered(account: Account, tickets: readonly TrialTicket[]): Date | null {
  for (const ticket of tickets) {
    burn(account, chargeOf(account, [ticket]))
    account.entries.length = 0
    if (account.overage > 0n) return ticket.signedAt
  }
  return null
}

function chargeOf({ appId, userId }: Account, tickets: readonly TrialTicket[]) {
  const user = { appId, userId }
  const [from = beginning, to = beginning] = [tickets[0]?.signedAt, tickets.at(-1)?.signedAt]
  return {
    ...user,
    id: '',
    at: to,
    tickets: tickets.length,
    unpriced: 0,
    waited: 0,
    cost: usdAttos(tickets.reduce((sum, { cost }) => sum + cost, 0n)),
    ticketsHash: null,
    ratesKnownAt: null,
    from,
    to,
    each: () => tickets.map((ticket) => ({ ...ticket, ...user })),
  }
}

const beginning = new Date(0)
const nothing = usdAttos(0n)

function newAccount({ appId, userId, credits }: TrialStart): Account {
  const balance = usdAttos(credits.reduce((sum, { remaining }) => sum + remaining, 0n))
  return {
    appId,
    userId,
    aheadMs: 0,
    seq: 0n,
    balance,
    granted: balance,
    topup: nothing,
    consumed: nothing,
    overage: nothing,
    expired: nothing,
    periodStart: beginning,
    periodEnd: beginning,
    periodCountsFrom: beginning,
    periodConsumed: nothing,
    lent: nothing,
    pending: nothing,
    lendAfter: null,
    lateUntil: null,
    bookedThrough: beginning,
    head: null,
    credits: credits.map((credit) => ({ ...credit })).sort(burnOrder),
    entries: [],
    periods: [],
  }
}

const includedCredit = ({
  amount,
  countsFrom,
  start,
  end,
}: Omit<TrialPeriod, 'included'> & { readonly amount: bigint }): Credit => ({
  id: '',
  kind: 'included',
  source: 'plan_adjustment',
  featureKey: null,
  amount: usdAttos(amount),
  remaining: usdAttos(amount),
  priority: 0,
  effectiveAt: countsFrom,
  expiresAt: end,
  expiredAt: null,
  createdAt: start,
  state: 'new',
})
