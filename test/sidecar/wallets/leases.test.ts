import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type CoreDouble, startCoreDouble } from '../../fakes/sidecar-core.ts'
import { firstCall } from '../signer-bodies.ts'
import { type Harness, startHarness, until, vectorNow } from '../support.ts'

/** Ten seconds at this price are 0.03 USD; a fixed unit is 0.003 USD. */
const price = { InitialPricePerUnit: 10 ** 12 }
const second = (seconds: number) => new Date((vectorNow + seconds) * 1000).toISOString()
const call = (state: object, key?: string) =>
  firstCall({ ...(key !== undefined && { key }), state: { ...price, ...state } })
const fixed = (SequenceNumber: number, state: object = {}) =>
  call({ Type: 'fixed', SequenceNumber, ...state })
const nanos = (usd: number) => `${Math.round(usd * 1e9)}000000000`
const holds = (core: CoreDouble) => core.escrow.holds.get('acme:alice')
const leases = (core: CoreDouble) => holds(core)?.leases.size ?? 0
const status = async (harness: Harness, body: object) =>
  (await harness.authorize(body)).json['status']
/** Returns a function that returns the elapsed seconds. */
function stopwatch(): () => number {
  const started = performance.now()
  return () => (performance.now() - started) / 1000
}
const isAway = async ({ metrics }: Harness) =>
  /^tollgate_sidecar_core_away(?:\{.*\})? 1$/m.test(await metrics.metrics())

describe('a lease', () => {
  it('pays for calls from memory, and core holds their bounds (K24, K25)', async () => {
    const harness = await startHarness()
    const { core } = harness
    for (let n = 0; n < 3; n++) expect(await status(harness, fixed(n))).toBe(200)
    expect(core.calls).toMatchObject({ lend: 1, reserve: 0, verifyApiKey: 1 })
    await until(() => core.escrow.authorisations.length === 3)
    expect(core.escrow.authorisations.map(({ sequence }) => Number(sequence))).toEqual([0, 1, 2])
    expect(core.escrow.authorisations[0]).toMatchObject({
      user: 'acme:alice',
      sessionId: '9f86d081',
      type: 'fixed',
      boundUsdAttos: nanos(0.003),
      offline: false,
    })
    expect(holds(core)?.pending).toBe(3n * 3_000_000n * 10n ** 9n)
  })

  it('is renewed in the background when half is spent', async () => {
    const harness = await startHarness()
    // The lease covers four calls, and the third passes the half.
    for (let n = 0; n < 3; n++) await status(harness, fixed(n))
    await until(() => harness.core.calls.lend === 2)
    for (let n = 3; n < 6; n++) expect(await status(harness, fixed(n))).toBe(200)
    expect(harness.core.calls.reserve).toBe(0)
  })

  it('is renewed while in use, after a third of its time', async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    expect(harness.core.calls.lend).toBe(1)
    harness.clock.seconds += 8
    await until(() => harness.core.calls.lend === 2)
  })

  it('is returned after ten unused seconds', async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    expect(leases(harness.core)).toBe(1)
    harness.clock.seconds += 11
    await until(() => leases(harness.core) === 0)
    expect(await status(harness, fixed(1))).toBe(200)
  })

  it('is returned when core recalls it', async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    expect(leases(harness.core)).toBe(1)
    harness.core.invalidate('lease', 'user-of-acme:alice')
    await until(() => leases(harness.core) === 0)
  })

  it("is returned when core recalls all leases of its app, and of no other app's", async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    harness.core.invalidate('leases', 'other')
    harness.core.invalidate('lease', 'user-of-acme:bob')
    expect(leases(harness.core)).toBe(1)
    harness.core.invalidate('leases', 'acme')
    await until(() => leases(harness.core) === 0)
  })

  it('is returned when the sidecar stops, after reporting the calls that it paid for', async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    await harness.sidecar.stop()
    expect([leases(harness.core), harness.core.escrow.authorisations.length]).toEqual([0, 1])
    expect(harness.core.escrow.reports.at(-1)).toMatchObject({ stopped: true })
  })

  it('ends two seconds before its end in core', async () => {
    const harness = await startHarness()
    const passed = stopwatch()
    await status(harness, fixed(0))
    harness.core.script.frozen = true
    await until(() => isAway(harness))
    harness.clock.seconds += 27 - passed()
    await until(async () => (await status(harness, fixed(1))) === 200)
    harness.clock.seconds += 1.1
    expect(await status(harness, fixed(2))).toBe(503)
  })

  it('ignores changes of the wall clock', async () => {
    const harness = await startHarness()
    await status(harness, fixed(0))
    for (const wall of [-86_400, 86_400 * 365]) {
      harness.clock.wall = wall
      expect(await status(harness, fixed(1))).toBe(200)
    }
  })

  it('ends after a suspension that only the wall clock has counted', async () => {
    const harness = await startHarness()
    const passed = stopwatch()
    await status(harness, fixed(0))
    harness.core.script.frozen = true
    await until(() => isAway(harness))
    harness.clock.wall = 27 - passed()
    await until(async () => (await status(harness, fixed(1))) === 200)
    harness.clock.wall += 1.1
    expect(await status(harness, fixed(2))).toBe(503)
  })

  it('pays for the calls of all keys of its user', async () => {
    const harness = await startHarness()
    const { core } = harness
    core.keys.set('sk_live_second', {
      clientId: 'acme',
      externalUserId: 'alice',
      keyId: randomUUID(),
    })
    await status(harness, fixed(0))
    expect(await status(harness, call({ Type: 'fixed' }, 'sk_live_second'))).toBe(200)
    expect(core.calls).toMatchObject({ lend: 1, reserve: 0 })
  })

  it('is dropped when core deactivates the user', async () => {
    const harness = await startHarness()
    const { core } = harness
    expect(await status(harness, fixed(0))).toBe(200)
    core.users.set('acme:alice', { micros: 5_000_000n, active: false })
    core.invalidate('access', 'user-of-acme:alice')
    await until(async () => (await status(harness, fixed(1))) === 403)
    await until(() => leases(core) === 0)
  })
})

