import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { until } from '../../../support/waiting.ts'
import type { RealApp } from '../../real.ts'
import {
  type Shop,
  booked,
  change,
  checkoutOf,
  differences,
  newPlan,
  newShop,
  newUsagePlan,
  newUser,
  openCheckout,
  operator,
  planOf,
  real,
  rows,
  send,
  setUpShops,
  stripe,
  taken,
} from './shops.ts'

/** POST …/billing/checkout, and what payments for plans refuse. */

setUpShops()

let shop: Shop
let other: Shop
let rollup: RealApp
beforeAll(async () => {
  shop = await newShop('checkouts')
  other = await newShop('neighbour')
  rollup = await real.newApp('rollup')
})
beforeEach(async () => {
  shop = { ...shop, user: await newUser(shop) }
  stripe.faults = () => undefined
  stripe.webhooks.plan = () => ({ copies: 1 })
})

const asBody = (planId: string, externalUserId = shop.user) => ({ planId, externalUserId })
const outcome = async (body: object, headers = {}) => {
  const answer = await openCheckout(shop, body, headers)
  return [answer.status, answer.body['code'] ?? answer.body['detail']]
}

describe('POST …/billing/checkout', () => {
  it('opens a page for the first period, and moves the user when it is paid', async () => {
    const planId = await newPlan(shop, '12.00')
    const before = await planOf(shop)
    const { status, body } = await openCheckout(shop, asBody(planId))
    expect([status, Object.keys(body).toSorted()]).toEqual([200, ['checkoutUrl', 'subscriptionId']])
    expect(await planOf(shop)).toBe(before)
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await until(async () => (await planOf(shop)) === planId)
    expect(taken(shop)).toContain(1_200)
    expect(await outcome(asBody(planId))).toEqual([400, 'request_invalid'])
  })

  it('leads to the same page for the same Idempotency-Key, and refuses another body', async () => {
    const [planId, second] = [await newPlan(shop, '13.00'), await newPlan(shop, '13.00')]
    const key = { 'idempotency-key': randomUUID() }
    const first = await openCheckout(shop, asBody(planId), key)
    expect(await openCheckout(shop, asBody(planId), key)).toEqual(first)
    expect(await outcome(asBody(second), key)).toEqual([409, 'idempotency_conflict'])
  })

  it('refuses another body with the key of a request that the processor did not answer', async () => {
    const [planId, second] = [await newPlan(shop, '13.00'), await newPlan(shop, '13.00')]
    const key = { 'idempotency-key': randomUUID() }
    stripe.faults = ({ route }) =>
      route === '/v1/checkout/sessions' ? { kind: 'reset before' } : undefined
    expect(await outcome(asBody(planId), key)).toEqual([503, 'processor_unreachable'])
    stripe.faults = () => undefined
    const elsewhere = { ...asBody(planId), successUrl: 'https://shop.example/other' }
    for (const body of [asBody(second), elsewhere])
      expect(await outcome(body, key)).toEqual([409, 'idempotency_conflict'])
    expect((await openCheckout(shop, asBody(planId), key)).status).toBe(200)
  })

  it('refuses in the order of its description', async () => {
    const planId = await newPlan(shop, '13.00')
    const refuse = (body: object, code: string, status: number) =>
      expect(outcome(body)).resolves.toEqual([status, code])
    await refuse({}, 'request_invalid', 400)
    await refuse({ planId }, 'request_invalid', 400)
    await refuse(asBody(planId, 'nobody'), 'not_found', 404)
    await refuse(asBody(randomUUID()), 'not_found', 404)
    await refuse(asBody(await newPlan(other, '13.00')), 'not_found', 404)
    await refuse(asBody(await newPlan(shop, '13.00', { status: 'inactive' })), 'conflict', 409)
    const free = { type: 'free', includedUnits: undefined, overageRateWei: undefined }
    await refuse(asBody(await newPlan(shop, '0', free)), 'conflict', 409)
    expect((await booked(shop)).orders).toEqual([])
  })

  it('is for members who may edit the app', async () => {
    const body = asBody(await newPlan(shop, '13.00'))
    const path = `/api/v1/apps/${shop.app.clientId}/billing/checkout`
    const status = async (headers: Readonly<Record<string, string>>) =>
      (await send('POST', path, { headers, body })).status
    expect(await status({})).toBe(401)
    expect(await status({ authorization: shop.app.basic })).toBe(401)
    expect(await status(other.app.session)).toBe(404)
    expect(await status(shop.app.session)).toBe(200)
  })

  it('is refused for an app that is not connected, before the plan is looked for', async () => {
    const path = `/api/v1/apps/${rollup.clientId}/billing/checkout`
    const request = { headers: rollup.session, body: asBody(randomUUID(), 'ada') }
    // Tests run with the gate in its default mode, log; so the plan is what is missing.
    expect((await send('POST', path, request)).status).toBe(404)
    const planId = await newPlan({ app: rollup }, '13.00')
    const sold = { headers: rollup.session, body: asBody(planId, 'ada') }
    expect(await send('POST', path, sold)).toMatchObject({
      status: 403,
      body: { code: 'stripe_connect_required' },
    })
  })

  it('is opened by an operator over gRPC, too', async () => {
    const planId = await newPlan(shop, '13.00')
    const { checkoutUrl } = await operator.payments.createPlanCheckout({
      clientId: shop.app.clientId,
      externalUserId: shop.user,
      planId,
    })
    expect(checkoutUrl).toMatch(/^http/)
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await until(async () => (await planOf(shop)) === planId)
  })
})

describe('users of an app in the billing mode owner_rollup', () => {
  it('pay nothing, so that they need no card', async () => {
    const user = await newUser({ app: rollup })
    const usage = await newUsagePlan({ app: rollup })
    const own = { app: rollup, at: shop.at, user }
    expect(await change(own, { planId: usage })).toMatchObject({
      status: 200,
      body: { planId: usage },
    })
  })
})

describe('money of another tenant', () => {
  it('moves no user, whatever its event names', async () => {
    const [mine, theirs] = [await newPlan(shop, '17.00'), await newPlan(other, '17.00')]
    const neighbour = { ...other, user: await newUser(other) }
    await change(shop, { planId: mine })
    await change(neighbour, { planId: theirs })
    const before = await planOf(shop)
    // The neighbour pays; then its page names the order of this app.
    const session = stripe.world(other.at).get('checkout.session', await checkoutOf(neighbour))
    const [order] = (await booked(shop)).orders
    const [app] = await rows<{ app_id: string }>(
      'select app_id from clients where client_id = $1',
      shop.app.clientId,
    )
    Object.assign(session, { client_reference_id: `${app?.app_id}/${order?.id}` })
    stripe.payCheckout(other.at, session.id)
    await stripe.webhooks.idle()
    expect(await planOf(shop)).toBe(before)
    expect(await booked(shop)).toMatchObject({ orders: [{ state: 'open' }], payments: [] })
    expect(await booked(neighbour)).toMatchObject({ orders: [{ state: 'open' }], payments: [] })
    expect(await differences()).toEqual([])
  })

  it('cannot take a plan of another app, nor for a user of another app', async () => {
    const planId = await newPlan(other, '17.00')
    expect((await change(shop, { planId })).status).toBe(404)
    const foreign = { ...shop, user: other.user }
    expect((await change(foreign, { planId: await newPlan(shop, '17.00') })).status).toBe(404)
  })
})
