import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { openTab, pendingOf, spendOn } from '../../sidecar/tab.ts'

const lagMs = 20_000
const at = (seconds: number) => ({ at: seconds * 1000, lagMs })

describe('a tab', () => {
  it('holds what was spent until it shows in what was consumed', () => {
    const tab = openTab(100n, 0)
    spendOn(tab, 30n, at(1))
    spendOn(tab, 20n, at(2))
    expect(pendingOf(tab, 100n, at(3))).toBe(50n)
    expect(pendingOf(tab, 130n, at(4))).toBe(20n)
    expect(pendingOf(tab, 150n, at(5))).toBe(0n)
  })

  it('is not made smaller later by what others spent before', () => {
    const tab = openTab(0n, 0)
    expect(pendingOf(tab, 1_000n, at(1))).toBe(0n)
    spendOn(tab, 10n, at(2))
    expect(pendingOf(tab, 1_000n, at(3))).toBe(10n)
  })

  it('forgets what never came, after one to two lags', () => {
    const tab = openTab(0n, 0)
    spendOn(tab, 10n, at(1))
    expect(pendingOf(tab, 0n, at(19))).toBe(10n)
    expect(pendingOf(tab, 0n, at(39))).toBe(10n)
    expect(pendingOf(tab, 0n, at(41))).toBe(0n)
  })

  it('is never negative and never more than was spent', () => {
    const steps = fc.array(fc.record({
      spend: fc.bigInt({ min: 0n, max: 1_000n }), arrive: fc.bigInt({ min: 0n, max: 1_500n }), wait: fc.nat(30),
    }), { maxLength: 40 })
    fc.assert(fc.property(steps, (history) => {
      const tab = openTab(0n, 0)
      let consumed = 0n
      let spent = 0n
      let now = 0
      for (const { spend, arrive, wait } of history) {
        now += wait
        spendOn(tab, spend, at(now))
        spent += spend
        consumed += arrive
        const pending = pendingOf(tab, consumed, at(now))
        expect(pending >= 0n && pending <= spent).toBe(true)
      }
    }))
  })
})
