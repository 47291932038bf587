import { describe, expect, it } from 'vitest'
import { firstCall } from '../signer-bodies.ts'
import type { CoreDouble } from '../../fakes/sidecar-core.ts'
import { type Reply, startHarness, until, vectorNow, withoutDecision } from '../support.ts'

describe('the retail ratio of a plan', () => {
  const ratio = (times: number): string => `${times}${'0'.repeat(18)}`
  const bounds = (core: CoreDouble): string[] =>
    core.escrow.authorisations.map(({ boundUsdAttos }) => boundUsdAttos)

  it("from a reservation's answer is used to bound the call", async () => {
    const { authorize, core } = await startHarness()
    const state = { InitialPricePerUnit: 10 ** 12 }
    Object.assign(core.escrow, { lendsNothing: true, retailRatioNow: ratio(2) })
    core.users.set('acme:alice', { micros: 60_000n })
    expect((await authorize(firstCall({ state }))).json['status']).toBe(200)
    expect(bounds(core)).toEqual([`6${'0'.repeat(16)}`])
    expect((await authorize(firstCall({ state }))).json['status']).toBe(483)
  })

  it('that changes constantly is refused with 503, and nothing is reserved', async () => {
    const { authorize, core } = await startHarness()
    Object.assign(core.escrow, { lendsNothing: true })
    let times = 2
    Object.defineProperty(core.escrow, 'retailRatioNow', { get: () => ratio(times++) })
    expect((await authorize(firstCall())).json).toMatchObject({
      status: 503,
      code: 'billing_unavailable',
    })
    expect(bounds(core)).toEqual([])
  })
})

