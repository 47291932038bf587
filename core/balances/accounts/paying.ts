import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Account, append } from './account.ts'
import { type Ceiling, creditLine } from './credit-line.ts'

/** Payments of debt, and the ceiling of debt: the arithmetic on an account. */

export interface DebtPayment {
  /** Negative for a refund or a dispute. Not 0. */
  readonly amount: UsdAttos
  /** Id of the payment or refund. */
  readonly causeId: string
  readonly at: Date
}

/**
 * Appends a payment of debt. The balance stays and the debt changes. Returns whether the credit
 * line became smaller.
 */
export function pay(account: Account, { amount, causeId, at }: DebtPayment): boolean {
  if (amount === 0n) throw new Error('a payment of 0')
  const before = creditLine(account)
  account.collected = usdAttos(account.collected + amount)
  const none = usdAttos(0n)
  const entry = { amount: none, overage: none, collected: amount, causeId, createdAt: at }
  append(account, { kind: 'payment', ...entry })
  return creditLine(account) < before
}

/** Sets the ceiling of an account. Returns whether the credit line became smaller. */
export function limitDebt(
  account: Account,
  { amount, lacksCard, collecting = null }: Ceiling,
): boolean {
  if (amount < 0n) throw new Error('a negative ceiling')
  const before = creditLine(account)
  account.ceiling = amount
  account.lacksCard = lacksCard && amount === 0n
  account.collecting = collecting
  return creditLine(account) < before
}