describe('a call without a covering lease', () => {
  it('is reserved at core, to the last nano-dollar', async () => {
    const harness = await startHarness()
    const { core } = harness
    core.users.set('acme:alice', { micros: 9_001n })
    const statuses = []
    for (let n = 0; n < 4; n++) statuses.push(await status(harness, fixed(n)))
    expect(statuses).toEqual([200, 200, 200, 483])
    expect(core.calls.reserve).toBeGreaterThan(0)
    await until(() => core.escrow.authorisations.length === 3)
  })

  it.each([
    [429, 'usd_per_day', 'limit usd_per_day: the USD of this day are used up'],
    [429, 'usd_per_session', 'limit usd_per_session: the USD of this session are used up'],
    [429, 'calls_per_minute', 'limit calls_per_minute: the calls of this minute are used up'],
    [429, 'concurrent_sessions', 'limit concurrent_sessions: too many sessions at the same time'],
    [
      403,
      'max_price',
      'limit max_price: the price is above the ceiling for this type and application',
    ],
    [429, 'of_tomorrow', 'limit of_tomorrow: it is reached'],
  ])('is refused with %i for limit %s, with its end', async (...row) => {
    const [expected, limit, reason] = row
    const harness = await startHarness()
    const { escrow } = harness.core
    Object.assign(escrow, { lendsNothing: true, limit })
    const code = 'limit_exceeded'
    expect((await harness.authorize(fixed(0))).json).toMatchObject({
      status: expected,
      reason,
      code,
    })
    escrow.limitEndsAt = BigInt(Date.parse('2026-03-11T00:00:00Z'))
    expect((await harness.authorize(fixed(1))).json).toMatchObject({
      status: expected,
      reason: `${reason}, until 2026-03-11T00:00:00.000Z`,
      code,
    })
  })

  it('is refused with 503 without a usable rate', async () => {
    const harness = await startHarness()
    harness.core.script.usdPerEth = null
    const code = async () => (await harness.authorize(fixed(0))).json['code']
    await until(async () => (await code()) === 'rate_unavailable')
    harness.core.script.usdPerEth = 3000n
    expect(await status(harness, fixed(0))).toBe(200)
  })

  it('recalls money that another sidecar does not need', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const [one, two] = [await startHarness({ core }), await startHarness({ core })]
    core.users.set('acme:alice', { micros: 16_001n })
    expect(await status(one, fixed(0))).toBe(200)
    const statuses = []
    for (let n = 0; n < 5; n++) statuses.push(await status(two, fixed(n, { StateID: 'two' })))
    expect(statuses).toEqual([200, 200, 200, 200, 483])
    expect(leases(core)).toBe(0)
  })

  it('shares the balance between two sidecars without exceeding it', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const pair = [await startHarness({ core }), await startHarness({ core })]
    core.users.set('acme:alice', { micros: 100_001n })
    const replies = await Promise.all(
      Array.from({ length: 60 }, (_, n) => {
        const harness = pair[n % 2]
        return harness ? status(harness, fixed(0, { StateID: `0000${n}` })) : null
      }),
    )
    // 0.003 USD each.
    expect(replies.filter((reply) => reply === 200)).toHaveLength(33)
  })

  it('proves the previous call when it is refused', async () => {
    const harness = await startHarness()
    const { core } = harness
    core.users.set('acme:alice', { micros: 3_001n })
    expect(await status(harness, fixed(4))).toBe(200)
    for (let n = 0; n < 3; n++) expect(await status(harness, fixed(5))).toBe(483)
    const refused = () =>
      core.escrow.reports.flatMap(({ users }) => users.flatMap((user) => user.refused))
    await until(() => refused().length > 0)
    expect(refused()).toEqual([{ sessionId: '9f86d081', sequence: 5n }])
  })
})

