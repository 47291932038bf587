import { array, assert, bigInt, constantFrom, integer, property, record } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type LimitName, type Limits, noLimits } from '../../../../core/balances/limits/limits.ts'
import {
  type LimitedCall,
  type Tally,
  createTallies,
  windowsAt,
} from '../../../../core/balances/limits/tally.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const noon = new Date('2026-03-10T12:00:00Z')
const ada = userId('ada')
const after = (ms: number, from = noon): Date => new Date(from.getTime() + ms)

function tally(limits: Partial<Limits>, keyId: string | null = null): Tally {
  const { dayStart, minuteStart } = windowsAt(noon)
  return {
    appId: appId('app'),
    userId: ada,
    keyId,
    limits: { ...noLimits, ...limits },
    dayStart,
    dayAttos: 0n,
    minuteStart,
    minuteCalls: 0,
    sessions: new Map(),
    active: { count: 0, oldest: null },
    changed: false,
  }
}

const callOf = (call: Partial<LimitedCall> = {}): LimitedCall => ({
  userId: ada,
  keyId: null,
  sessionId: 's1',
  sessionType: 'live',
  app: 'acme/echo',
  price: { wei: 1300n, units: 1n },
  amount: usdAttos(10n),
  ...call,
})

/** Counts a call that breaks no limit. Otherwise returns the limit that it breaks. */
function attempt(
  tallies: ReturnType<typeof createTallies>,
  call: LimitedCall,
  at: Date,
): LimitName | 'counted' {
  const breach = tallies.breach(call, at)
  if (breach) return breach.limit
  tallies.count(call, at)
  return 'counted'
}

describe('limit per day', () => {
  it('allows spending to the last atto and starts again at midnight in UTC', () => {
    const tallies = createTallies([tally({ day: usdAttos(25n) })])
    expect(attempt(tallies, callOf({ amount: usdAttos(15n) }), noon)).toBe('counted')
    expect(attempt(tallies, callOf({ amount: usdAttos(11n) }), noon)).toBe('usd_per_day')
    expect(attempt(tallies, callOf({ amount: usdAttos(10n) }), noon)).toBe('counted')
    const midnight = new Date('2026-03-11T00:00:00Z')
    expect(tallies.breach(callOf(), after(-1, midnight))).toEqual({
      limit: 'usd_per_day',
      endsAt: midnight,
    })
    expect(attempt(tallies, callOf({ amount: usdAttos(25n) }), midnight)).toBe('counted')
  })

  it("counts in the later day when a core's clock lags", () => {
    const tallies = createTallies([tally({ day: usdAttos(10n) })])
    const midnight = new Date('2026-03-11T00:00:00Z')
    expect(attempt(tallies, callOf(), midnight)).toBe('counted')
    expect(attempt(tallies, callOf(), after(-1, midnight))).toBe('usd_per_day')
  })
})

describe('limit per session', () => {
  it('counts each session separately and never ends', () => {
    const tallies = createTallies([tally({ session: usdAttos(20n) })])
    expect(attempt(tallies, callOf(), noon)).toBe('counted')
    expect(attempt(tallies, callOf(), noon)).toBe('counted')
    expect(tallies.breach(callOf(), after(86_400_000))).toEqual({
      limit: 'usd_per_session',
      endsAt: null,
    })
    expect(attempt(tallies, callOf({ sessionId: 's2' }), noon)).toBe('counted')
  })
})

describe('calls per minute', () => {
  it('counts by the minute of the clock', () => {
    const tallies = createTallies([tally({ minuteCalls: 2 })])
    const late = after(59_999)
    expect(attempt(tallies, callOf(), late)).toBe('counted')
    expect(attempt(tallies, callOf(), late)).toBe('counted')
    expect(tallies.breach(callOf(), late)).toEqual({
      limit: 'calls_per_minute',
      endsAt: after(60_000),
    })
    expect(attempt(tallies, callOf(), after(60_000))).toBe('counted')
  })
})

describe('concurrent sessions', () => {
  it('counts sessions with a call within the last 60 s, each once', () => {
    const limited = tally({ sessions: 1 })
    const tallies = createTallies([limited])
    expect(attempt(tallies, callOf(), noon)).toBe('counted')
    expect(attempt(tallies, callOf({ sessionId: 's2' }), noon)).toBe('concurrent_sessions')
    expect(attempt(tallies, callOf(), after(59_999))).toBe('counted')
  })

  it('ends 60 s after the oldest of the last calls', () => {
    const limited = tally({ sessions: 1 })
    limited.active = { count: 1, oldest: noon }
    limited.sessions.set('s1', { spent: 0n, lastCallAt: noon.getTime() })
    const tallies = createTallies([limited])
    expect(tallies.breach(callOf({ sessionId: 's2' }), after(1_000))).toEqual({
      limit: 'concurrent_sessions',
      endsAt: after(60_000),
    })
  })
})

