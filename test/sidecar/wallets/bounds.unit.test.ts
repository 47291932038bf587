import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type BilledUser, createBounds, toUnits } from '../../../sidecar/wallets/bounds.ts'
import { nanosDown, nanosPerWei } from '../../../sidecar/wallets/nanos.ts'
import type { Session } from '../../../sidecar/signer-state/session.ts'
import { createSessionMemory } from '../../../sidecar/wallets/session-calls.ts'

const usd = 10n ** 18n
const start = 1_789_380_930
const session = (change: Partial<Session> = {}): Session => ({
  id: '9f86d081',
  authId: '',
  type: 'live',
  app: '',
  isApproximate: false,
  sequence: 1,
  seconds: start,
  nanos: 0,
  price: 12_000n,
  units: 1n,
  balance: '0',
  isReadable: true,
  ...change,
})
const prior = (seconds: number, nanos = 0) => ({ sequence: 0, seconds, nanos })

function world(rate: bigint = 1_000_000n * usd, untyped: number | null = null) {
  const memory = createSessionMemory({ max: 10 })
  const current = {
    nanosPerWei: nanosPerWei(String(rate)) as number | null,
    attosPerEth: rate,
    observedAt: 0,
    isRaised: false,
  }
  const unheard = { ms: 0 }
  const bounds = createBounds({
    memory,
    rate: current,
    untyped,
    msSinceLastContact: () => unheard.ms,
  })
  const owner: BilledUser = { authId: 'a:b', latest: null, retailRatio: null }
  /** The bound in units, for a session that costs one nano-dollar per unit. */
  const boundOf = (call: Session, of = owner) => bounds.boundOf(of, call)
  return { memory, bounds, current, owner, boundOf, unheard }
}

describe('toUnits', () => {
  it.each([
    [start - 6, 0, 6],
    [start - 6, 1, 6],
    [start - 6, 999_999_999, 6],
    [start, 0, 0],
    [start + 5, 0, 0],
  ] as const)('since %i s and %i ns before a live call is %i', (seconds, nanos, expected) => {
    expect(toUnits(session(), prior(seconds, nanos))).toBe(expected)
  })

  it('rounds a live call up at the next nanosecond', () => {
    expect(toUnits(session({ nanos: 1 }), prior(start - 5))).toBe(6)
    expect(toUnits(session({ nanos: 123_456_789 }), prior(start - 5, 123_456_789))).toBe(5)
  })

  it('returns fixed units for the first call, and the longest gap for an unknown one', () => {
    expect(toUnits(session({ sequence: 0 }), null)).toBe(10)
    expect(toUnits(session({ sequence: 0, type: 'lv2v' }), null)).toBe(1_658_880_000)
    expect(toUnits(session({ type: 'fixed' }), null)).toBe(1)
    expect(toUnits(session(), null)).toBe(900)
    expect(toUnits(session({ type: 'lv2v' }), null)).toBe(900 * 27_648_000)
  })
})

/**
 * go-livepeer's fee for the units, rounded half away from zero (remote_signer.go), converted to USD
 * as in core.
 */
function ticketCost(
  { price, per, rate }: { price: bigint; per: bigint; rate: bigint },
  units: bigint,
): bigint {
  const fee = (2n * price * units + per) / (2n * per)
  return (fee * rate + usd - 1n) / usd
}

describe('boundSince and boundOf', () => {
  const int64 = 2n ** 63n - 1n
  const calls = fc.record({
    price: fc.oneof(fc.bigInt({ min: 1n, max: int64 }), fc.bigInt({ min: 1n, max: 10n ** 6n })),
    units: fc.oneof(fc.bigInt({ min: 1n, max: int64 }), fc.bigInt({ min: 1n, max: 1000n })),
    rate: fc.bigInt({ min: 1n, max: 1_000_000n * usd }),
    type: fc.constantFrom('live' as const, 'lv2v' as const, 'fixed' as const),
    gapNanos: fc.bigInt({ min: 0n, max: 900_000_000_000n }),
    nanos: fc.nat(999_999_999),
    ratio: fc.constantFrom(
      null,
      0n,
      333_333_333_333_333_333n,
      15n * 10n ** 17n,
      7n * 10n ** 18n + 1n,
    ),
  })

  /** Pixels by Go's float: int64(float64(27648000) * duration.Seconds()). */
  const pixelsOf = (gap: bigint): bigint =>
    BigInt(
      Math.trunc(27_648_000 * (Number(gap / 1_000_000_000n) + Number(gap % 1_000_000_000n) / 1e9)),
    )

  it("never returns less than the ticket's cost, nor much more", () => {
    fc.assert(
      fc.property(calls, ({ price, units, rate, type, gapNanos, nanos, ratio }) => {
        const { bounds, owner } = world(rate)
        const atRetail = (cost: bigint): bigint => (cost * (ratio ?? 10n ** 18n)) / 10n ** 18n
        const from = BigInt(start) * 1_000_000_000n + BigInt(nanos)
        const to = from + gapNanos
        const call = session({
          type,
          price,
          units,
          seconds: Number(to / 1_000_000_000n),
          nanos: Number(to % 1_000_000_000n),
        })
        const account = { ...owner, retailRatio: ratio }
        const bound = bounds.boundSince({ account, session: call }, prior(start, nanos))
        const billed = {
          live: (gapNanos + 999_999_999n) / 1_000_000_000n,
          lv2v: pixelsOf(gapNanos),
          fixed: 1n,
        }
        const cost = atRetail(ticketCost({ price, per: units, rate }, billed[type]))
        // One more wei and two pixels, and the rounding of doubles.
        const wei = (price * (billed[type] + 2n)) / units + 3n
        const most = atRetail(wei * rate) / usd / 10n ** 9n + 2n
        const isCounted = Number.isSafeInteger(bound)
        expect(isCounted ? bound >= 1 : most > 9n * 10n ** 15n).toBe(true)
        fc.pre(isCounted)
        expect(BigInt(bound) * 10n ** 9n >= cost).toBe(true)
        expect(BigInt(bound) <= most + most / 10n ** 13n).toBe(true)
      }),
      { numRuns: 2_000 },
    )
  })

  it('is exact when the cost is a whole number of nano-dollars', () => {
    const cents = (dollars: bigint, price: bigint) =>
      world(dollars * usd).boundOf(session({ sequence: 0, type: 'fixed', price }))
    expect(cents(2_500n, 4_000_000_000_000n)).toBe(10_000_000)
    expect(cents(3_000n, 3_333_333_333_333n)).toBe(10_000_000)
    expect(cents(3_000n, 3_333_333_333_334n)).toBe(10_000_001)
  })

  it('returns at least one nano-dollar, and Infinity above the largest safe integer', () => {
    const { boundOf } = world(usd)
    expect(boundOf(session({ sequence: 0, price: 1n, units: int64 }))).toBe(1)
    expect(boundOf(session({ sequence: 0, type: 'lv2v', price: int64 }))).toBe(Infinity)
  })
})

