import type { AccountMoney } from '../../balances/credit/money.ts'
import type { SpendRefusal } from '../../balances/accounts/spending.ts'
import type { Card } from '../processor/port.ts'
import type { BillingMode } from '../store.ts'
import { minimumCharge } from './ceilings.ts'
import { type BillingStatus, type NextAction, explain } from './explain.ts'
import type { Standing } from './standing-store.ts'

/** Whether a payer may spend, why not, and what happens next. Pure. */

export interface BillingFacts {
  readonly billingMode: BillingMode
  /** Whether the payer is the owner of apps. */
  readonly isOwner: boolean
  readonly externalUserId: string
  readonly money: AccountMoney
  /** Null without a subscription. */
  readonly standing: Standing | null
  /** Null without a card that can be charged; undefined if it is unknown. */
  readonly card: Card | null | undefined
}

export interface BillingState extends BillingFacts {
  readonly status: BillingStatus
  /** The code of refusals; null if the payer may spend. */
  readonly reason: SpendRefusal | null
  /** The used part of the ceiling in hundredths of a percent; null without one. */
  readonly utilizationBps: number | null
  readonly minimumCharge: typeof minimumCharge
  /** When the usage is collected; `none` on free plans. */
  readonly mode: 'threshold' | 'period' | 'none'
  /** The period of the plan, if its usage is collected when a period ends; null otherwise. */
  readonly collectionInterval: Standing['cycle'] | null
  readonly nextAction: NextAction
  readonly explanation: { readonly headline: string; readonly detail: string }
}

const riskyBps = 8_000

export function toBillingState(facts: BillingFacts): BillingState {
  const { money, standing } = facts
  const utilizationBps = utilizationOf(money)
  const status = statusOf(facts, utilizationBps)
  const reason = money.canSpend ? null : money.refusal
  const nextAction = nextActionOf(facts, reason)
  return {
    ...facts,
    status,
    reason,
    utilizationBps,
    minimumCharge,
    ...rhythmOf(standing),
    nextAction,
    explanation: explain({ status, reason, nextAction, money, standing }),
  }
}

function rhythmOf(standing: Standing | null): Pick<BillingState, 'mode' | 'collectionInterval'> {
  if (standing?.threshold) return { mode: 'threshold', collectionInterval: null }
  if (standing?.isPaid) return { mode: 'period', collectionInterval: standing.cycle }
  return { mode: 'none', collectionInterval: null }
}

function utilizationOf({ debt, ceiling }: AccountMoney): number | null {
  if (ceiling === 0n) return null
  return debt > 0n ? Number((debt * 10_000n) / ceiling) : 0
}

function statusOf({ money, standing }: BillingFacts, utilizationBps: number | null): BillingStatus {
  if (!money.canSpend) return 'blocked'
  if (standing?.isPastDue || (utilizationBps ?? 0) >= riskyBps) return 'at_risk'
  if (money.ceiling === 0n && money.isLow) return 'at_risk'
  return money.debt > 0n ? 'overage' : 'active'
}

function nextActionOf(
  { money, standing, card }: BillingFacts,
  reason: SpendRefusal | null,
): NextAction {
  if (standing?.isPastDue || money.lacksCard) return 'add_payment_method'
  if (standing?.isSettling) return 'awaiting_settlement'
  if (reason === 'debt_ceiling_reached')
    return card === null ? 'add_payment_method' : 'awaiting_settlement'
  return reason === null ? 'none' : 'add_funds'
}
