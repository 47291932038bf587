import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createTabs, nanosDown } from '../../../sidecar/accounts/pending-spend.ts'

const nano = 1_000_000_000n
const tabs = createTabs(20_000)
const at = (seconds: number) => seconds * 1000

describe('a tab', () => {
  it('holds what was spent until it shows in what was consumed', () => {
    const tab = tabs.open(100n * nano, 0)
    tabs.spend(tab, 30, at(1))
    tabs.spend(tab, 20, at(2))
    expect(tabs.pending(tab, 100n * nano, at(3))).toBe(50)
    expect(tabs.pending(tab, 130n * nano, at(4))).toBe(20)
    expect(tabs.pending(tab, 150n * nano, at(5))).toBe(0)
  })

  it('is not made smaller later by what others spent before', () => {
    const tab = tabs.open(0n, 0)
    expect(tabs.pending(tab, 1_000n * nano, at(1))).toBe(0)
    tabs.spend(tab, 10, at(2))
    expect(tabs.pending(tab, 1_000n * nano, at(3))).toBe(10)
  })

  it('forgets what never came, after one to two lags', () => {
    const tab = tabs.open(0n, 0)
    tabs.spend(tab, 10, at(1))
    expect(tabs.pending(tab, 0n, at(19))).toBe(10)
    expect(tabs.pending(tab, 0n, at(39))).toBe(10)
    expect(tabs.pending(tab, 0n, at(41))).toBe(0)
  })

  it('takes what is given back from the time in which it was spent', () => {
    const tab = tabs.open(0n, 0)
    tabs.spend(tab, 10, at(5))
    tabs.spend(tab, 7, at(25))
    tabs.giveBack(tab, 10, at(5))
    expect(tabs.pending(tab, 0n, at(26))).toBe(7)
    expect(tabs.pending(tab, 0n, at(41))).toBe(7)
    tabs.giveBack(tab, 3, at(-100))
    tabs.spend(tab, 3, at(42))
    expect(tabs.pending(tab, 0n, at(43))).toBe(7)
  })

  it('tells once of calls that never showed, and not of time that was promised and not used', () => {
    const told: number[] = []
    const telling = createTabs(20_000, (nanos) => void told.push(nanos))
    const tab = telling.open(0n, 0)
    telling.spend(tab, 10, at(1))
    telling.spend(tab, 4, at(2))
    telling.promise(tab, 50, at(2))
    expect(telling.pending(tab, 4n * nano, at(3))).toBe(60)
    expect(telling.pending(tab, 4n * nano, at(39))).toBe(60)
    expect(told).toEqual([])
    expect(telling.pending(tab, 4n * nano, at(41))).toBe(0)
    expect(told).toEqual([10])
    telling.spend(tab, 3, at(42))
    telling.promise(tab, 5, at(42))
    telling.giveBack(tab, 5, at(42))
    expect(telling.pending(tab, 7n * nano, at(90))).toBe(0)
    expect(telling.pending(tab, 7n * nano, at(200))).toBe(0)
    expect(told).toEqual([10])
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
        const tab = tabs.open(0n, 0)
        let [consumed, spent, now] = [0n, 0, 0]
        for (const { spend, arrive, wait } of history) {
          now += wait
          tabs.spend(tab, spend, at(now))
          spent += spend
          consumed += arrive
          const pending = tabs.pending(tab, consumed, at(now))
          expect(pending >= 0 && pending <= spent).toBe(true)
        }
      }),
    )
  })

  it('counts whole nano-dollars, and as many as a number holds', () => {
    expect(nanosDown(1_999_999_999n)).toBe(1)
    expect(nanosDown(10n ** 40n)).toBe(Number.MAX_SAFE_INTEGER)
  })
})
