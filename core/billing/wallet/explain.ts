import type { AccountMoney } from '../../balances/credit/money.ts'
import type { SpendRefusal } from '../../balances/accounts/spending.ts'
import { microsUp } from '../../lib/money.ts'
import { formatUsd } from './amounts.ts'
import type { Standing } from './standing-store.ts'

/** The billing state in words, for people. */

/**
 * `active`: money is left. `overage`: the payer owes something, within its credit line. `at_risk`:
 * money or credit line ends soon, or a payment failed. `blocked`: no call is allowed.
 */
export type BillingStatus = 'active' | 'overage' | 'at_risk' | 'blocked'

export type NextAction = 'none' | 'awaiting_settlement' | 'add_payment_method' | 'add_funds'

interface Explained {
  readonly status: BillingStatus
  readonly reason: SpendRefusal | null
  readonly nextAction: NextAction
  readonly money: AccountMoney
  readonly standing: Standing | null
}

interface Explanation {
  readonly headline: string
  readonly detail: string
}

export function explain(state: Explained): Explanation {
  if (state.reason !== null) return refusals[state.reason](state)
  return allowed[state.status](state)
}

const usd = (attos: AccountMoney['debt']): string => `$${formatUsd(microsUp(attos))}`
const dayOf = (at: Date): string => at.toISOString().slice(0, 10)

const refusals: Readonly<Record<SpendRefusal, (state: Explained) => Explanation>> = {
  insufficient_balance: ({ money }) => ({
    headline: 'No money is left',
    detail: `Calls are refused. Add funds, or wait for the included usage of the next period on ${dayOf(money.periodEnd)}.`,
  }),
  no_payment_method: () => ({
    headline: 'A payment method is missing',
    detail:
      'Prepaid money is used up. The plan allows usage on credit, but no card on file can be charged. Add a payment method, or add funds.',
  }),
  debt_ceiling_reached: ({ money, nextAction }) => ({
    headline: 'The limit of unpaid usage is reached',
    detail:
      `${usd(money.debt)} of at most ${usd(money.ceiling)} is unpaid. ` +
      (nextAction === 'add_payment_method'
        ? 'The last payment failed. Add another payment method.'
        : 'Calls are allowed again when the next payment arrives, or when funds are added.'),
  }),
  owner_debt_ceiling_reached: () => ({
    headline: "The app's owner has reached its limit",
    detail: 'Calls of all users of the app are refused until the owner has paid or added funds.',
  }),
}

const allowed: Readonly<Record<BillingStatus, (state: Explained) => Explanation>> = {
  active: () => ({
    headline: 'Calls are allowed',
    detail: 'Included usage and prepaid money pay for calls.',
  }),
  overage: ({ money, standing }) => ({
    headline: 'Calls are allowed on credit',
    detail: `${usd(money.debt)} is unpaid. ${collected(money, standing)}`,
  }),
  at_risk: ({ money, standing }) => ({
    headline: standing?.isPastDue ? 'A payment failed' : 'Money ends soon',
    detail: standing?.isPastDue
      ? 'The last payment failed and is tried again. Add another payment method, or the plan falls back to Starter.'
      : money.ceiling > 0n
        ? `${usd(money.debt)} of at most ${usd(money.ceiling)} is unpaid. ${collected(money, standing)}`
        : 'Little money is left. Add funds before calls are refused.',
  }),
  blocked: () => ({ headline: 'Calls are refused', detail: 'No call is allowed now.' }),
}

function collected({ periodEnd }: AccountMoney, standing: Standing | null): string {
  if (standing?.threshold)
    return `The card on file is charged when the unpaid usage reaches ${usd(standing.threshold)}.`
  return standing?.isPaid
    ? `The card on file is charged when the period ends on ${dayOf(periodEnd)}, or earlier when the unpaid usage comes near its limit.`
    : 'Payments and credits pay it first.'
}
