import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createPendingSpending, nanosDown } from '../../../sidecar/accounts/pending-spend.ts'

const nano = 1_000_000_000n
const spending = createPendingSpending(20_000)
const at = (seconds: number) => seconds * 1000

describe('pending spend', () => {
  it('holds spent amounts until they show in the consumed ones', () => {
    const pending = spending.open(100n * nano, 0)
    spending.spend(pending, 30, at(1))
    spending.spend(pending, 20, at(2))
    expect(spending.amount(pending, 100n * nano, at(3))).toBe(50)
    expect(spending.amount(pending, 130n * nano, at(4))).toBe(20)
    expect(spending.amount(pending, 150n * nano, at(5))).toBe(0)
  })

  it('is not reduced by amounts that other sidecars spent before', () => {
    const pending = spending.open(0n, 0)
    expect(spending.amount(pending, 1_000n * nano, at(1))).toBe(0)
    spending.spend(pending, 10, at(2))
    expect(spending.amount(pending, 1_000n * nano, at(3))).toBe(10)
  })

  it('releases amounts that never reach the ledger, after one to two lags', () => {
    const pending = spending.open(0n, 0)
    spending.spend(pending, 10, at(1))
    expect(spending.amount(pending, 0n, at(19))).toBe(10)
    expect(spending.amount(pending, 0n, at(39))).toBe(10)
    expect(spending.amount(pending, 0n, at(41))).toBe(0)
  })

  it('takes a refund from the lag in which it was spent', () => {
    const pending = spending.open(0n, 0)
    spending.spend(pending, 10, at(5))
    spending.spend(pending, 7, at(25))
    spending.refundAdvance(pending, 10, at(5))
    expect(spending.amount(pending, 0n, at(26))).toBe(7)
    expect(spending.amount(pending, 0n, at(41))).toBe(7)
    spending.refundAdvance(pending, 3, at(-100))
    spending.spend(pending, 3, at(42))
    expect(spending.amount(pending, 0n, at(43))).toBe(7)
  })

  it('reports calls that never reached the ledger once, and no advance that was not used', () => {
    const missing: number[] = []
    const reporting = createPendingSpending(20_000, (nanos) => void missing.push(nanos))
    const pending = reporting.open(0n, 0)
    reporting.spend(pending, 10, at(1))
    reporting.spend(pending, 4, at(2))
    reporting.spendAdvance(pending, 50, at(2))
    expect(reporting.amount(pending, 4n * nano, at(3))).toBe(60)
    expect(reporting.amount(pending, 4n * nano, at(39))).toBe(60)
    expect(missing).toEqual([])
    expect(reporting.amount(pending, 4n * nano, at(41))).toBe(0)
    expect(missing).toEqual([10])
    reporting.spend(pending, 3, at(42))
    reporting.spendAdvance(pending, 5, at(42))
    reporting.refundAdvance(pending, 5, at(42))
    expect(reporting.amount(pending, 7n * nano, at(90))).toBe(0)
    expect(reporting.amount(pending, 7n * nano, at(200))).toBe(0)
    expect(missing).toEqual([10])
  })

  it('is never negative and never more than was spent', () => {
    const steps = fc.array(
      fc.record({
        spend: fc.nat(1_000),
        arrive: fc.bigInt({ min: 0n, max: 1_500n * nano }),
        wait: fc.nat(30),
      }),
      { maxLength: 40 },
    )
    fc.assert(
      fc.property(steps, (history) => {
        const pending = spending.open(0n, 0)
        let [consumed, spent, now] = [0n, 0, 0]
        for (const { spend, arrive, wait } of history) {
          now += wait
          spending.spend(pending, spend, at(now))
          spent += spend
          consumed += arrive
          const left = spending.amount(pending, consumed, at(now))
          expect(left >= 0 && left <= spent).toBe(true)
        }
      }),
    )
  })

  it('counts whole nano-dollars, and as many as a number holds', () => {
    expect(nanosDown(1_999_999_999n)).toBe(1)
    expect(nanosDown(10n ** 40n)).toBe(Number.MAX_SAFE_INTEGER)
  })
})
