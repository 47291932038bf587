import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ethRate } from '../../../core/lib/money.ts'
import {
  type Session,
  type SessionOwner,
  costOf,
  costPerSecond,
  createSessionCalls,
  nanosPerWei,
  unitsOf,
} from '../../../sidecar/accounts/session.ts'
import { startHarness, until, vectorNow } from '../support.ts'
import { firstCall } from '../signer-bodies.ts'

const usd = 10n ** 18n
const session = (change: Partial<Session> = {}): Session => ({
  id: '9f86d081',
  authId: '',
  type: 'live',
  sequence: 1,
  at: 1_000_000,
  authExpiry: 0,
  price: 12_000n,
  units: 1n,
  isValid: true,
  ...change,
})

describe('what a call costs', () => {
  it.each([
    ['live', 10_000, 10],
    ['live', 5_003, 6],
    ['live', 0, 0],
    ['lv2v', 60_000, 1_658_880_000],
    ['lv2v', 5_123, 141_640_704],
    ['fixed', 12_400, 1],
    ['', 1_000, null],
    ['else', 1_000, null],
  ])('%s for %i ms is %s units', (type, ms, expected) => {
    expect(unitsOf(type, ms)).toBe(expected)
  })

  it('is never less than the exact price, and less than two nano-dollars more', () => {
    const calls = fc.record({
      price: fc.bigInt({ min: 1n, max: 10n ** 18n }),
      units: fc.bigInt({ min: 1n, max: 10n ** 9n }),
      dollars: fc.bigInt({ min: 1n, max: 100_000n }),
      ms: fc.nat(60_000),
    })
    fc.assert(
      fc.property(calls, ({ price, units, dollars, ms }) => {
        const rate = ethRate(dollars * usd)
        const cost = costOf(session({ price, units }), ms, nanosPerWei(rate)) ?? NaN
        const exact = price * BigInt(Math.ceil(ms / 1000)) * rate
        const per = units * 10n ** 27n
        fc.pre(exact / per < 2n ** 50n)
        expect(BigInt(cost) * per >= exact && (BigInt(cost) - 2n) * per < exact).toBe(true)
      }),
    )
  })

  it('is unknown without a price, and has a price per second only in timed sessions', () => {
    const rate = nanosPerWei(ethRate(1_000_000n * usd))
    expect(costOf(session({ price: null }), 1_000, rate)).toBeNull()
    expect(costPerSecond(session({ type: 'fixed' }), rate)).toBeNull()
    expect(costPerSecond(session(), rate)).toBeCloseTo(12, 9)
  })
})

describe('the billed time of a call', () => {
  const started = () => {
    const book = createSessionCalls({ max: 10 })
    const owner = { authId: 'a:b', latest: null }
    const msOf = (call: Session, of: SessionOwner = owner) =>
      book.billedMs(call, book.find(of, call))
    const remember = (call: Session) => book.remember(owner, call, book.find(owner, call))
    return { msOf, remember }
  }

  it('is fixed for the first call, and starts at the previous call for others', () => {
    const { msOf, remember } = started()
    expect(msOf(session({ sequence: 0 }))).toBe(10_000)
    expect(msOf(session({ sequence: 0, type: 'lv2v' }))).toBe(60_000)
    remember(session({ sequence: 0, at: 1_000_000 }))
    expect(msOf(session({ sequence: 1, at: 1_004_500 }))).toBe(4_500)
    expect(msOf(session({ sequence: 1, at: 900_000 }))).toBe(0)
  })

  it('is counted again for a state that is sent again', () => {
    const { msOf, remember } = started()
    remember(session({ sequence: 1, at: 1_000_000 }))
    remember(session({ sequence: 2, at: 1_005_000 }))
    expect(msOf(session({ sequence: 2, at: 1_006_000 }))).toBe(6_000)
    remember(session({ sequence: 2, at: 1_006_000 }))
    expect(msOf(session({ sequence: 2, at: 1_007_000 }))).toBe(7_000)
    expect(remember(session({ sequence: 1, at: 1_008_000 }))).toBeNull()
    expect(msOf(session({ sequence: 3, at: 1_009_000 }))).toBe(3_000)
  })

  it('is separate for sessions that run at the same time', () => {
    const { msOf, remember } = started()
    remember(session({ id: 'one', sequence: 1, at: 1_000_000 }))
    remember(session({ id: 'two', sequence: 7, at: 1_002_000 }))
    expect(msOf(session({ id: 'one', sequence: 2, at: 1_005_000 }))).toBe(5_000)
    expect(msOf(session({ id: 'two', sequence: 8, at: 1_005_000 }))).toBe(3_000)
  })

  it('has a bound for a session that was not seen here', () => {
    const { msOf, remember } = started()
    expect(msOf(session({ sequence: 5 }))).toBe(60_000)
    expect(msOf(session({ sequence: 5, at: 1_000_000, authExpiry: 996 }))).toBe(4_000)
    remember(session({ sequence: 1, at: 1_000_000 }))
    const other = { authId: 'other:b', latest: null }
    expect(msOf(session({ sequence: 2, at: 1_001_000 }), other)).toBe(60_000)
  })
})