/** The webhook vectors of docs/signer-protocol.md, by number. */
describe("a user's money", () => {
  it('19: refuses a user without money with 483', async () => {
    const { authorize } = await startHarness()
    const { transport, text } = await authorize(firstCall({ key: 'sk_live_poor' }))
    expect(transport).toBe(200)
    expect(withoutDecision(text)).toBe(
      '{"status":483,"reason":"insufficient balance","code":"insufficient_balance"}',
    )
  })

  it('20: answers 503 in the body, in time, when core is slow or down', async () => {
    const { authorize, core, clock } = await startHarness()
    core.script.delayMs = 1500
    const started = performance.now()
    expect((await authorize(firstCall())).json).toMatchObject({
      status: 503,
      code: 'authorization_unavailable',
    })
    expect(performance.now() - started).toBeLessThan(2000)
    core.script.delayMs = 0
    await untilAllowed(() => authorize(firstCall()))
    core.stop()
    expect((await authorize(firstCall())).json['status']).toBe(200)
    clock.seconds += 29
    expect((await authorize(firstCall())).json).toMatchObject({
      status: 503,
      code: 'billing_unavailable',
    })
  })

  it('21: allows a call that costs exactly the balance, and refuses one nano-dollar more', async () => {
    const { authorize, core } = await startHarness({ env: { UNTYPED_CALL_USD: '0.0001' } })
    const untyped = (StateID: string) => authorize(firstCall({ state: { Type: '', StateID } }))
    core.users.set('acme:alice', { micros: 100n })
    expect((await untyped('00000001')).json['status']).toBe(200)
    expect((await untyped('00000002')).json['status']).toBe(483)
    core.users.set('tenant_a:user_42', { micros: 99n })
    const call = firstCall({ key: 'sk_live_tenant', state: { Type: '' } })
    expect((await authorize(call)).json['status']).toBe(483)
  })

  it('22: allows only as many of fifty concurrent first calls as the balance pays for', async () => {
    const { authorize, core } = await startHarness()
    // Ten seconds at 10^12 wei each are 0.03 USD.
    core.users.set('acme:alice', { micros: 300_001n })
    const first = (_: unknown, n: number) =>
      authorize(firstCall({ state: { StateID: `0000${n}`, InitialPricePerUnit: 10 ** 12 } }))
    const replies = await Promise.all(Array.from({ length: 50 }, first))
    const statuses = replies.map(({ json }) => json['status'])
    expect(statuses.filter((status) => status === 200)).toHaveLength(10)
    expect(statuses.filter((status) => status === 483)).toHaveLength(40)
  })

  it('23: counts a replayed state as a separate call', async () => {
    const { authorize, core } = await startHarness()
    core.users.set('acme:alice', { micros: 60_001n })
    const replay = (LastUpdate: string) =>
      authorize(firstCall({ state: { LastUpdate, InitialPricePerUnit: 10 ** 12 } }))
    const statuses = []
    for (const second of [31, 32, 33])
      statuses.push((await replay(`2026-09-14T10:15:${second}Z`)).json['status'])
    expect(statuses).toEqual([200, 200, 483])
  })

  it('24: lets the signer skip no calls of fixed and untyped sessions', async () => {
    const env = { SIGNING_TTL_SECONDS: '10', UNTYPED_CALL_USD: '0.01' }
    const { authorize } = await startHarness({ env })
    for (const Type of ['fixed', '', 'else', 7]) {
      expect((await authorize(firstCall({ state: { Type } }))).json).toMatchObject({
        status: 200,
        expiry: 0,
      })
    }
  })

  it('25: reads a state of v0.8.11, without App and Type', async () => {
    const { authorize, core } = await startHarness({ env: { UNTYPED_CALL_USD: '0.01' } })
    const { json } = await authorize(firstCall({ state: { App: undefined, Type: undefined } }))
    expect(json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
    await untilReported(core)
    expect(core.escrow.authorisations[0]).toMatchObject({
      approximate: true,
      type: '',
      boundUsdAttos: '10000000000000000',
    })
  })

  it('26: ignores unknown members', async () => {
    const { authorize } = await startHarness()
    const state = { AuthPolicy: 'x', AuthMaxPrice: { price: 1 }, ManifestID: 'm' }
    expect((await authorize(firstCall({ state }))).json).toMatchObject({ status: 200, expiry: 0 })
  })

  it('27: decides by the credential and the balance, with expiry 0, without a state', async () => {
    const { authorize, core } = await startHarness()
    const { headers } = firstCall()
    for (const state of [undefined, null, 'x', [], 7, {}]) {
      expect((await authorize({ headers, state })).json).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
        expiry: 0,
      })
    }
    expect(
      (await authorize({ headers: firstCall({ key: 'sk_live_poor' }).headers })).json,
    ).toMatchObject({ status: 483 })
    expect(core.escrow.authorisations).toEqual([])
  })

  it('29: reports an instant with offset to the nanosecond', async () => {
    const { authorize, core } = await startHarness()
    const LastUpdate = '2026-09-14T12:16:12.123456789+02:00'
    await authorize(firstCall({ state: { LastUpdate } }))
    await untilReported(core)
    expect(core.escrow.authorisations[0]).toMatchObject({
      signedSeconds: 1_789_380_972n,
      signedNanos: 123_456_789,
      approximate: false,
    })
  })

  it('30: promises nothing for a hostile balance, and refuses states that could never be settled', async () => {
    const env = { SIGNING_TTL_SECONDS: '10' }
    const { authorize } = await startHarness({ env })
    const answer = async (state: object) => (await authorize(firstCall({ state }))).json
    const real = `${2n ** 255n}${2n ** 256n - 1n}/${2n ** 256n - 1n}${2n ** 256n - 1n}`
    for (const Balance of ['6000/7', '0', '49999999880000', real]) {
      expect(await answer({ Balance })).toMatchObject({ status: 200, expiry: vectorNow + 10 })
    }
    for (const Balance of ['1/0', 'abc', 7, '-7', '9'.repeat(2_000)]) {
      expect(await answer({ Balance })).toMatchObject({ status: 200, expiry: 0 })
    }
    for (const state of [
      { LastUpdate: 'yesterday' },
      { LastUpdate: 3 },
      { SequenceNumber: -1 },
      { SequenceNumber: 2 ** 60 },
      { StateID: '' },
      { StateID: { a: 1 } },
    ]) {
      expect(await answer(state)).toMatchObject({ status: 400, code: 'invalid_state' })
    }
  })

  it('30: refuses a hostile price like a missing one, with the setting in the reason', async () => {
    const { authorize } = await startHarness()
    for (const state of [
      { InitialPricePerUnit: -1 },
      { InitialPricePerUnit: 1.5 },
      { InitialPricePerUnit: '12' },
      { InitialPricePerUnit: 1e300 },
      { InitialPixelsPerUnit: 0 },
      { Type: '' },
    ]) {
      const { json } = await authorize(firstCall({ state }))
      expect(json).toMatchObject({ status: 403, code: 'untyped_call' })
      expect(json['reason']).toContain('UNTYPED_CALL_USD')
    }
  })

  it('refuses an absurd price with 483', async () => {
    const { authorize } = await startHarness()
    const body = JSON.stringify(firstCall({ state: { Type: 'lv2v' } }))
    for (const digits of ['9223372036854775807', '1000000000000000000']) {
      const dear = body.replace('"InitialPricePerUnit":12000', `"InitialPricePerUnit":${digits}`)
      expect((await authorize(dear)).json).toMatchObject({ status: 483 })
    }
  })
})