describe('price ceiling', () => {
  const ceilings = [
    { type: 'live', app: '', maxWei: 1300n },
    { type: 'live', app: 'acme/dear', maxWei: 9000n },
    { type: 'fixed', app: 'acme/img', maxWei: 5n },
  ] as const

  it.each([
    ['at the ceiling', {}, null],
    ['above it', { price: { wei: 1301n, units: 1n } }, 'max_price'],
    ['above it by a fraction', { price: { wei: 2601n, units: 2n } }, 'max_price'],
    ['at it, for two units', { price: { wei: 2600n, units: 2n } }, null],
    [
      'of an application with a higher ceiling, above the general ceiling',
      { app: 'acme/dear', price: { wei: 8000n, units: 1n } },
      'max_price',
    ],
    [
      'of an application without a ceiling',
      { sessionType: 'fixed', price: { wei: 6n, units: 1n } },
      null,
    ],
    [
      'of the application with the ceiling',
      { sessionType: 'fixed', app: 'acme/img', price: { wei: 6n, units: 1n } },
      'max_price',
    ],
    [
      'of a type without a ceiling',
      { sessionType: 'lv2v', price: { wei: 10n ** 18n, units: 1n } },
      null,
    ],
    ['that is unknown, with a ceiling', { price: null }, 'max_price'],
    ['that is unknown, without a ceiling', { sessionType: '', price: null }, null],
  ] satisfies [string, Partial<LimitedCall>, LimitName | null][])(
    'is compared with a price %s',
    (_, call, limit) => {
      const tallies = createTallies([tally({ ceilings })])
      expect(tallies.breach(callOf(call), noon)?.limit ?? null).toBe(limit)
    },
  )
})

describe('limits of a user and its keys', () => {
  it('apply together: a call must keep both, another key only those of the user', () => {
    const tallies = createTallies([
      tally({ day: usdAttos(30n) }),
      tally({ day: usdAttos(10n) }, 'k1'),
    ])
    expect(attempt(tallies, callOf({ keyId: 'k1' }), noon)).toBe('counted')
    expect(attempt(tallies, callOf({ keyId: 'k1' }), noon)).toBe('usd_per_day')
    expect(attempt(tallies, callOf({ keyId: 'k2' }), noon)).toBe('counted')
    expect(attempt(tallies, callOf(), noon)).toBe('counted')
    expect(attempt(tallies, callOf({ keyId: 'k2' }), noon)).toBe('usd_per_day')
  })

  it('do not apply to other users', () => {
    const tallies = createTallies([tally({ minuteCalls: 1 })])
    const other = callOf({ userId: userId('bob') })
    expect(attempt(tallies, other, noon)).toBe('counted')
    expect(attempt(tallies, other, noon)).toBe('counted')
    expect(tallies.changed()).toEqual([])
  })
})

describe('a series of random calls', () => {
  const call = record({
    sessionId: constantFrom('s1', 's2', 's3'),
    keyId: constantFrom(null, 'k1'),
    amount: bigInt({ min: 0n, max: 40n }).map(usdAttos),
    stepMs: integer({ min: 0, max: 45_000 }),
  })

  it('never exceeds a limit', () => {
    assert(
      property(
        array(call, { maxLength: 60 }),
        record({ day: bigInt(1n, 300n), calls: integer({ min: 1, max: 4 }) }),
        (calls, { day, calls: minuteCalls }) => {
          const limits = { day: usdAttos(day), session: usdAttos(100n), minuteCalls, sessions: 2 }
          const tallies = createTallies([tally(limits), tally({ session: usdAttos(50n) }, 'k1')])
          const counted: { at: number; call: LimitedCall }[] = []
          let at = new Date('2026-03-10T23:55:00Z')
          for (const { stepMs, ...each } of calls) {
            at = after(stepMs, at)
            if (attempt(tallies, callOf(each), at) === 'counted')
              counted.push({ at: at.getTime(), call: callOf(each) })
          }
          const sum = (those: typeof counted): bigint =>
            those.reduce((total, { call: { amount } }) => total + amount, 0n)
          const groups = (key: (one: (typeof counted)[number]) => string | number) => [
            ...Map.groupBy(counted, key).values(),
          ]
          for (const ofDay of groups((one) => windowsAt(new Date(one.at)).dayStart))
            expect(sum(ofDay)).toBeLessThanOrEqual(day)
          for (const ofMinute of groups((one) => windowsAt(new Date(one.at)).minuteStart))
            expect(ofMinute.length).toBeLessThanOrEqual(minuteCalls)
          for (const ofSession of groups((one) => one.call.sessionId)) {
            expect(sum(ofSession)).toBeLessThanOrEqual(100n)
            expect(sum(ofSession.filter((one) => one.call.keyId === 'k1'))).toBeLessThanOrEqual(50n)
          }
        },
      ),
    )
  })
})
