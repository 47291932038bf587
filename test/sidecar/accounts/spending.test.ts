import { describe, expect, it } from 'vitest'
import { firstCall } from '../signer-bodies.ts'
import { startHarness, vectorNow } from '../support.ts'

/** The webhook vectors of docs/signer-protocol.md, by number. */
describe('the allowance of a user', () => {
  it('19: refuses a user without money with 483', async () => {
    const { authorize } = await startHarness()
    const { transport, text } = await authorize(firstCall({ key: 'sk_live_poor' }))
    expect(transport).toBe(200)
    expect(text).toBe(
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
    expect((await authorize(firstCall())).json['status']).toBe(200)
    core.stop()
    expect((await authorize(firstCall())).json['status']).toBe(200)
    clock.seconds += 11
    expect((await authorize(firstCall())).json).toMatchObject({
      status: 503,
      code: 'billing_unavailable',
    })
  })

  it('21: allows exactly the minimum and refuses one below', async () => {
    const { authorize, core, clock } = await startHarness({ env: { ACCESS_MIN_USD_MICROS: '100' } })
    core.users.set('acme:alice', { micros: 100n })
    expect((await authorize(firstCall())).json['status']).toBe(200)
    core.users.set('acme:alice', { micros: 99n })
    clock.seconds += 11
    expect((await authorize(firstCall())).json['status']).toBe(483)
  })

  it('K24, K25: releases calls without an event after two lags, once, and counts their cost as missing', async () => {
    const { authorize, core, clock, metrics } = await startHarness({
      env: { EVENT_LAG_SECONDS: '20' },
    })
    // Ten seconds at 10^12 wei each are 0.03 USD: all there is.
    core.users.set('acme:alice', { micros: 30_000n })
    const call = (StateID: string) =>
      authorize(firstCall({ state: { StateID, InitialPricePerUnit: 10 ** 12 } }))
    const missing = async () =>
      /^tollgate_sidecar_missing_usd_total(?:\{.*\})? (.+)$/m.exec(await metrics.metrics())?.[1]
    expect((await call('00000001')).json['status']).toBe(200)
    expect((await call('00000002')).json['status']).toBe(483)
    clock.seconds += 15
    expect((await call('00000002')).json['status']).toBe(483)
    expect(await missing()).toBe('0')
    clock.seconds += 30
    expect((await call('00000002')).json['status']).toBe(200)
    expect(Number(await missing())).toBeCloseTo(0.03, 6)
    expect(await metrics.metrics()).toMatch(/^tollgate_sidecar_allowed_usd_total(?:\{.*\})? 0\.06/m)
  })

  it('24: lets the signer skip no call of fixed and untyped sessions', async () => {
    const { authorize } = await startHarness()
    for (const Type of ['fixed', '', 'else', 7]) {
      expect((await authorize(firstCall({ state: { Type } }))).json).toMatchObject({
        status: 200,
        expiry: 0,
      })
    }
  })

  it('25: reads a state of v0.8.11, without App and Type', async () => {
    const { authorize } = await startHarness()
    const { json } = await authorize(firstCall({ state: { App: undefined, Type: undefined } }))
    expect(json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
  })

  it('26: ignores members it does not know', async () => {
    const { authorize } = await startHarness()
    const state = { AuthPolicy: 'x', AuthMaxPrice: { price: 1 }, ManifestID: 'm' }
    expect((await authorize(firstCall({ state }))).json).toMatchObject({
      status: 200,
      expiry: vectorNow + 10,
    })
  })

  it('27: decides by the credential alone, with expiry 0, when there is no state', async () => {
    const { authorize } = await startHarness()
    const { headers } = firstCall()
    for (const state of [undefined, null, 'x', [], 7]) {
      expect((await authorize({ headers, state })).json).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
        expiry: 0,
      })
    }
  })

  it('29: reads an instant with offset and nanoseconds', async () => {
    const { authorize, core } = await startHarness()
    const state = {
      SequenceNumber: 1,
      Type: 'live',
      LastUpdate: '2026-09-14T12:16:12.123456789+02:00',
    }
    await authorize(firstCall({ state }))
    const later = { ...state, SequenceNumber: 2, LastUpdate: '2026-09-14T10:16:17.123456789Z' }
    expect((await authorize(firstCall({ state: later }))).json['status']).toBe(200)
    expect(core.calls.getAccess).toBe(0)
  })

  it('30: ignores a hostile balance, time or price, and then lets the signer skip no call', async () => {
    const { authorize } = await startHarness()
    const expiry = async (state: object) => (await authorize(firstCall({ state }))).json
    for (const Balance of ['6000/7', '0', '49999999880000']) {
      expect(await expiry({ Balance })).toMatchObject({ status: 200, expiry: vectorNow + 10 })
    }
    for (const state of [
      { Balance: '1/0' },
      { Balance: 'abc' },
      { Balance: 7 },
      { LastUpdate: 'yesterday' },
      { LastUpdate: 3 },
      { InitialPricePerUnit: -1 },
      { InitialPricePerUnit: 1.5 },
      { InitialPricePerUnit: '12' },
      { InitialPricePerUnit: 1e300 },
      { InitialPixelsPerUnit: 0 },
      { SequenceNumber: -1, Balance: '-7' },
    ]) {
      expect(await expiry(state)).toMatchObject({ status: 200, expiry: 0 })
    }
  })

  it("42: adds the operator's ceiling in the unit of the session type", async () => {
    const env = {
      MAX_PRICE_LIVE_WEI: '1300',
      MAX_PRICE_LV2V_WEI: '7',
      MAX_PRICE_FIXED_WEI: '900719925474099267',
    }
    const { authorize } = await startHarness({ env })
    const text = async (Type: string) => (await authorize(firstCall({ state: { Type } }))).text
    expect(await text('live')).toContain(
      '"maxPrice":{"price":1300,"currency":"wei","unit":"seconds"}}',
    )
    expect(await text('lv2v')).toContain(
      '"maxPrice":{"price":7,"currency":"wei","unit":"720p-pixel-seconds"}}',
    )
    expect(await text('fixed')).toContain(
      '"maxPrice":{"price":900719925474099267,"currency":"wei","unit":"fixed"}}',
    )
    expect(await text('')).not.toContain('maxPrice')
  })
})
