import { describe, expect, it } from 'vitest'
import { newAccount } from '../../../core/balances/accounts/account.ts'
import type { Credit } from '../../../core/balances/accounts/credits.ts'
import { spendingAt } from '../../../core/balances/accounts/spending.ts'
import { moneyAt } from '../../../core/balances/credit/money.ts'
import { type BillingFacts, toBillingState } from '../../../core/billing/wallet/billing-state.ts'
import { renderState } from '../../../core/billing/wallet/render.ts'
import type { Standing } from '../../../core/billing/wallet/standing-store.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { appId, userId } from '../../../core/shared/ids.ts'

const at = new Date('2026-03-10T12:00:00Z')
const periodEnd = new Date('2026-04-01T00:00:00Z')
const dollars = (amount: number) => usdAttos(BigInt(Math.round(amount * 100)) * 10n ** 16n)
const id = '0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4'

const credit = (kind: Credit['kind'], amount: number, remaining: number): Credit => ({
  id,
  kind,
  source: 'manual',
  featureKey: null,
  amount: dollars(amount),
  remaining: dollars(remaining),
  priority: 0,
  effectiveAt: new Date(0),
  expiresAt: kind === 'included' ? periodEnd : null,
  expiredAt: null,
  createdAt: new Date(0),
  state: 'stored',
})

interface Case {
  readonly credits?: readonly Credit[]
  readonly debt?: number
  readonly ceiling?: number
  readonly lacksCard?: boolean
  readonly held?: number
  readonly invoiced?: number
  /** The debt at which an invoice is raised. */
  readonly step?: number
  readonly standing?: Partial<Standing>
  readonly card?: BillingFacts['card']
}

const visa = { id: 'pm_1', brand: 'visa', last4: '4242', expiresMonth: 12, expiresYear: 2099 }

function stateOf({ credits = [], debt = 0, ceiling = 0, held = 0, ...rest }: Case) {
  const account = {
    ...newAccount({ appId: appId(id), userId: userId(id), credits }),
    overage: dollars(debt),
    ceiling: dollars(ceiling),
    lacksCard: rest.lacksCard ?? false,
    pending: dollars(held),
    invoiced: dollars(rest.invoiced ?? 0),
    collecting:
      rest.step === undefined ? null : { by: 'ceiling' as const, step: dollars(rest.step) },
    periodEnd,
  }
  return toBillingState({
    billingMode: 'merchant',
    isOwner: false,
    externalUserId: 'ada',
    money: moneyAt(account, at, spendingAt(account, at)),
    standing: {
      planName: 'PAYG',
      cycle: 'monthly',
      isPaid: true,
      threshold: null,
      isPastDue: false,
      lastRaisedAt: null,
      isSettling: false,
      nextRaiseAt: null,
      ...rest.standing,
    },
    card: rest.card === undefined && !('card' in rest) ? visa : rest.card,
  })
}

