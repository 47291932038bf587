import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Limits } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import {
  type CallOptions,
  type TestSidecar,
  attos,
  authorisation,
  moneyOf,
  startSidecar,
} from '../escrow/granting.ts'
import { envelope } from '../../metering/harness.ts'
import { type TestApp, type TestCore, second, startTestCore } from '../../support.ts'

let core: TestCore
let app: TestApp
let sidecar: TestSidecar
let keyId: string
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  sidecar = await startSidecar(core.as())
  await core.as(app.basic).upsertUser(ada())
  keyId = (await core.as(app.basic).createKey(ada())).keyId
})

const ada = () => ({ clientId: app.clientId, externalUserId: 'ada' })
const set = (limits: Partial<Limits>, key?: string) =>
  core.as(app.basic).updateLimits({ ...ada(), keyId: key, limits: { maxPrices: [], ...limits } })
const lend = (call: Parameters<TestSidecar['lend']>[2] = {}) => sidecar.lend(app, 'ada', call)
const live = (maxWei: string) => ({ type: 'live', app: '', maxWei })

let sequence = 0
const priced = { priceWei: '1300', priceUnits: '1', app: 'acme/echo' }
const reserve = ({ more = {}, ...call }: CallOptions = {}, of: TestSidecar = sidecar) =>
  of.reserve(app, 'ada', { sequence: (sequence += 1), ...call, more: { ...priced, ...more } })
const refusal = async (call: CallOptions = {}): Promise<string> => {
  const answer = await reserve(call)
  return answer.limit || answer.refusal || 'allowed'
}

describe('a lease', () => {
  it.each([
    ['with limits', () => undefined],
    ['with limits of a key', () => keyId],
  ])('is not lent to a user %s until they are removed', async (_, key) => {
    await set({ callsPerMinute: 100 }, key())
    core.clock.advance(10 * second)
    expect((await lend()).lease).toBeUndefined()
    await core.as(app.basic).deleteLimits({ ...ada(), keyId: key() })
    expect((await lend()).lease).toBeDefined()
  })

  it('is recalled when the first limit is set, even by another core', async () => {
    const other = await core.startAnother()
    const far = await startSidecar(other.as())
    const { lease, userId } = await far.lend(app, 'ada')
    expect(lease).toBeDefined()
    await set({ callsPerMinute: 100 })
    const { recalled } = await far.report(app, 'ada', {})
    expect(recalled).toEqual([userId])
    expect((await far.lend(app, 'ada', { leaseId: lease?.id ?? '' })).lease).toBeUndefined()
    core.clock.advance(11 * second)
    expect((await lend()).lease).toBeUndefined()
  })

  it('counts what it covered before the limit was set', async () => {
    const { lease } = await lend({ boundUsdAttos: attos(0.1) })
    const call = (n: number, bound: number) =>
      authorisation({ sequence: n, bound, more: { leaseId: lease?.id ?? '' } })
    await sidecar.report(app, 'ada', { calls: [call(1, 0.1)] })
    await set({ usdMicrosPerDay: '500000' })
    await sidecar.report(app, 'ada', { calls: [call(2, 0.2)] })
    expect(await refusal({ bound: 0.3 })).toBe('usd_per_day')
    expect(await refusal({ bound: 0.2 })).toBe('allowed')
    expect(await refusal({ bound: 0.01 })).toBe('usd_per_day')
  })
})

describe('a reservation', () => {
  it('is refused with the name and the end of the limit, and holds nothing', async () => {
    await set({ usdMicrosPerDay: '500000' })
    const midnight = new Date(core.clock.now())
    midnight.setUTCHours(24, 0, 0, 0)
    expect(await reserve({ bound: 0.6 })).toMatchObject({
      refusal: 'limit_exceeded',
      limit: 'usd_per_day',
      limitEndsAt: BigInt(midnight.getTime()),
      recalled: false,
    })
    expect(await moneyOf(core, app, 'ada')).toMatchObject({ pending: 0 })
    await set({ usdMicrosPerSession: '500000' })
    expect(await reserve({ bound: 0.6 })).toMatchObject({
      limit: 'usd_per_session',
      limitEndsAt: 0n,
    })
    await set({ callsPerMinute: 1, concurrentSessions: 1 })
    expect(await refusal()).toBe('allowed')
    expect(await refusal()).toBe('calls_per_minute')
    expect(await refusal({ session: 's2' })).toBe('concurrent_sessions')
    await set({ maxPrices: [live('1299')] })
    expect(await refusal()).toBe('max_price')
    expect(await refusal({ more: { priceWei: '1299' } })).toBe('allowed')
    expect(await refusal({ more: { priceWei: '2599', priceUnits: '2' } })).toBe('max_price')
    for (const price of [{ priceWei: '' }, { priceUnits: '0' }, { priceWei: '-1' }])
      expect(await refusal({ more: price })).toBe('max_price')
  })

  it('counts for its user and its key unless it is refused', async () => {
    await set({ usdMicrosPerDay: '300000' })
    await set({ usdMicrosPerDay: '200000' }, keyId)
    const more = { keyId }
    expect(await refusal({ bound: 0.3, more })).toBe('usd_per_day')
    expect(await refusal({ bound: 0.2, more })).toBe('allowed')
    expect(await refusal({ bound: 0.1, more })).toBe('usd_per_day')
    expect(await refusal({ bound: 0.1 })).toBe('allowed')
  })

  it('does not count when it is refused for lack of money', async () => {
    await set({ usdMicrosPerDay: '9000000' })
    expect(await refusal({ bound: 5.1 })).toBe('insufficient_balance')
    expect(await refusal({ bound: 5 })).toBe('allowed')
  })

  it('returns the price ceilings of user and key; a lease returns those of the user', async () => {
    await set({ maxPrices: [live('2000')] })
    await set({ maxPrices: [live('1500')] }, keyId)
    expect((await reserve()).ceilings).toEqual([live('2000')])
    expect((await reserve({ more: { keyId } })).ceilings).toEqual([live('2000'), live('1500')])
    expect((await lend()).ceilings).toEqual([live('2000')])
  })

  it('never exceeds a limit, with 20 concurrent calls through two cores', async () => {
    const other = await core.startAnother()
    const sidecars = [sidecar, await startSidecar(other.as())]
    await set({ usdMicrosPerDay: '750000', callsPerMinute: 15 })
    const parallel = async (bound: number) => {
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, i) => reserve({ bound, session: `s${i}` }, sidecars[i % 2])),
      )
      return answers.filter((answer) => answer.refusal === '').length
    }
    expect(await parallel(0.1)).toBe(7)
    core.clock.advance(60 * second)
    expect(await parallel(0.001)).toBe(15)
  })

  it('counts its cost when the ticket comes', async () => {
    await set({ usdMicrosPerDay: '300000' })
    expect(await refusal({ bound: 0.3 })).toBe('allowed')
    expect(await refusal({ bound: 0.1 })).toBe('usd_per_day')
    const event = envelope({
      auth_id: `${app.clientId}:ada`,
      session_id: 's1',
      sequence_number: sequence - 1,
      current_time: '2026-03-10T12:00:00.250000789Z',
      // 0.06 USD at 3000 USD for one ETH.
      computed_fee: '20000000000000',
    })
    await core.as().ingestEvents({ envelopes: [event] })
    expect(await moneyOf(core, app, 'ada')).toMatchObject({ pending: 0 })
    expect(await refusal({ bound: 0.25 })).toBe('usd_per_day')
    expect(await refusal({ bound: 0.24 })).toBe('allowed')
  })
})
