import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { until } from '../../../support/waiting.ts'
import { day } from '../../../core/support.ts'
import { asRecord } from '../../support.ts'
import {
  type Shop,
  balanceOf,
  booked,
  change,
  checkoutOf,
  differences,
  giveCard,
  newPlan,
  newShop,
  newUsagePlan,
  newUser,
  operator,
  planOf,
  real,
  rows,
  send,
  setUpShops,
  stripe,
  subscriptionOf,
  taken,
} from './shops.ts'

/** Moves to plans that must be paid, against a Stripe that keeps state. */

setUpShops()

let shop: Shop
let starter: unknown
beforeAll(async () => {
  shop = await newShop('orders')
  starter = await planOf(shop)
})
beforeEach(async () => {
  shop = { ...shop, user: await newUser(shop) }
  stripe.faults = () => undefined
  stripe.webhooks.plan = () => ({ copies: 1 })
})

const movesTo = (plan: string): Promise<void> => until(async () => (await planOf(shop)) === plan)

const ends = (state: string): Promise<void> =>
  until(async () => (await booked(shop)).orders.at(-1)?.state === state)

describe('without a card on file', () => {
  it('opens a page, changes nothing, and moves the user when the page is paid', async () => {
    const planId = await newPlan(shop, '20.00')
    const before = await subscriptionOf(shop)
    const answer = await change(shop, { planId, successUrl: 'https://shop.example/ok' })
    expect(answer).toEqual({
      status: 200,
      body: {
        subscriptionId: asRecord(before['subscription'])['id'],
        planId: starter,
        effectiveAt: null,
        timing: 'immediate',
        checkoutUrl: expect.stringMatching(/^http/),
      },
    })
    expect(await subscriptionOf(shop)).toEqual(before)
    const session = await checkoutOf(shop)
    stripe.payCheckout(shop.at, session)
    await movesTo(planId)
    expect(asRecord((await subscriptionOf(shop))['subscription'])).toMatchObject({
      status: 'active',
      stripeCheckoutSessionId: session,
    })
    expect(await booked(shop)).toMatchObject({
      orders: [{ state: 'booked' }],
      payments: [{ purpose: 'plan', cents: 2_000, invoiced: true }],
      invoices: [{ reason: 'plan', cents: 2_000 }],
    })
    expect(await balanceOf(shop)).toBe('10000000')
  })

  it('keeps plan and scheduled change when the page is left', async () => {
    const free = await newPlan(shop, '0', {
      type: 'free',
      includedUnits: undefined,
      overageRateWei: undefined,
    })
    await change(shop, { planId: free, timing: 'next_billing_cycle' })
    const before = await subscriptionOf(shop)
    expect(before['pendingPlan']).toMatchObject({ id: free })
    await change(shop, { planId: await newPlan(shop, '20.00') })
    stripe.expireCheckout(shop.at, await checkoutOf(shop))
    await ends('expired')
    expect(await subscriptionOf(shop)).toEqual(before)
    expect(await booked(shop)).toMatchObject({ payments: [], invoices: [] })
  })

  it('leads to one page however often it is requested, and another plan replaces it', async () => {
    const [first, second] = [await newPlan(shop, '20.00'), await newPlan(shop, '30.00')]
    const url = async (planId: string) => (await change(shop, { planId })).body['checkoutUrl']
    const page = await url(first)
    const session = await checkoutOf(shop)
    expect(await url(first)).toBe(page)
    expect(await url(second)).not.toBe(page)
    expect(() => stripe.payCheckout(shop.at, session)).toThrow('expired')
    expect((await booked(shop)).orders.map(({ state }) => state)).toEqual(['expired', 'open'])
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await movesTo(second)
  })

  it('does not wait for a page at a processor that is used no more', async () => {
    const [first, second] = [await newPlan(shop, '20.00'), await newPlan(shop, '30.00')]
    const leave = async (session: string) =>
      real.core.sql.query(`update checkouts set processor = 'simulated' where processor_id = $1`, [
        session,
      ])
    for (const planId of [first, first, second]) {
      const former = await checkoutOf(shop)
      if (former !== '') await leave(former)
      real.core.clock.advance(1_000)
      expect(await change(shop, { planId })).toMatchObject({
        status: 200,
        body: { checkoutUrl: expect.stringMatching(/^http/) },
      })
      expect(await checkoutOf(shop)).not.toBe(former)
    }
    const states = (await booked(shop)).orders.map(({ state }) => state)
    expect(states).toEqual(['failed', 'failed', 'open'])
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await movesTo(second)
  })

  it('only asks for a card for a plan without a price, and for a change at the end of the period', async () => {
    const usage = await newUsagePlan(shop)
    expect((await change(shop, { planId: usage })).body).toMatchObject({ timing: 'immediate' })
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await movesTo(usage)
    expect(await booked(shop)).toMatchObject({ orders: [{ state: 'booked' }], payments: [] })
    shop = { ...shop, user: await newUser(shop) }
    const priced = await newPlan(shop, '15.00')
    await change(shop, { planId: priced, timing: 'next_billing_cycle' })
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await ends('booked')
    expect(await subscriptionOf(shop)).toMatchObject({
      subscription: { planId: starter },
      pendingPlan: { id: priced },
    })
    expect(await booked(shop)).toMatchObject({ payments: [], invoices: [] })
  })

  it('needs none for a plan that is free', async () => {
    const planId = await newPlan(shop, '0', {
      type: 'free',
      includedUnits: undefined,
      overageRateWei: undefined,
    })
    expect(await change(shop, { planId, timing: 'immediate' })).toMatchObject({
      status: 200,
      body: { planId },
    })
  })
})

