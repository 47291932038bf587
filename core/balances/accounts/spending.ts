import type { UsdAttos } from '../../lib/money.ts'
import { creditLine } from './credit-line.ts'
import { type Holder, spendableAt } from './credits.ts'

/** Whether an account may pay for a call. Gate, tokens, sidecars and wallet use the same function. */

/** Why an account cannot pay for a call. */
export type AccountRefusal = 'insufficient_balance' | 'no_payment_method' | 'debt_ceiling_reached'

/**
 * Why a user cannot pay for a call: the reason of its own account, or that the account of the app's
 * owner cannot pay.
 */
export type SpendRefusal = AccountRefusal | 'owner_debt_ceiling_reached'

interface Indebted {
  readonly ceiling: UsdAttos
  readonly lacksCard: boolean
}

export type Spender = Holder & Indebted

export interface Spending {
  /** True if money is left that is not held: credits in effect, or a credit line. */
  readonly canSpend: boolean
  /** Null if `canSpend`. */
  readonly refusal: SpendRefusal | null
}

/** Returns whether an account may pay for a call at `at`, and if not, the reason. */
export function spendingAt(account: Spender, at: Date): Spending {
  const { credits, lent, pending } = account
  const canSpend = spendableAt(credits, at) + creditLine(account) > lent + pending
  return { canSpend, refusal: canSpend ? null : explainRefusal(account) }
}

/** Returns the reason why an account cannot pay for a call that exceeds its free money. */
export function explainRefusal({ ceiling, lacksCard }: Indebted): AccountRefusal {
  if (ceiling > 0n) return 'debt_ceiling_reached'
  return lacksCard ? 'no_payment_method' : 'insufficient_balance'
}
