import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Account } from '../accounts/account.ts'
import { creditLine, debt, uninvoiced } from '../accounts/credit-line.ts'
import { activeAt, paysForAnything, spendableAt } from '../accounts/credits.ts'
import { isLow } from '../accounts/crossings.ts'
import type { Spending } from '../accounts/spending.ts'

/** What an account has, owes and may still spend. Money that is bound to features is left out. */
export interface AccountMoney extends Spending {
  /** By the clock of the app. */
  readonly at: Date
  /** Given or bought credit that is left. */
  readonly prepaid: UsdAttos
  /** Included usage of the period, and its unused part. */
  readonly included: { readonly total: UsdAttos; readonly remaining: UsdAttos }
  readonly periodEnd: Date
  /** Money and credit line that no running call holds. */
  readonly spendable: UsdAttos
  /** The money less the debt. */
  readonly net: UsdAttos
  /** Unpaid overage; negative if more was paid. */
  readonly debt: UsdAttos
  /** The part of the debt that is on no invoice. */
  readonly uninvoiced: UsdAttos
  /** The part of the debt on no invoice at which one is raised; null if only a period's end raises one. */
  readonly raisesAt: UsdAttos | null
  /** 0 if the account may not run up debt. */
  readonly ceiling: UsdAttos
  readonly creditLine: UsdAttos
  /** Whether only a missing card keeps the ceiling at 0. */
  readonly lacksCard: boolean
  /** Whether the money is below the threshold of the event `balance.low`. */
  readonly isLow: boolean
}

/** Returns the figures of an account at `at`, by the clock of its app. */
export function moneyAt(account: Account, at: Date, spending: Spending): AccountMoney {
  const usable = activeAt(account.credits, at).filter(({ featureKey }) =>
    paysForAnything(featureKey),
  )
  const sum = (amounts: readonly bigint[]): UsdAttos =>
    usdAttos(amounts.reduce((total, amount) => total + amount, 0n))
  const included = usable.filter(({ kind }) => kind === 'included')
  const money = spendableAt(account.credits, at)
  const line = creditLine(account)
  const free = money + line - account.lent - account.pending
  const owed = debt(account)
  return {
    ...spending,
    at,
    prepaid: sum(
      usable.filter(({ kind }) => kind !== 'included').map(({ remaining }) => remaining),
    ),
    included: {
      total: sum(included.map(({ amount }) => amount)),
      remaining: sum(included.map(({ remaining }) => remaining)),
    },
    periodEnd: account.periodEnd,
    spendable: usdAttos(free > 0n ? free : 0n),
    net: usdAttos(money - owed),
    debt: owed,
    uninvoiced: uninvoiced(account),
    raisesAt: account.collecting?.step ?? null,
    ceiling: account.ceiling,
    creditLine: line,
    lacksCard: account.lacksCard,
    isLow: isLow(account),
  }
}
