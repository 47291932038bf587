import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { usdAttos } from '../../../core/lib/money.ts'
import { type EndedPeriod, prorate } from '../../../core/plans/subscriptions/proration.ts'

const usd = 10n ** 18n
const start = new Date('2026-01-01T00:00:00Z')
const end = new Date('2026-01-31T00:00:00Z')
const third = new Date('2026-01-11T00:00:00Z')

const period: EndedPeriod = {
  price: usdAttos(30n * usd),
  start,
  end,
  at: third,
  included: usdAttos(10n * usd),
  unused: usdAttos(10n * usd),
}

describe('the unused part of a price', () => {
  it.each<[string, Partial<EndedPeriod>, bigint]>([
    ['follows the time if nothing is used', {}, 20n * usd],
    ['follows the usage if more of it is used', { unused: usdAttos(usd) }, 3n * usd],
    ['is nothing if all is used', { unused: usdAttos(0n) }, 0n],
    [
      'follows the time if nothing is included',
      { included: usdAttos(0n), unused: usdAttos(0n) },
      20n * usd,
    ],
    ['is nothing at the end', { at: end }, 0n],
    ['is nothing for a free period', { price: usdAttos(0n) }, 0n],
    ['is all of it before the start', { at: new Date('2025-12-31T00:00:00Z') }, 30n * usd],
  ])('%s', (_, change, expected) => {
    expect(prorate({ ...period, ...change }).amount).toBe(expected)
  })

  it('comes with the unused usage only if that decided it', () => {
    expect(prorate(period).unused).toBe(null)
    expect(prorate({ ...period, unused: usdAttos(usd) }).unused).toBe(usd)
  })

  it('is never negative, and never more than the price for the rest of the time', () => {
    const amount = fc.bigInt({ min: 0n, max: 10n ** 24n })
    const instant = fc.date({ min: start, max: end, noInvalidDate: true })
    fc.assert(
      fc.property(fc.tuple(amount, amount, amount), instant, ([price, included, unused], at) => {
        const { amount: part } = prorate({
          ...period,
          at,
          price: usdAttos(price),
          included: usdAttos(included),
          unused: usdAttos(unused > included ? included : unused),
        })
        const left = BigInt(end.getTime() - at.getTime())
        expect(part >= 0n).toBe(true)
        expect(part * BigInt(end.getTime() - start.getTime()) <= price * left).toBe(true)
      }),
    )
  })
})