describe('a session that began at another sidecar', () => {
  const bounds = (core: CoreDouble) =>
    core.escrow.authorisations.map(
      ({ boundUsdAttos }) => Math.round(Number(boundUsdAttos) / 1e14) / 1e4,
    )

  it('is bounded by the prior call in core', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const one = await startHarness({ core })
    await status(one, call({ SequenceNumber: 0, LastUpdate: second(0) }))
    await status(one, call({ SequenceNumber: 1, LastUpdate: second(4) }))
    await one.sidecar.stop()
    const two = await startHarness({ core })
    expect(await status(two, call({ SequenceNumber: 2, LastUpdate: second(9) }))).toBe(200)
    // An older state; the first call with its number was at the other sidecar.
    expect(await status(two, call({ SequenceNumber: 1, LastUpdate: second(20) }))).toBe(200)
    expect(await status(two, call({ SequenceNumber: 2, LastUpdate: second(24) }))).toBe(200)
    await two.sidecar.stop()
    expect(bounds(core)).toEqual([0.03, 0.012, 0.015, 0.06, 0.06])
  })

  it('requires a request to core for each call, at the first process, too', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const [one, two] = [await startHarness({ core }), await startHarness({ core })]
    await status(one, call({ SequenceNumber: 0, LastUpdate: second(0) }))
    await until(() => core.escrow.authorisations.length === 1)
    await status(two, call({ SequenceNumber: 1, LastUpdate: second(1) }))
    await until(() => core.escrow.authorisations.length === 2)
    // Both processes know by then that the session is shared, so the state of number 1 counts as
    // old in both.
    await new Promise((resolve) => setTimeout(resolve, 700))
    await status(one, call({ SequenceNumber: 1, LastUpdate: second(60) }))
    core.escrow.unheardMs = 70_000
    await status(one, call({ SequenceNumber: 2, LastUpdate: second(61) }))
    await one.sidecar.stop()
    expect(bounds(core)).toEqual([0.03, 0.003, 0.18, 0.21])
  })

  it('is bounded by the longest gap when core does not know it', async () => {
    const harness = await startHarness()
    expect(await status(harness, call({ SequenceNumber: 7 }))).toBe(200)
    await harness.sidecar.stop()
    expect(bounds(harness.core)).toEqual([2.7])
  })

  it('waits half a second for a report that may be in flight', async () => {
    const harness = await startHarness()
    harness.core.escrow.unheardMs = 1
    const started = performance.now()
    expect(await status(harness, call({ SequenceNumber: 7 }))).toBe(200)
    expect(performance.now() - started).toBeGreaterThan(490)
    await harness.sidecar.stop()
    expect(bounds(harness.core)).toEqual([2.7])
  })

  it('waits for a report in flight', async () => {
    const harness = await startHarness()
    harness.core.escrow.unheardMs = 1
    const answer = status(harness, call({ SequenceNumber: 7, LastUpdate: second(7) }))
    await until(() => holds(harness.core) !== undefined)
    const sessions = holds(harness.core)?.sessions
    sessions?.set('9f86d081', new Map([[6n, { seconds: BigInt(vectorNow), nanos: 0 }]]))
    expect(await answer).toBe(200)
    await harness.sidecar.stop()
    expect(bounds(harness.core)).toEqual([0.021])
  })

  /** A state at a thousandth of the usual price; a lease covers many. */
  const cheap = (SequenceNumber: number, seconds: number) =>
    call({ SequenceNumber, LastUpdate: second(seconds), InitialPricePerUnit: 10 ** 9 })

  it('costs one request to core, even for repeated and contradictory states', async () => {
    const harness = await startHarness()
    const { core } = harness
    const repeated = Array.from({ length: 20 }, () => status(harness, cheap(184, 0)))
    expect(new Set(await Promise.all(repeated))).toEqual(new Set([200]))
    const asked = core.calls.lend
    expect(asked).toBeLessThanOrEqual(2)
    for (const [number, seconds] of [
      [184, 1_000],
      [184, -100],
      [90, 0],
      [185, 10],
      [1, 20],
    ] as const)
      expect(await status(harness, cheap(number, seconds))).toBe(200)
    expect(core.calls.lend).toBe(asked)
    await harness.sidecar.stop()
    const seconds = core.escrow.authorisations.map(({ boundUsdAttos }) =>
      Math.round(Number(boundUsdAttos) / 3e12),
    )
    // The unknown prior call is assumed to be 900 s older; 184 was first called at -100 s.
    expect(seconds).toEqual([...Array.from({ length: 20 }, () => 900), 1900, 900, 900, 110, 920])
  })

  it('costs one request for calls below those in memory', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const one = await startHarness({ core })
    for (const [number, seconds] of [
      [0, 0],
      [5, 30],
    ] as const)
      await status(one, cheap(number, seconds))
    await until(() => core.escrow.authorisations.length === 2)
    // Simulate that the same process had evicted the session.
    const owner = core.escrow.owners.get('9f86d081')
    await one.sidecar.stop()
    const two = await startHarness({ core })
    expect(await status(two, call({ Type: 'fixed', SequenceNumber: 0, StateID: 'b' }))).toBe(200)
    await until(() => core.escrow.owners.has('b'))
    const { instance = '' } = core.escrow.owners.get('b') ?? {}
    core.escrow.owners.set('9f86d081', { instance, isShared: owner?.isShared ?? false })
    expect(await status(two, cheap(3, 40))).toBe(200)
    const asked = core.calls.lend
    for (const [number, seconds] of [
      [3, 50],
      [2, 60],
      [6, 70],
    ] as const)
      expect(await status(two, cheap(number, seconds))).toBe(200)
    expect(core.calls.lend).toBe(asked)
    await two.sidecar.stop()
    const seconds = core.escrow.authorisations.flatMap(({ sessionId, boundUsdAttos }) =>
      sessionId === '9f86d081' ? [Math.round(Number(boundUsdAttos) / 3e12)] : [],
    )
    expect(seconds).toEqual([10, 30, 40, 50, 60, 40])
  })
})