describe('with a card on file', () => {
  beforeEach(() => giveCard(shop))

  it('charges the first period, then moves the user at once', async () => {
    const planId = await newPlan(shop, '20.00')
    const headers = { 'idempotency-key': randomUUID() }
    const answer = await change(shop, { planId }, headers)
    expect(answer).toMatchObject({ status: 200, body: { planId, timing: 'immediate' } })
    expect(answer.body['checkoutUrl']).toBe(undefined)
    expect(await change(shop, { planId }, headers)).toEqual(answer)
    expect(await booked(shop)).toMatchObject({
      orders: [{ state: 'booked' }],
      payments: [{ purpose: 'plan', cents: 2_000, invoiced: true }],
      invoices: [{ reason: 'plan', cents: 2_000 }],
    })
    expect((await change(shop, { planId })).status).toBe(400)
  })

  it('charges once for ten simultaneous requests', async () => {
    const planId = await newPlan(shop, '23.00')
    const answers = await Promise.all(Array.from({ length: 10 }, () => change(shop, { planId })))
    const statuses = new Set(answers.map(({ status }) => status))
    expect([...statuses].every((status) => [200, 400, 409].includes(status))).toBe(true)
    expect(statuses.has(200)).toBe(true)
    expect(taken(shop).filter((cents) => cents === 2_300)).toHaveLength(1)
    expect((await booked(shop)).payments).toHaveLength(1)
  })

  it('schedules a change at the end of the period without a charge', async () => {
    const planId = await newPlan(shop, '20.00')
    expect(await change(shop, { planId, timing: 'next_billing_cycle' })).toMatchObject({
      status: 200,
      body: { planId: starter, timing: 'next_billing_cycle', pendingPlan: { planId } },
    })
    expect(await booked(shop)).toMatchObject({ orders: [{ state: 'booked' }], payments: [] })
  })

  it('books a charge once whose answer was lost', async () => {
    const planId = await newPlan(shop, '21.00')
    const headers = { 'idempotency-key': randomUUID() }
    let left = 3
    stripe.faults = ({ method, route }) =>
      method === 'POST' && route === '/v1/payment_intents' && left-- > 0
        ? { kind: 'reset after' }
        : undefined
    stripe.webhooks.plan = () => ({ copies: 0 })
    const lost = await change(shop, { planId }, headers)
    expect([lost.status, lost.body['code']]).toEqual([503, 'processor_unreachable'])
    expect(await planOf(shop)).toBe(starter)
    stripe.faults = () => undefined
    expect((await change(shop, { planId })).status).toBe(409)
    real.core.clock.advance(200_000)
    await movesTo(planId)
    expect(await change(shop, { planId }, headers)).toMatchObject({ status: 200, body: { planId } })
    expect(await booked(shop)).toMatchObject({
      payments: [{ cents: 2_100 }],
      orders: [{ state: 'booked' }],
    })
    expect(taken(shop).filter((cents) => cents === 2_100)).toHaveLength(1)
  })

  it('turns the payment into credit if the plan has changed before the page is paid', async () => {
    const planId = await newPlan(shop, '22.00')
    const { clientId, session } = shop.app
    const opened = await send('POST', `/api/v1/apps/${clientId}/billing/checkout`, {
      headers: session,
      body: { planId, externalUserId: shop.user },
    })
    expect(opened).toMatchObject({ status: 200, body: { checkoutUrl: expect.any(String) } })
    const planJson = JSON.stringify({ priceAmount: '25.00' })
    await operator.plans.updatePlan({ clientId, planId, planJson })
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await ends('credited')
    expect(await planOf(shop)).toBe(starter)
    expect(await booked(shop)).toMatchObject({
      orders: [{ problem: expect.stringContaining('costs 25.00 USD now') }],
      payments: [{ purpose: 'top_up', cents: 2_200, invoiced: false }],
      invoices: [],
    })
    expect(await balanceOf(shop)).toBe('27000000')
    const [checkout] = await rows<{ id: string }>(
      'select id from checkouts order by created_at desc limit 1',
    )
    const read = await operator.payments.getCheckout({ clientId, sessionId: checkout?.id ?? '' })
    expect(read).toMatchObject({ status: 'settled', problem: expect.stringContaining('25.00') })
  })

  it('lowers the first price by what is unused of the period that it ends', async () => {
    const [small, large] = [await newPlan(shop, '30.00'), await newPlan(shop, '60.00')]
    const largest = await newPlan(shop, '100.00')
    await change(shop, { planId: small })
    const { body } = await send(
      'GET',
      `/api/v1/apps/${shop.app.clientId}/users/${shop.user}/subscription`,
      {
        headers: { authorization: shop.app.basic },
      },
    )
    const { currentPeriodStart, currentPeriodEnd } = asRecord(body['subscription'])
    const length = Date.parse(String(currentPeriodEnd)) + 1 - Date.parse(String(currentPeriodStart))
    real.core.clock.advance(10 * day)
    await change(shop, { planId: large })
    const left = length - (real.core.clock.now().getTime() - Date.parse(String(currentPeriodStart)))
    const unused = Math.floor((3_000 * left) / length)
    expect((await booked(shop)).payments.map(({ cents }) => cents)).toEqual([3_000, 6_000 - unused])
    // Back down: nothing is paid out, and what is left lowers the next price.
    await change(shop, { planId: small, timing: 'immediate' })
    expect(await booked(shop)).toMatchObject({
      payments: [{}, {}],
      orders: [{}, {}, { state: 'booked' }],
    })
    expect(await planOf(shop)).toBe(small)
    const unbilled = async () => {
      const [row] = await rows<{ left: string }>(
        `select (select sum(amount_attos) from prorations where user_id = u.id)
                + (select sum(amount_attos) from invoice_lines where user_id = u.id and kind = 'proration')
                - (select sum(price_attos) from periods where user_id = u.id)
                + (select sum(amount_attos) from invoice_lines where user_id = u.id and kind = 'subscription') as left
         from end_users u
         where external_user_id = $1 and app_id = (select app_id from clients where client_id = $2)`,
        shop.user,
        shop.app.clientId,
      )
      return Number(BigInt(row?.left ?? '') / 10n ** 16n)
    }
    expect(await unbilled()).toBe(3_000)
    await change(shop, { planId: largest })
    expect(await planOf(shop)).toBe(largest)
    // 100 less the unused 30 of the small plan, and the 30 that the large one has left.
    expect((await booked(shop)).payments).toContainEqual(
      expect.objectContaining({ cents: 4_000, invoiced: true }),
    )
    expect(await unbilled()).toBe(0)
    expect(await differences()).toEqual([])
  })

  /** Waits until the user's returns are booked. */
  const returnsBooked = (count: number) =>
    until(async () => {
      const [row] = await rows<{ n: number }>(
        `select count(booked_at)::int as n from payment_returns r
         join end_users u on u.app_id = r.app_id and u.id = r.user_id where u.external_user_id = $1`,
        shop.user,
      )
      return row?.n === count
    })

  /** Takes a plan. Returns the processor's id of its payment. */
  async function takePlan(price: string): Promise<string> {
    const cents = Number(price.replace('.', ''))
    expect((await change(shop, { planId: await newPlan(shop, price) })).status).toBe(200)
    const intents = [...stripe.world(shop.at).list('payment_intent')]
    return (
      intents.find(({ amount, status }) => amount === cents && status === 'succeeded')?.id ?? ''
    )
  }

  it('books a refund as credit notes, and gives no proration for a refunded price', async () => {
    const payment = await takePlan('31.00')
    stripe.refundPayment(shop.at, payment, 1_100)
    await returnsBooked(1)
    stripe.refundPayment(shop.at, payment)
    await returnsBooked(2)
    const { invoices } = await booked(shop)
    expect(invoices.toSorted((a, b) => b.cents - a.cents)).toEqual([
      { reason: 'plan', cents: 3_100 },
      { reason: 'refund', cents: -1_100 },
      { reason: 'refund', cents: -2_000 },
    ])
    await change(shop, { planId: await newPlan(shop, '61.00') })
    expect((await booked(shop)).payments.map(({ cents }) => cents)).toEqual([3_100, 6_100])
    expect(await differences()).toEqual([])
  })

  it('books a dispute as debt, which ends when it is won', async () => {
    const payment = await takePlan('32.00')
    const debt = async () => {
      const [row] = await rows<{ cents: string }>(
        `select round((overage_attos - collected_attos) / 10::numeric ^ 16) as cents
         from balances b join end_users u on u.app_id = b.app_id and u.id = b.user_id where u.external_user_id = $1`,
        shop.user,
      )
      return Number(row?.cents)
    }
    const { id } = stripe.dispute(shop.at, payment)
    await returnsBooked(1)
    expect(await debt()).toBe(3_200)
    expect((await booked(shop)).invoices).toEqual([{ reason: 'plan', cents: 3_200 }])
    stripe.closeDispute(shop.at, id, 'won')
    await returnsBooked(2)
    expect(await debt()).toBe(0)
    expect(await differences()).toEqual([])
  })
})