describe('billing state', () => {
  interface Expected {
    readonly when: string
    readonly facts: Case
    readonly status: string
    readonly reason?: string
    readonly next?: string
  }

  it.each<Expected>([
    { when: 'money is left', facts: { credits: [credit('grant', 10, 8)] }, status: 'active' },
    {
      when: 'little money is left',
      facts: { credits: [credit('grant', 10, 0.4)] },
      status: 'at_risk',
    },
    { when: 'the credit line pays', facts: { debt: 3, ceiling: 10 }, status: 'overage' },
    { when: 'the credit line is nearly used', facts: { debt: 8, ceiling: 10 }, status: 'at_risk' },
    {
      when: 'a payment failed',
      facts: { debt: 3, ceiling: 10, standing: { isPastDue: true } },
      status: 'at_risk',
      next: 'add_payment_method',
    },
    {
      when: 'nothing is left',
      facts: {},
      status: 'blocked',
      reason: 'insufficient_balance',
      next: 'add_funds',
    },
    {
      when: 'everything is held',
      facts: { credits: [credit('grant', 10, 8)], held: 8 },
      status: 'blocked',
      reason: 'insufficient_balance',
      next: 'add_funds',
    },
    {
      when: 'only a card is missing',
      facts: { lacksCard: true, card: null },
      status: 'blocked',
      reason: 'no_payment_method',
      next: 'add_payment_method',
    },
    {
      when: 'the ceiling is reached',
      facts: { debt: 10, ceiling: 10 },
      status: 'blocked',
      reason: 'debt_ceiling_reached',
      next: 'awaiting_settlement',
    },
    {
      when: 'the ceiling is reached and a payment failed',
      facts: { debt: 10, ceiling: 10, standing: { isPastDue: true } },
      status: 'blocked',
      reason: 'debt_ceiling_reached',
      next: 'add_payment_method',
    },
  ])('when $when', ({ facts, status, reason = null, next = 'none' }) => {
    const state = stateOf(facts)
    expect([state.status, state.reason, state.nextAction]).toEqual([status, reason, next])
    expect(state.money.canSpend).toBe(reason === null)
    expect(state.explanation.headline).not.toBe('')
    expect(state.explanation.detail).toMatch(/\.$/)
  })

  it('renders what adds up: included usage, prepaid money, debt and credit line', () => {
    const credits = [credit('included', 5, 1.25), credit('grant', 10, 2)]
    const rendered = renderState(
      stateOf({ credits, debt: 3, ceiling: 10, held: 1 }),
      'https://docs',
    )
    const money = (usd: string) => expect.objectContaining({ usd, currency: 'USD' })
    expect(rendered.funding).toMatchObject({
      prepaid: money('2.00'),
      includedUsage: {
        total: money('5.00'),
        remaining: money('1.25'),
        consumed: money('3.75'),
        resetsAt: '2026-04-01T00:00:00.000Z',
        sourcePlan: 'PAYG',
      },
      spendable: money('9.25'),
      net: money('0.25'),
      overage: {
        eligible: true,
        ceiling: money('10.00'),
        unbilledDebt: money('3.00'),
        remaining: money('7.00'),
        utilizationBps: 3_000,
      },
    })
  })

  it('renders a negative net, and no ceiling where none is', () => {
    const rendered = renderState(stateOf({ debt: 3.5 }), 'https://docs')
    expect(rendered.funding?.net).toEqual({ usdMicros: '-3500000', usd: '-3.50', currency: 'USD' })
    expect(rendered.funding?.overage).toMatchObject({ eligible: false, ceiling: undefined })
    expect(rendered.funding?.overage?.utilizationBps).toBeUndefined()
  })

  it('keeps an unknown card apart from none', () => {
    const cardOf = (facts: Case) =>
      renderState(stateOf(facts), 'https://docs').collection?.paymentMethod
    expect(cardOf({ card: undefined })).toBeUndefined()
    expect(cardOf({ card: null })).toMatchObject({ hasDefault: false })
    expect(cardOf({})).toMatchObject({ hasDefault: true, last4: '4242' })
  })

  it('renders only debt on no invoice as unbilled, and when the next invoice is raised', () => {
    const nextRaiseAt = new Date('2026-03-11T00:00:00Z')
    const state = stateOf({
      debt: 5,
      invoiced: 3,
      step: 4,
      ceiling: 10,
      standing: { isSettling: true, nextRaiseAt },
    })
    const { funding, collection } = renderState(state, 'https://docs')
    expect(funding?.overage).toMatchObject({
      unbilledDebt: { usd: '2.00' },
      remaining: { usd: '5.00' },
    })
    expect(collection).toMatchObject({
      nextAction: 'awaiting_settlement',
      leadThreshold: { usd: '4.00' },
      nextRaiseEligibleAt: '2026-03-11T00:00:00.000Z',
    })
  })

  it('names the mode of collection by the plan', () => {
    expect(stateOf({ standing: { threshold: dollars(10) } }).mode).toBe('threshold')
    expect(stateOf({}).mode).toBe('period')
    expect(stateOf({ standing: { isPaid: false } }).mode).toBe('none')
  })

  it('has an interval of collection only where the end of a period collects', () => {
    const intervalOf = (standing: Partial<Standing>) =>
      renderState(stateOf({ standing }), 'https://docs.example').collection?.collectionInterval
    expect(intervalOf({ cycle: 'weekly' })).toBe('weekly')
    expect(intervalOf({ threshold: dollars(10) })).toBeUndefined()
    expect(intervalOf({ isPaid: false })).toBeUndefined()
  })
})
