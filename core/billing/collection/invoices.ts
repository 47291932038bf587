import type { Account } from '../../balances/accounts/account.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'

/** Notes that this much more of an account's debt is on invoices; negative for less. */
export function markInvoiced(account: Account, amount: UsdAttos): void {
  account.invoiced = usdAttos(account.invoiced + amount)
}
