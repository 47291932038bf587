import { describe, expect, it } from 'vitest'
import { type Account, newAccount } from '../../../../core/balances/accounts/account.ts'
import { creditLine, debt } from '../../../../core/balances/accounts/credit-line.ts'
import { type Credit, freeAt, unheldAt } from '../../../../core/balances/accounts/credits.ts'
import { limitDebt, pay } from '../../../../core/balances/accounts/paying.ts'
import { spendingAt } from '../../../../core/balances/accounts/spending.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const at = new Date('2026-03-10T12:00:00Z')
const seconds = (count: number): Date => new Date(at.getTime() + count * 1_000)
const attos = usdAttos

function credit(amount: bigint, more: Partial<Credit> = {}): Credit {
  const id = '00000000-0000-4000-8000-000000000001'
  const given = { amount: attos(amount), remaining: attos(amount), featureKey: null, priority: 10 }
  const times = {
    effectiveAt: new Date(0),
    createdAt: new Date(0),
    expiresAt: null,
    expiredAt: null,
  }
  return { id, kind: 'grant', source: 'manual', state: 'stored', ...given, ...times, ...more }
}

const account = (more: Partial<Account> = {}, credits: Credit[] = []): Account => ({
  ...newAccount({ appId: appId('app'), userId: userId('user'), credits }),
  ...more,
})

const owing = (overage: bigint, collected: bigint, ceiling: bigint) =>
  account({ overage: attos(overage), collected: attos(collected), ceiling: attos(ceiling) })

describe('the credit line', () => {
  it.each([
    { overage: 0n, collected: 0n, ceiling: 0n, owed: 0n, line: 0n },
    { overage: 0n, collected: 0n, ceiling: 10n, owed: 0n, line: 10n },
    { overage: 4n, collected: 0n, ceiling: 10n, owed: 4n, line: 6n },
    { overage: 4n, collected: 3n, ceiling: 10n, owed: 1n, line: 9n },
    { overage: 12n, collected: 0n, ceiling: 10n, owed: 12n, line: 0n },
    { overage: 12n, collected: 0n, ceiling: 0n, owed: 12n, line: 0n },
    { overage: 1n, collected: 5n, ceiling: 10n, owed: -4n, line: 10n },
  ])('is the ceiling minus the debt: $line of $ceiling', ({ owed, line, ...figures }) => {
    const { overage, collected, ceiling } = figures
    const debtor = owing(overage, collected, ceiling)
    expect([debt(debtor), creditLine(debtor)]).toEqual([owed, line])
  })

  it('adds to what is free, but not to what remains', () => {
    const holder = account({ ceiling: attos(10n), lent: attos(3n) }, [credit(5n)])
    expect(freeAt(holder, { at, until: seconds(10) })).toBe(12n)
    expect(unheldAt(holder, at)).toBe(2n)
    holder.pending = attos(12n)
    expect([freeAt(holder, { at, until: at }), unheldAt(holder, at)]).toEqual([0n, 0n])
  })
})

describe('a payment', () => {
  it('lowers the debt in an entry of its own, and leaves the balance', () => {
    const debtor = owing(8n, 0n, 10n)
    expect(pay(debtor, { amount: attos(5n), causeId: 'p', at })).toBe(false)
    expect(creditLine(debtor)).toBe(7n)
    expect(debtor.entries).toMatchObject([
      { seq: 1n, kind: 'payment', amount: 0n, overage: 0n, collected: 5n, causeId: 'p' },
    ])
    expect(debtor.balance).toBe(0n)
  })

  it('raises the debt when it is refunded, and reports the smaller line', () => {
    const debtor = owing(8n, 8n, 10n)
    expect(pay(debtor, { amount: attos(-3n), causeId: 'r', at })).toBe(true)
    expect([debt(debtor), creditLine(debtor)]).toEqual([3n, 7n])
  })

  it('is never of 0', () => {
    expect(() => pay(owing(8n, 0n, 10n), { amount: attos(0n), causeId: 'p', at })).toThrow(/of 0/)
  })
})

describe('a ceiling', () => {
  it('reports whether the credit line became smaller', () => {
    const debtor = owing(4n, 0n, 10n)
    const limit = (amount: bigint) => limitDebt(debtor, { amount: attos(amount), lacksCard: false })
    expect([limit(20n), limit(20n), limit(5n), limit(2n), limit(1n)]).toEqual([
      false,
      false,
      true,
      true,
      false,
    ])
  })
})

describe('spending', () => {
  const refusal = (more: Partial<Account>, credits: Credit[] = []) =>
    spendingAt(account(more, credits), at).refusal

  it('is possible with money or with a credit line that is not held', () => {
    expect(spendingAt(account({}, [credit(1n)]), at)).toEqual({ canSpend: true, refusal: null })
    expect(spendingAt(account({ ceiling: attos(1n) }), at).canSpend).toBe(true)
    const held = { ceiling: attos(1n), lent: attos(1n), pending: attos(1n) }
    expect(spendingAt(account(held, [credit(1n)]), at).canSpend).toBe(false)
  })

  it('is refused for the reason that the webhook answers', () => {
    expect(refusal({})).toBe('insufficient_balance')
    expect(refusal({ lacksCard: true })).toBe('no_payment_method')
    expect(refusal({ ceiling: attos(2n), overage: attos(2n) })).toBe('debt_ceiling_reached')
    expect(refusal({ lacksCard: true }, [credit(1n, { featureKey: 'live' })])).toBe(
      'no_payment_method',
    )
  })
})

describe('a call that may be signed in either of two periods', () => {
  const included = (amount: bigint) => credit(amount, { kind: 'included', expiresAt: seconds(5) })
  const free = (credits: Credit[], nextIncluded?: bigint) =>
    freeAt(account({ pending: attos(1n) }, credits), {
      at,
      until: seconds(10),
      ...(nextIncluded === undefined ? {} : { nextIncluded }),
    })

  it('is covered by the smaller included usage', () => {
    expect(free([included(9n)], 20n)).toBe(8n)
    expect(free([included(9n)], 4n)).toBe(3n)
    expect(free([included(9n), credit(5n)], 4n)).toBe(8n)
    expect(free([included(9n)])).toBe(0n)
  })

  it('is not covered by credit that ends in the period', () => {
    expect(free([credit(9n, { expiresAt: seconds(5) })], 20n)).toBe(0n)
  })
})