describe('the price ceiling', () => {
  const env = {
    MAX_PRICE_LIVE_WEI: '13000',
    MAX_PRICE_LV2V_WEI: '7',
    MAX_PRICE_FIXED_WEI: '900719925474099267',
    UNTYPED_CALL_USD: '0.01',
  }
  const priceOf = async (harness: Awaited<ReturnType<typeof startHarness>>, state: object) =>
    (await harness.authorize(firstCall({ state }))).text

  it("42: is the operator's in the unit of the session type", async () => {
    const harness = await startHarness({ env })
    expect(await priceOf(harness, { Type: 'live' })).toContain(
      '"maxPrice":{"price":13000,"currency":"wei","unit":"seconds"}}',
    )
    expect(await priceOf(harness, { Type: 'lv2v' })).toContain(
      '"maxPrice":{"price":7,"currency":"wei","unit":"720p-pixel-seconds"}}',
    )
    expect(await priceOf(harness, { Type: 'fixed' })).toContain(
      '"maxPrice":{"price":900719925474099267,"currency":"wei","unit":"fixed"}}',
    )
    expect(await priceOf(harness, { Type: '' })).not.toContain('maxPrice')
  })

  it("is the user's if lower, for its application", async () => {
    const harness = await startHarness({ env })
    harness.core.escrow.ceilings = [
      { type: 'live', app: 'acme/echo', maxWei: '9000' },
      { type: 'live', app: '', maxWei: '12500' },
      { type: 'fixed', app: '', maxWei: '1000000000000000000' },
    ]
    expect(await priceOf(harness, {})).toContain('"price":9000,')
    expect(await priceOf(harness, { App: 'acme/other' })).toContain('"price":12500,')
    expect(await priceOf(harness, { Type: 'fixed' })).toContain('"price":900719925474099267,')
  })

  it("is also the key's when core reserves the call", async () => {
    const harness = await startHarness({ env })
    const { escrow } = harness.core
    Object.assign(escrow, { lendsNothing: true })
    escrow.ceilings = [{ type: 'live', app: '', maxWei: '9000' }]
    escrow.ceilingsOfKey = [{ type: 'live', app: '', maxWei: '8000' }]
    expect(await priceOf(harness, {})).toContain('"price":8000,')
    escrow.ceilingsOfKey = []
    expect(await priceOf(harness, {})).toContain('"price":9000,')
  })
})

const untilAllowed = (ask: () => Promise<Reply>): Promise<void> =>
  until(async () => (await ask()).json['status'] === 200)

const untilReported = ({ escrow }: CoreDouble): Promise<void> =>
  until(() => escrow.authorisations.length > 0)