describe('boundOf', () => {
  const at = (sequence: number, seconds: number, change: Partial<Session> = {}) =>
    session({ sequence, seconds: start + seconds, price: 10n ** 9n, ...change })

  it('counts from the first call with the previous number', () => {
    const { memory, owner, boundOf } = world(usd)
    memory.remember(owner, at(0, 0))
    memory.remember(owner, at(1, 5))
    expect(boundOf(at(2, 12))).toBe(7)
    // A replay of number 1 must not shorten it: the client has both states.
    memory.remember(owner, at(1, 9))
    expect(boundOf(at(2, 12))).toBe(7)
    expect(boundOf(at(1, 12))).toBe(12)
  })

  it('counts from the nearest known lower number', () => {
    const { memory, owner, boundOf } = world(usd)
    for (const [number, seconds] of [
      [3, 0],
      [7, 20],
      [9, 30],
    ] as const)
      memory.remember(owner, at(number, seconds))
    const units = [20, 10, 9, 8, 7, 4].map((number) => boundOf(at(number, 100)))
    expect(units).toEqual([70, 70, 80, 80, 100, 100])
    expect(boundOf(at(3, 100))).toBe('no_prior_call')
  })

  it("does not shrink when the signer's clock is set back", () => {
    const { memory, owner, boundOf } = world(usd)
    memory.remember(owner, at(0, 100))
    memory.remember(owner, at(0, 40))
    expect(boundOf(at(1, 101))).toBe(61)
  })

  it('separates sessions and users', () => {
    const { memory, owner, boundOf } = world(usd)
    memory.remember(owner, at(0, 0, { id: 'one' }))
    memory.remember(owner, at(0, 50, { id: 'two' }))
    expect(boundOf(at(1, 60, { id: 'one' }))).toBe(60)
    expect(boundOf(at(1, 60, { id: 'two' }))).toBe(10)
    const other = { authId: 'other:b', latest: null, retailRatio: null }
    expect(boundOf(at(1, 60, { id: 'one' }), other)).toBe('no_prior_call')
  })

  it('subtracts time paid in advance only once', () => {
    const { memory, owner, boundOf } = world(usd)
    memory.remember(owner, at(0, 0)).paidUntil = start + 11
    expect(boundOf(at(1, 15))).toBe(4)
    memory.remember(owner, at(1, 15))
    expect(boundOf(at(1, 16))).toBe(16)
  })

  it('covers at least the time since core last answered', () => {
    const { memory, owner, boundOf, unheard } = world(usd)
    memory.remember(owner, at(0, 0))
    unheard.ms = 20_001
    expect(boundOf(at(1, 7))).toBe(21)
    expect(boundOf(at(1, 30))).toBe(30)
  })

  it('is unknown for a shared session', () => {
    const { memory, owner, boundOf } = world(usd)
    memory.remember(owner, at(0, 0))
    memory.share('9f86d081')
    expect([boundOf(at(1, 7)), boundOf(at(0, 7))]).toEqual(['no_prior_call', 10])
  })

  it('uses the configured bound for a call without a type or price, or refuses it', () => {
    const untyped = [{ type: '' as const }, { price: null }, { units: null }]
    for (const change of untyped) {
      expect(world(usd).boundOf(session(change))).toBe('untyped')
      expect(world(usd, 7).boundOf(session(change))).toBe(7)
    }
  })

  it('requires a rate', () => {
    const { boundOf, current } = world()
    current.nanosPerWei = null
    expect(boundOf(session({ sequence: 0 }))).toBe('no_rate')
  })
})

describe('nanosDown', () => {
  it('rounds down to whole nano-dollars, up to the largest safe integer', () => {
    expect([nanosDown('1999999999'), nanosDown('999999999'), nanosDown('0')]).toEqual([1, 0, 0])
    expect(nanosDown(`1${'0'.repeat(40)}`)).toBe(Number.MAX_SAFE_INTEGER)
    expect(() => nanosDown('-1')).toThrow(/unreadable/)
  })
})
