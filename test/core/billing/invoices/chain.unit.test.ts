import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toDebtLines } from '../../../../core/billing/invoices/debt-lines.ts'
import type { AppSum, OtherSum } from '../../../../core/billing/invoices/entry-store.ts'
import {
  type InvoiceLine,
  type PriceLine,
  addUp,
  minimumCents,
  sumLines,
} from '../../../../core/billing/invoices/invoice.ts'
import { priceUnits } from '../../../../core/billing/invoices/overage.ts'
import type { UsageSum } from '../../../../core/billing/invoices/ticket-store.ts'
import { ethRate, usdAttos, wei } from '../../../../core/lib/money.ts'
import { toPrices } from '../../../../core/metering/batch/tariff.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

/** Chains of random invoices of one user: more than 10,000 invoices in all. */

const chains = 2_000
const chainLength = 10
const cent = 10n ** 16n
const id = '00000000-0000-4000-8000-000000000001'
const [user, app] = [userId(id), appId(id)]
const time = new Date('2026-01-01T00:00:00Z')
const span = { userId: user, first: time, last: time }
const zero = usdAttos(0n)

/** What became due since the invoice before. */
interface Step {
  readonly usage: readonly UsageSum[]
  readonly apps: readonly AppSum[]
  readonly others: readonly OtherSum[]
  readonly prices: readonly PriceLine[]
  /** A change of plan that is invoiced alone, because it is paid already. */
  readonly isPlan: boolean
}

// From one wei to 10 ETH per sum, at 0.000001 to 100,000 USD per ETH, which gives all sizes of debt.
const fee = fc
  .nat({ max: 19 })
  .chain((digits) => fc.bigInt({ min: 1n, max: 10n ** BigInt(digits) }))
const rate = fc.bigInt({ min: 10n ** 12n, max: 10n ** 23n })
const ratio = fc.oneof(fc.constant(10n ** 18n), fc.bigInt({ min: 0n, max: 10n ** 19n }))
const cut = fc.bigInt({ min: 0n, max: 10_000n })
const price = fc
  .tuple(fee, rate, ratio, cut)
  .map(([amount, perEth, at, basisPoints]) =>
    toPrices(wei(amount), ethRate(perEth), { ratio: at, cutBasisPoints: basisPoints }),
  )
const tickets = fc.bigInt({ min: 1n, max: 10n ** 6n })
const model = fc.constantFrom('', 'a', 'b')

const usage: fc.Arbitrary<UsageSum> = fc
  .record({ price, tickets, pipeline: model, modelId: model, isLate: fc.boolean() })
  .map(({ price: { retail }, ...sum }) => ({ ...span, ...sum, amount: retail }))
const owned: fc.Arbitrary<AppSum> = fc
  .record({ price, tickets })
  .map(({ price: { cost, platformFee }, tickets: count }) => ({
    ...span,
    chargedAppId: app,
    appName: 'Shop',
    tickets: count,
    amount: usdAttos(cost + platformFee),
  }))
const other: fc.Arbitrary<OtherSum> = fc
  .record({
    cause: fc.constantFrom<OtherSum['cause']>('correction', 'credit_note', 'application_fee'),
    amount: fc.bigInt({ min: -(10n ** 20n), max: 10n ** 19n }).map(usdAttos),
  })
  .map((sum) => ({ ...span, ...sum, count: 1n }))

const line = (kind: PriceLine['kind'], amount: bigint): PriceLine => ({
  kind,
  description: kind,
  amount: usdAttos(amount),
  periodStart: time,
  periodEnd: time,
})
const planPrice = fc.bigInt({ min: 1n, max: 100_000n }).map((cents) => cents * cent)
const priceLine: fc.Arbitrary<PriceLine> = fc.oneof(
  planPrice.map((amount) => line('subscription', amount)),
  fc.bigInt({ min: 1n, max: 10n ** 20n }).map((amount) => line('proration', -amount)),
  fc
    .record({
      units: fc.bigInt({ min: 1n, max: 10n ** 9n }),
      perEth: rate,
      perUnit: fc.bigInt({ min: 1n, max: 10n ** 12n }),
    })
    .map(({ units, perEth, perUnit }) =>
      line('overage', priceUnits([{ units, rate: perEth }], perUnit)),
    ),
)
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      usage: fc.array(usage, { maxLength: 6 }),
      apps: fc.array(owned, { maxLength: 2 }),
      others: fc.array(other, { maxLength: 1 }),
      prices: fc.array(priceLine, { maxLength: 3 }),
      isPlan: fc.constant(false),
    }),
  },
  {
    weight: 1,
    arbitrary: planPrice.map((amount) => ({
      usage: [],
      apps: [],
      others: [],
      prices: [line('subscription', amount + 50n * cent)],
      isPlan: true,
    })),
  },
)

const join = (a: Step, b: Step): Step => ({
  usage: [...a.usage, ...b.usage],
  apps: [...a.apps, ...b.apps],
  others: [...a.others, ...b.others],
  prices: [...a.prices, ...b.prices],
  isPlan: false,
})
const nothing: Step = { usage: [], apps: [], others: [], prices: [], isPlan: false }

/** What became due, as the ledger and the periods have it. */
const exact = ({ usage: own, apps, others, prices }: Step): bigint =>
  [own, apps, others, prices].reduce((sum, parts) => sum + sumLines(parts), 0n)

function expectLines(lines: readonly InvoiceLine[], due: Step): void {
  expect(sumLines(lines)).toBe(exact(due))
  const credits = new Set(['proration', 'other'])
  expect(lines.filter(({ kind, amount }) => amount < 0n && !credits.has(kind))).toEqual([])
}

describe('a chain of invoices', () => {
  it('has lines that add up, and carries exactly what no total has, less than a cent', () => {
    let issued = 0
    const chain = fc.array(step, { minLength: chainLength, maxLength: chainLength })
    fc.assert(
      fc.property(chain, (steps) => {
        let waiting = nothing
        let [ledger, totals, carried] = [0n, 0n, 0n]
        for (const one of steps) {
          const due = one.isPlan ? one : join(waiting, one)
          const debt = usdAttos(exact({ ...due, prices: [] }))
          const whole = { amount: zero, tickets: 0n, first: null }
          const lines = [...due.prices, ...toDebtLines({ debt, whole }, due)]
          const carriedIn = one.isPlan ? zero : usdAttos(carried)
          const { total } = addUp({ prices: due.prices, debt, carriedIn })
          expectLines(lines, due)
          if (!one.isPlan) waiting = total.cents < minimumCents ? due : nothing
          if (total.cents < minimumCents) continue
          issued += 1
          ledger += exact(due)
          totals += total.cents
          carried += total.carried - carriedIn
          expect(carried).toBe(ledger - totals * cent)
          expect(carried >= 0n && carried < cent).toBe(true)
        }
      }),
      { numRuns: chains },
    )
    expect(issued).toBeGreaterThan(10_000)
  }, 20_000)
})