describe('spending from memory', () => {
  const later = (SequenceNumber: number, state: object = {}) =>
    firstCall({ state: { SequenceNumber, ...state } })

  // One unit of a fixed job costs two dollars at this price.
  const job = (n: number) => later(n, { Type: 'fixed', InitialPricePerUnit: 666_666_666_666_667 })

  it('asks core again when the known balance is used up, and not before', async () => {
    const { authorize, core } = await startHarness({ env: { SIGNING_TTL_SECONDS: '0' } })
    core.users.set('acme:alice', { micros: 5_000_000n })
    for (const lookups of [0, 0]) {
      expect((await authorize(job(1))).json['status']).toBe(200)
      expect(core.calls.getAccess).toBe(lookups)
    }
    // The two tickets have arrived, and five dollars were granted.
    core.users.set('acme:alice', { micros: 7_000_000n, consumedUsdAttos: (4n * usd).toString() })
    for (const lookups of [1, 1, 1]) {
      expect((await authorize(job(2))).json['status']).toBe(200)
      expect(core.calls.getAccess).toBe(lookups)
    }
  })

  it('counts allowed calls as spent for as long as their events may take to reach core', async () => {
    const { authorize, core, clock } = await startHarness({
      env: { SIGNING_TTL_SECONDS: '0', EVENT_LAG_SECONDS: '20' },
    })
    core.users.set('acme:alice', { micros: 5_000_000n })
    const statuses = []
    for (let n = 0; n < 4; n++) statuses.push((await authorize(job(n))).json['status'])
    // The third was worth more than what is left, but something is left: the one after it is refused.
    expect(statuses).toEqual([200, 200, 200, 483])
    clock.seconds += 5
    expect((await authorize(job(5))).json['status']).toBe(483)
    clock.seconds += 40
    expect((await authorize(job(6))).json['status']).toBe(200)
  })

  it("decides on core's latest answer, and asks for the balance of a user without money once a second", async () => {
    const { authorize, core, clock } = await startHarness()
    const job = (n: number) =>
      later(n, { Type: 'fixed', InitialPricePerUnit: 1_500_000_000_000_000 })
    expect((await authorize(job(0))).json['status']).toBe(200)
    core.users.set('acme:alice', { micros: 0n })
    for (let n = 1; n < 20; n++) expect((await authorize(job(n))).json['status']).toBe(483)
    expect(core.calls.getAccess).toBe(1)
    core.users.set('acme:alice', { micros: 5_000_000n })
    clock.seconds += 1
    expect((await authorize(job(20))).json['status']).toBe(200)
  })

  it('uses an answer once when the cost is not known', async () => {
    const { authorize, core } = await startHarness()
    for (const lookups of [0, 1, 2]) {
      expect((await authorize(later(1, { Type: '' }))).json).toMatchObject({
        status: 200,
        expiry: 0,
      })
      expect(core.calls.getAccess).toBe(lookups)
    }
  })

  it('asks core once for concurrent calls', async () => {
    const { authorize, core, clock } = await startHarness()
    await authorize(firstCall())
    clock.seconds += 11
    core.script.delayMs = 50
    const replies = await Promise.all(Array.from({ length: 50 }, (_, n) => authorize(later(n))))
    expect(replies.every(({ json }) => json['status'] === 200)).toBe(true)
    expect(core.calls.getAccess).toBe(1)
  })

  it('does not let calls that waited for one answer spend more than it says', async () => {
    const { authorize, core, clock } = await startHarness({ env: { SIGNING_TTL_SECONDS: '0' } })
    await authorize(firstCall())
    clock.seconds += 11
    core.script.delayMs = 50
    const calls = Array.from({ length: 50 }, (_, n) => authorize(job(n)))
    const statuses = (await Promise.all(calls)).map(({ json }) => json['status'])
    // Two dollars each, of five: the third is worth more than what is left, the others find nothing.
    expect(statuses.filter((status) => status === 200)).toHaveLength(3)
    expect(statuses.filter((status) => status === 483)).toHaveLength(47)
  })

  it('reads balances as large as core may send', async () => {
    const { authorize, core } = await startHarness()
    core.users.set('acme:alice', { micros: 10n ** 24n, consumedUsdAttos: (10n ** 37n).toString() })
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('lets the signer skip calls for half of what is left, and charges that in advance', async () => {
    const { authorize, core } = await startHarness()
    // A cent a second; the first ten seconds cost ten cents.
    const price = { InitialPricePerUnit: 3_333_333_333_333 }
    core.users.set('acme:alice', { micros: 200_000n })
    expect((await authorize(firstCall({ state: price }))).json['expiry']).toBe(vectorNow + 5)
    core.users.set('acme:alice', { micros: 110_000n, consumedUsdAttos: (usd / 5n).toString() })
    expect((await authorize(firstCall({ state: { ...price, StateID: '1' } }))).json['expiry']).toBe(
      0,
    )
    expect(core.calls.getAccess).toBe(1)
  })

  it('lets the signer skip no call without a rate, and checks the balance alone', async () => {
    const { authorize, core, clock } = await startHarness()
    core.script.usdPerEth = null
    expect((await authorize(firstCall())).json).toMatchObject({ status: 200, expiry: 0 })
    core.users.set('acme:alice', { micros: 0n })
    clock.seconds += 11
    expect((await authorize(firstCall())).json['status']).toBe(483)
  })

  it("forgets a user's access when core says that it changed", async () => {
    const { authorize, core } = await startHarness()
    await authorize(firstCall())
    core.users.set('acme:alice', { micros: 0n })
    core.invalidate('access', 'user-of-acme:alice')
    await until(async () => (await authorize(firstCall())).json['status'] === 483)
    expect(core.calls.verifyApiKey).toBe(1)
  })
})

describe('an advance', () => {
  it('is not charged on top of the time that really passed', async () => {
    const { authorize, core, clock } = await startHarness()
    // A cent a second: ten cents for the first call, and then ten windows of ten seconds.
    core.users.set('acme:alice', { micros: 2_000_000n })
    const at = (second: number) => new Date((vectorNow + second) * 1000).toISOString()
    const price = { InitialPricePerUnit: 3_333_333_333_333 }
    for (let n = 0; n <= 10; n++) {
      const state = {
        ...price,
        SequenceNumber: n,
        LastUpdate: at(n * 11),
        AuthExpiry: n === 0 ? 0 : vectorNow + n * 11 - 1,
      }
      expect((await authorize(firstCall({ state }))).json['status']).toBe(200)
      clock.seconds += 11
    }
  })
})
