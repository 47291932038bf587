import { type UsdAttos, usdAttos } from '../../lib/money.ts'

/**
 * Credit lines (docs/escrow-credit.md, "Credit line"): the debt of an account, and what it may still
 * owe. Pure.
 */

/** The figures that a credit line depends on. */
export interface Debtor {
  readonly overage: UsdAttos
  readonly collected: UsdAttos
  readonly ceiling: UsdAttos
}

/** Returns the unpaid overage. Negative if paid overage was taken back. */
export const debt = ({ overage, collected }: Pick<Debtor, 'overage' | 'collected'>): UsdAttos =>
  usdAttos(overage - collected)

/**
 * Returns the debt that the account may still run up: the ceiling minus the debt, at least 0. An
 * overpayment does not raise it above the ceiling.
 */
export function creditLine(account: Debtor): UsdAttos {
  const owed = debt(account)
  const left = account.ceiling - (owed > 0n ? owed : 0n)
  return usdAttos(left > 0n ? left : 0n)
}

/** Returns the debt that is on no invoice. Negative if more was collected than invoiced. */
export const uninvoiced = (
  account: Pick<Debtor, 'overage' | 'collected'> & { readonly invoiced: UsdAttos },
): UsdAttos => usdAttos(debt(account) - account.invoiced)

/** The debt on no invoice that is collected as soon as it is reached (decision 62). */
export interface Collecting {
  /** A plan with a threshold is collected at it, and not at the end of a period. */
  readonly by: 'threshold' | 'ceiling'
  readonly step: UsdAttos
}

/** The highest debt of an account, and whether only a missing card keeps it at 0. */
export interface Ceiling {
  readonly amount: UsdAttos
  readonly lacksCard: boolean
  /** Default is null: the debt is not collected. */
  readonly collecting?: Collecting | null
}

export const noCeiling: Ceiling = { amount: usdAttos(0n), lacksCard: false }