describe('a card that is declined', () => {
  it('keeps the plan and what was scheduled', async () => {
    await giveCard(shop, 'card_declined')
    const free = await newPlan(shop, '0', {
      type: 'free',
      includedUnits: undefined,
      overageRateWei: undefined,
    })
    await change(shop, { planId: free, timing: 'next_billing_cycle' })
    const before = await subscriptionOf(shop)
    const planId = await newPlan(shop, '20.00')
    const headers = { 'idempotency-key': randomUUID() }
    const answer = await change(shop, { planId }, headers)
    expect([answer.status, answer.body['code']]).toEqual([402, 'card_declined'])
    expect(await change(shop, { planId }, headers)).toMatchObject({ status: 402 })
    expect(await subscriptionOf(shop)).toEqual(before)
    expect(await booked(shop)).toMatchObject({
      orders: [{ state: 'failed' }],
      payments: [],
      invoices: [],
    })
    await giveCard(shop)
    await until(async () => (await change(shop, { planId })).status === 200)
    expect(await planOf(shop)).toBe(planId)
  })

  it('is followed by a page if the bank wants a confirmation', async () => {
    await giveCard(shop, 'authentication_required')
    const planId = await newPlan(shop, '24.00')
    const { status, body } = await change(shop, { planId })
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({ checkoutUrl: expect.any(String) }),
    ])
    stripe.payCheckout(shop.at, await checkoutOf(shop))
    await movesTo(planId)
    expect(taken(shop).filter((cents) => cents === 2_400)).toHaveLength(1)
  })
})