describe('a promised window', () => {
  const env = { SIGNING_TTL_SECONDS: '10' }

  it('is paid in advance, together with its call', async () => {
    const { authorize, core, sidecar } = await startHarness({ env })
    const { json } = await authorize(call({ LastUpdate: second(0) }))
    expect(json['expiry']).toBe(vectorNow + 10)
    await sidecar.stop()
    // Ten seconds for the first call, and eleven until the end of the last promised one.
    expect(core.escrow.authorisations[0]?.boundUsdAttos).toBe(nanos(0.063))
  })

  it('is limited to what half of the lease pays for', async () => {
    const { authorize, core } = await startHarness({ env })
    core.users.set('acme:alice', { micros: 200_000n })
    // A lease of 0.05: after 0.03 for the first call, half of the rest pays for three seconds.
    expect((await authorize(call({ LastUpdate: second(0) }))).json['expiry']).toBe(vectorNow + 2)
  })

  it.each([
    [-3, 0],
    [-2, 10],
    [2, 10],
    [3, 0],
  ])("with a signer's clock that is %i s off is %i s", async (off, seconds) => {
    const { authorize } = await startHarness({ env })
    const { json } = await authorize(call({ LastUpdate: second(off) }))
    expect(json['expiry']).toBe(seconds === 0 ? 0 : vectorNow + off + seconds)
  })

  it("is not debited again at the session's next call", async () => {
    const harness = await startHarness({ env })
    const { core, clock } = harness
    // Ten seconds for the first call, and five windows of eleven: 0.195; debited twice it would be
    // 0.327.
    core.users.set('acme:alice', { micros: 260_000n })
    for (let n = 0; n < 5; n++) {
      const state = {
        SequenceNumber: n,
        LastUpdate: second(n * 11),
        AuthExpiry: n === 0 ? 0 : vectorNow + n * 11 - 1,
      }
      expect([n, await status(harness, call(state))]).toEqual([n, 200])
      const { report } = core.calls
      clock.seconds += 11
      // Wait for contact with core, because a call is assumed to bill at least the time since the
      // last contact.
      await until(() => core.calls.report > report + 1)
    }
  })
})
