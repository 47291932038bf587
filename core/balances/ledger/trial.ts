import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Period } from '../../lib/time.ts'
import type { UserKey } from '../../shared/ids.ts'
import { type Account, addCredit, enterPeriod, expire, newAccount } from '../accounts/account.ts'
import type { Credit } from '../accounts/credits.ts'
import { type BurntTicket, burn, createCharge } from '../accounts/burning.ts'

/**
 * Simulates an account without storing it, with the arithmetic of the real one (docs/whatif.md).
 * Events must be passed in the order in which tickets were signed.
 */

export interface TrialStart extends UserKey {
  /** With their current remaining amounts. */
  readonly credits: readonly Credit[]
}

export interface TrialPeriod extends Period {
  readonly included: bigint
  /** Tickets signed at or after this instant may use the included usage. */
  readonly countsFrom: Date
}

const notOfAVersion = {
  planId: '',
  planVersion: 0,
  includedAttos: 0n,
  withheldAttos: 0n,
  priceAttos: 0n,
}

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
  function spend(tickets: readonly BurntTicket[]): void {
    if (tickets.length === 0) return
    const before = ranOutAt === null ? account.credits.map((credit) => ({ ...credit })) : null
    const overage = account.overage
    burn(account, createCharge(account, tickets))
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
function firstUncovered(account: Account, tickets: readonly BurntTicket[]): Date | null {
  for (const ticket of tickets) {
    burn(account, createCharge(account, [ticket]))
    account.entries.length = 0
    if (account.overage > 0n) return ticket.signedAt
  }
  return null
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