describe('a processor that does not answer', () => {
  it('changes nothing, and the same request continues, as does another', async () => {
    const [planId, second] = [await newPlan(shop, '26.00'), await newPlan(shop, '27.00')]
    const headers = { 'idempotency-key': randomUUID() }
    stripe.faults = ({ route }) =>
      route === '/v1/checkout/sessions' ? { kind: 'reset before' } : undefined
    expect((await change(shop, { planId }, headers)).status).toBe(503)
    expect(await planOf(shop)).toBe(starter)
    stripe.faults = () => undefined
    expect(await change(shop, { planId }, headers)).toMatchObject({
      status: 200,
      body: { checkoutUrl: expect.any(String) },
    })
    expect((await booked(shop)).orders).toHaveLength(1)
    shop = { ...shop, user: await newUser(shop) }
    stripe.faults = ({ route }) =>
      route === '/v1/checkout/sessions' ? { kind: 'reset before' } : undefined
    expect((await change(shop, { planId })).status).toBe(503)
    stripe.faults = () => undefined
    expect((await change(shop, { planId: second })).status).toBe(200)
    expect((await booked(shop)).orders.map(({ state }) => state)).toEqual(['expired', 'open'])
  })
})

describe('verify', () => {
  it('finds no difference, but a proration of more than the unused price', async () => {
    expect(await differences()).toEqual([])
    await rows('alter table prorations disable trigger user')
    await rows('update prorations set amount_attos = amount_attos * 10')
    await rows('alter table prorations enable trigger user')
    expect(await differences()).toContainEqual(expect.objectContaining({ check: 'payments' }))
  })
})
