import { describe, expect, it } from 'vitest'
import { type Account, newAccount } from '../../../../core/balances/accounts/account.ts'
import { findDueCollections } from '../../../../core/balances/accounts/collecting.ts'
import type { Collecting } from '../../../../core/balances/accounts/credit-line.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const user = { appId: appId('app'), userId: userId('ada') }
const start = new Date('2026-04-10T12:00:00Z')
const at = new Date('2026-04-10T12:00:01Z')
const anHourLater = new Date('2026-04-10T13:00:00Z')
const ceiling: Collecting = { by: 'ceiling', step: usdAttos(100n) }
const threshold: Collecting = { by: 'threshold', step: usdAttos(100n) }

/** An account with this debt, which is collected so, and has entered a period with this price. */
function accountWith(
  collecting: Collecting | null,
  { debt, price = null }: { debt: bigint; price?: bigint | null },
): Account {
  const account = { ...newAccount(user), collecting, overage: usdAttos(debt) }
  if (price === null) return account
  const terms = { planId: 'plan', planVersion: 1, includedAttos: 0n, withheldAttos: 0n }
  const period = { start, end: anHourLater, countsFrom: start, enteredAt: at, afterSeq: 0n }
  return { ...account, periods: [{ ...period, terms: { ...terms, priceAttos: price } }] }
}

const due = (account: Account, before: Collecting | null) =>
  findDueCollections(account, { before, at }).map(({ reason, withUsage, dueAt }) => [
    reason,
    withUsage,
    dueAt,
  ])

describe('a saved account', () => {
  it.each([ceiling, threshold])('is collected at the step, not below it: $by', (collecting) => {
    expect(due(accountWith(collecting, { debt: 99n }), collecting)).toEqual([])
    expect(due(accountWith(collecting, { debt: 100n }), collecting)).toEqual([
      [collecting.by, true, at],
    ])
  })

  it('is not collected by what is on invoices', () => {
    const account = { ...accountWith(ceiling, { debt: 150n }), invoiced: usdAttos(60n) }
    expect(due(account, ceiling)).toEqual([])
  })
})

describe('an account that has entered a period', () => {
  it('is collected an hour after it began, usage and price', () => {
    for (const price of [0n, 7n])
      expect(due(accountWith(ceiling, { debt: 5n, price }), ceiling)).toEqual([
        ['period', true, anHourLater],
      ])
  })

  it('is collected for its price alone on a plan with a threshold', () => {
    expect(due(accountWith(threshold, { debt: 5n, price: 7n }), threshold)).toEqual([
      ['period', false, anHourLater],
    ])
    expect(due(accountWith(threshold, { debt: 5n, price: 0n }), threshold)).toEqual([])
  })

  it('is collected finally when it leaves a paid plan', () => {
    for (const before of [ceiling, threshold])
      expect(due(accountWith(null, { debt: 5n, price: 0n }), before)).toEqual([
        ['final', true, anHourLater],
      ])
  })

  it('is not collected if it comes from a free plan and owes nothing, or stays on one', () => {
    expect(due(accountWith(ceiling, { debt: 0n, price: 0n }), null)).toEqual([])
    expect(due(accountWith(null, { debt: 5n, price: 0n }), null)).toEqual([])
  })
})
