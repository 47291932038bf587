import { beforeAll, describe, expect, it } from 'vitest'
import type { ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import { until } from '../../../support/waiting.ts'
import type { RealApp } from '../../real.ts'
import { asRecord } from '../../support.ts'
import { type Answer, newMerchant, operator, real, send, setUpShops, stripe } from './shops.ts'

setUpShops()

const billing = ({ clientId }: RealApp): string => `/api/v1/apps/${clientId}/billing`

const settle = (
  { clientId }: RealApp,
  change: { billingMode?: string; isPlatformOwned?: boolean },
) =>
  operator.billing.updateBillingSettings({
    clientId,
    billingMode: undefined,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
    ...change,
  })

const topUp = (
  app: RealApp,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> =>
  send('POST', `${billing(app)}/wallet/top-up`, {
    headers: { authorization: app.basic, ...headers },
    body,
  })

/** The processor's id of a checkout of ours. */
async function processorId(sessionId: unknown): Promise<string> {
  const { rows } = await real.core.sql.query<{ processor_id: string }>(
    'select processor_id from checkouts where id = $1',
    [sessionId],
  )
  return rows[0]?.processor_id ?? ''
}

const statusOf = async (app: RealApp, sessionId: unknown): Promise<unknown> =>
  (
    await send('GET', `${billing(app)}/wallet/checkouts/${String(sessionId)}`, {
      headers: { authorization: app.basic },
    })
  ).body['status']

const walletOf = async (app: RealApp, externalUserId = 'ada') =>
  (
    await send('GET', `${billing(app)}/wallet?externalUserId=${externalUserId}`, {
      headers: { authorization: app.basic },
    })
  ).body

const balanceOf = async (app: RealApp): Promise<unknown> =>
  asRecord((await walletOf(app))['balance'])['usdMicros']

const paymentsOf = async ({ clientId }: RealApp) =>
  (
    await operator.payments.listPayments({
      clientId,
      externalUserId: undefined,
      limit: 0,
      cursor: undefined,
    })
  ).payments

const eventsWaiting = async (): Promise<number> =>
  (
    await real.core.sql.query<{ n: number }>(
      'select count(*)::int as n from processor_events where handled_at is null',
    )
  ).rows[0]?.n ?? 0

/** Pays a top-up and waits until it is credited. Returns the processor's payment. */
async function pay(app: RealApp, at: ProcessorAccount, amountUsd: string): Promise<string> {
  const { body } = await topUp(app, { amountUsd, externalUserId: 'ada' })
  const session = stripe.payCheckout(at, await processorId(body['sessionId']))
  await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
  return String(session.payment_intent)
}

describe('top-up', () => {
  it('credits the user once when the processor reports the payment', async () => {
    const { app, at } = await newMerchant('shop')
    const answer = await topUp(app, { amountUsd: '25.50', externalUserId: 'ada' })
    expect(answer).toMatchObject({ status: 200, body: { amountUsdMicros: '25500000' } })
    const { sessionId, checkoutUrl } = answer.body
    expect(checkoutUrl).toContain(stripe.url)
    expect(await statusOf(app, sessionId)).toBe('open')
    expect(await balanceOf(app)).toBe('5000000')
    // Late, doubled and reordered events change nothing.
    stripe.webhooks.hold()
    stripe.payCheckout(at, await processorId(sessionId))
    stripe.webhooks.release((events) => [...events, ...events].toReversed())
    await until(async () => (await statusOf(app, sessionId)) === 'settled')
    expect(await balanceOf(app)).toBe('30500000')
    const [payment, ...others] = await paymentsOf(app)
    expect(others).toEqual([])
    expect(payment).toMatchObject({
      externalUserId: 'ada',
      purpose: 'top_up',
      amountUsd: '25.50',
      refundedUsd: '0.00',
      plane: 'live',
    })
    expect(await walletOf(app)).toMatchObject({
      billingMode: 'merchant',
      payer: 'ada',
      paymentMethod: { hasDefault: true, brand: 'visa' },
      payPerUsePlans: [],
      autoTopUp: null,
    })
  })

  it("fills the owner's wallet in billing mode owner_rollup, for all apps that it owns", async () => {
    const app = await real.newApp('rollup')
    const answer = await topUp(app, { amountUsd: '40', externalUserId: 'ada' })
    expect(answer.status).toBe(200)
    const platform: ProcessorAccount = { plane: 'live', account: null }
    stripe.payCheckout(platform, await processorId(answer.body['sessionId']))
    await until(async () => (await statusOf(app, answer.body['sessionId'])) === 'settled')
    expect(await walletOf(app)).toMatchObject({
      billingMode: 'owner_rollup',
      payer: expect.stringMatching(/^account:/),
      balance: { usdMicros: '45000000' },
      paymentMethod: { hasDefault: true },
    })
    const plan = await send('GET', `${billing(app)}/owner-plan`, { headers: app.session })
    expect(plan.body['balanceUsdMicros']).toBe('45000000')
    await settle(app, { isPlatformOwned: true })
    expect(await topUp(app, { amountUsd: '40' })).toMatchObject({ status: 409 })
  })

  it('sends events of checkouts, payments and refunds to webhooks', async () => {
    const { app, at } = await newMerchant('hooks')
    const endpoints = `/api/v1/apps/${app.clientId}/webhook-endpoints`
    const eventTypes = ['checkout.completed', 'payment.succeeded', 'payment.refunded']
    const created = await send('POST', endpoints, {
      headers: app.session,
      body: { url: 'https://hooks.invalid/tollgate', eventTypes },
    })
    expect(created.status).toBe(201)
    stripe.refundPayment(at, await pay(app, at, '20'))
    const deliveries = `${endpoints}/${String(asRecord(created.body['endpoint'])['id'])}/deliveries`
    await until(async () => {
      const { body } = await send('GET', deliveries, { headers: app.session })
      const items: unknown[] = Array.isArray(body['deliveries']) ? body['deliveries'] : []
      const sent = items.map((item) => String(asRecord(item)['eventType'])).toSorted()
      return sent.join() === eventTypes.toSorted().join()
    })
    expect((await paymentsOf(app))[0]).toMatchObject({ refundedUsd: '20.00' })
  })

  it('does not count toward the quota of manual credit', async () => {
    const { app, at } = await newMerchant('quota')
    await pay(app, at, '900')
    await pay(app, at, '900')
    const quota = await operator.creditQuotas.getCreditQuota({ clientId: app.clientId })
    expect(quota.outstandingUsdMicros).toBe('0')
    const given = await send('POST', `/api/v1/apps/${app.clientId}/users/ada/allowances`, {
      headers: { authorization: app.basic },
      body: { amountUsdMicros: '900000000' },
    })
    expect(given.status).toBe(200)
  })

  it('opens one checkout for a repeated request, and refuses another body', async () => {
    const { app } = await newMerchant('repeats')
    const headers = { 'idempotency-key': 'order-1' }
    const body = { amountUsd: 10, externalUserId: 'ada' }
    const answers = await Promise.all([
      topUp(app, body, headers),
      topUp(app, body, headers),
      topUp(app, body, headers),
    ])
    const done = answers.filter(({ status }) => status === 200)
    expect(done.length).toBeGreaterThan(0)
    for (const { status } of answers) expect([200, 409]).toContain(status)
    const again = await topUp(app, body, headers)
    expect(new Set([...done, again].map(({ body }) => body['checkoutUrl'])).size).toBe(1)
    const other = await topUp(app, { ...body, amountUsd: 11 }, headers)
    expect(other).toMatchObject({ status: 409, body: { code: 'idempotency_conflict' } })
  })

  it('finds a payment that no event reported', async () => {
    const { app, at } = await newMerchant('silent')
    const { body } = await topUp(app, { amountUsd: '5', externalUserId: 'ada' })
    stripe.webhooks.plan = () => ({ copies: 0 })
    stripe.payCheckout(at, await processorId(body['sessionId']))
    stripe.webhooks.plan = () => ({})
    expect(await statusOf(app, body['sessionId'])).toBe('open')
    real.core.clock.advance(61_000)
    await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
    expect(await balanceOf(app)).toBe('10000000')
  })

  it('is not asked for at another processor than the one that has it', async () => {
    const { app, at } = await newMerchant('former')
    const [headers, body] = [
      { 'idempotency-key': 'order-1' },
      { amountUsd: '5', externalUserId: 'ada' },
    ]
    const { sessionId } = (await topUp(app, body, headers)).body
    const session = await processorId(sessionId)
    await real.core.sql.query(`update checkouts set processor = 'simulated' where id = $1`, [
      sessionId,
    ])
    stripe.webhooks.plan = () => ({ copies: 0 })
    stripe.payCheckout(at, session)
    stripe.webhooks.plan = () => ({})
    expect(await topUp(app, body, headers)).toMatchObject({
      status: 409,
      body: { code: 'idempotency_conflict' },
    })
    const other = await topUp(app, body)
    stripe.payCheckout(at, await processorId(other.body['sessionId']))
    await until(async () => (await statusOf(app, other.body['sessionId'])) === 'settled')
    real.core.clock.advance(24 * 3_600_000)
    const later = await topUp(app, body)
    stripe.webhooks.plan = () => ({ copies: 0 })
    stripe.payCheckout(at, await processorId(later.body['sessionId']))
    stripe.webhooks.plan = () => ({})
    real.core.clock.advance(61_000)
    // The sweep takes the oldest first.
    await until(async () => (await statusOf(app, later.body['sessionId'])) === 'settled')
    expect(await statusOf(app, sessionId)).toBe('open')
    real.core.clock.advance(3_600_000)
    await until(async () => (await statusOf(app, sessionId)) === 'failed')
    expect(await balanceOf(app)).toBe('15000000')
    const { differences: open } = await operator.processorReconciliation.listProcessorDifferences({
      open: true,
      limit: 0,
      cursor: undefined,
    })
    const found = open.filter(({ processorPaymentId }) => processorPaymentId === session)
    expect(found).toMatchObject([{ problem: 'unknown', ours: '500', subject: 'payment' }])
  })

  it('waits for a payment that is decided later', async () => {
    const { app, at } = await newMerchant('slow')
    const { body } = await topUp(app, { amountUsd: '7', externalUserId: 'ada' })
    const id = await processorId(body['sessionId'])
    stripe.payCheckout(at, id, { outcome: 'processing' })
    await until(async () => (await statusOf(app, body['sessionId'])) === 'processing')
    expect(await balanceOf(app)).toBe('5000000')
    stripe.settleCheckout(at, id, 'paid')
    await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
    expect(await balanceOf(app)).toBe('12000000')
  })

  it('credits nothing for a checkout that expired or failed', async () => {
    const { app, at } = await newMerchant('left')
    const left = await topUp(app, { amountUsd: '5', externalUserId: 'ada' })
    stripe.expireCheckout(at, await processorId(left.body['sessionId']))
    const failed = await topUp(app, { amountUsd: '6', externalUserId: 'ada' })
    const id = await processorId(failed.body['sessionId'])
    stripe.payCheckout(at, id, { outcome: 'processing' })
    stripe.settleCheckout(at, id, 'failed')
    await until(async () => (await statusOf(app, left.body['sessionId'])) === 'expired')
    await until(async () => (await statusOf(app, failed.body['sessionId'])) === 'failed')
    expect(await balanceOf(app)).toBe('5000000')
    expect(await paymentsOf(app)).toEqual([])
  })

  it.each([['0.99'], ['10000.01'], ['5.001'], ['-5'], ['1e3'], [''], [0.1 + 0.2], ['٥']])(
    'refuses the amount %s',
    async (amountUsd) => {
      const { app } = await merchant
      const answer = await topUp(app, { amountUsd, externalUserId: 'ada' })
      expect(answer).toMatchObject({ status: 422, body: { code: 'amount_invalid' } })
    },
  )

  it('refuses a missing or unknown user, and an app without a connected account', async () => {
    const { app } = await merchant
    expect(await topUp(app, { amountUsd: '5' })).toMatchObject({
      status: 400,
      body: { detail: 'externalUserId is required when billingMode is merchant' },
    })
    expect(await topUp(app, { amountUsd: '5', externalUserId: 'nobody' })).toMatchObject({
      status: 404,
    })
    const other = await real.newApp('unconnected')
    await settle(other, { billingMode: 'merchant' })
    expect(await topUp(other, { amountUsd: '5', externalUserId: 'ada' })).toMatchObject({
      status: 403,
      body: { code: 'stripe_connect_required' },
    })
  })

  it('answers 503 while the processor does not answer, and can be repeated', async () => {
    const { app } = await merchant
    const headers = { 'idempotency-key': 'order-down' }
    stripe.faults = ({ route }) =>
      route === '/v1/checkout/sessions' ? { kind: 'refuse', status: 503, fields: {} } : undefined
    const down = await topUp(app, { amountUsd: '5', externalUserId: 'ada' }, headers)
    expect(down).toMatchObject({ status: 503, body: { code: 'processor_unreachable' } })
    stripe.faults = () => undefined
    const up = await topUp(app, { amountUsd: '5', externalUserId: 'ada' }, headers)
    expect(up.status).toBe(200)
    const { rows } = await real.core.sql.query('select id from checkouts where id = $1', [
      up.body['sessionId'],
    ])
    expect(rows).toHaveLength(1)
  })

  it('hides the checkouts of other apps', async () => {
    const { app } = await merchant
    const { body } = await topUp(app, { amountUsd: '5', externalUserId: 'ada' })
    const other = await real.newApp('stranger')
    const read = await send(
      'GET',
      `${billing(other)}/wallet/checkouts/${String(body['sessionId'])}`,
      { headers: { authorization: other.basic } },
    )
    expect(read.status).toBe(404)
  })
})

let merchant: Promise<{ app: RealApp; at: ProcessorAccount }>
beforeAll(async () => {
  merchant = newMerchant('refusals')
  await merchant
})

describe('card', () => {
  it('is on file after its page, and gone when it is removed at the processor', async () => {
    const { app, at } = await newMerchant('cards')
    const opened = await send('POST', `${billing(app)}/payment-method`, {
      headers: { authorization: app.basic },
      body: { externalUserId: 'ada' },
    })
    expect(opened.status).toBe(200)
    expect((await walletOf(app))['paymentMethod']).toMatchObject({ hasDefault: false })
    stripe.payCheckout(at, await processorId(opened.body['sessionId']))
    const card = async () => asRecord((await walletOf(app))['paymentMethod'])
    await until(async () => (await card())['hasDefault'] === true)
    const { rows } = await real.core.sql.query<{ card_id: string }>(
      `select card_id from processor_customers k join clients c on c.app_id = k.app_id where c.client_id = $1`,
      [app.clientId],
    )
    stripe.removeCard(at, rows[0]?.card_id ?? '')
    await until(async () => (await card())['hasDefault'] === false)
  })
})

describe('refund', () => {
  it('takes back what is left of the credit', async () => {
    const { app, at } = await newMerchant('refunds')
    const payment = await pay(app, at, '20')
    expect(await balanceOf(app)).toBe('25000000')
    stripe.refundPayment(at, payment, 500)
    await until(async () => (await balanceOf(app)) === '20000000')
    const [row] = await paymentsOf(app)
    expect(row).toMatchObject({ refundedUsd: '5.00', disputedUsd: '0.00' })
    const refund = { clientId: app.clientId, paymentId: row?.id ?? '', idempotencyKey: 'r-1' }
    const done = await operator.payments.refundPayment({ ...refund, amountUsd: undefined })
    expect(done.refundedUsd).toBe('15.00')
    expect(await operator.payments.refundPayment({ ...refund, amountUsd: undefined })).toEqual(done)
    await expect(
      operator.payments.refundPayment({ ...refund, amountUsd: '1' }),
    ).rejects.toMatchObject({ reason: 'IDEMPOTENCY_CONFLICT' })
    await until(async () => (await balanceOf(app)) === '5000000')
    await expect(
      operator.payments.refundPayment({ ...refund, amountUsd: '1', idempotencyKey: 'r-2' }),
    ).rejects.toMatchObject({ reason: 'CONFLICT' })
  })

  it('turns what is spent into overage', async () => {
    const { app, at } = await newMerchant('spent')
    const payment = await pay(app, at, '20')
    // Takes the included usage first, then 19 dollars of the top-up.
    await operator.allowances.createAdjustment({
      clientId: app.clientId,
      externalUserId: 'ada',
      amountUsdMicros: '-24000000',
      reason: 'spent',
      author: 'test',
      eventId: undefined,
      uncovered: undefined,
      idempotencyKey: undefined,
    })
    stripe.refundPayment(at, payment)
    await until(async () => (await balanceOf(app)) === '0')
    const { rows } = await real.core.sql.query<{ overage: string }>(
      `select b.overage_attos / 10::numeric ^ 18 as overage from balances b
       join clients c on c.app_id = b.app_id and c.client_id = $1
       join end_users u on u.app_id = b.app_id and u.id = b.user_id and u.external_user_id = 'ada'`,
      [app.clientId],
    )
    expect(Number(rows[0]?.overage)).toBe(19)
  })

  it('is undone when it fails, and a dispute when it is won', async () => {
    const { app, at } = await newMerchant('disputes')
    const payment = await pay(app, at, '20')
    const refund = stripe.refundPayment(at, payment, 500)
    await until(async () => (await balanceOf(app)) === '20000000')
    stripe.failRefund(at, refund.id)
    await until(async () => (await balanceOf(app)) === '25000000')
    const dispute = stripe.dispute(at, payment)
    await until(async () => (await balanceOf(app)) === '5000000')
    stripe.closeDispute(at, dispute.id, 'won')
    await until(async () => (await balanceOf(app)) === '25000000')
    const [row] = await paymentsOf(app)
    expect(row).toMatchObject({ refundedUsd: '0.00', disputedUsd: '0.00' })
  })

  it('lists transactions whose deltas add up to the balances', async () => {
    const { app, at } = await newMerchant('story')
    const payment = await pay(app, at, '20')
    stripe.refundPayment(at, payment, 700)
    await until(async () => (await balanceOf(app)) === '18000000')
    const page = await send(
      'GET',
      `${billing(app)}/wallet/transactions?externalUserId=ada&limit=2`,
      { headers: { authorization: app.basic } },
    )
    expect(page.body).toMatchObject({
      degraded: false,
      items: [
        {
          type: 'refund',
          amountUsdMicros: '7000000',
          creditDeltaUsdMicros: '-7000000',
          balanceUsdMicros: '18000000',
        },
        { type: 'credit_purchased', creditDeltaUsdMicros: '20000000' },
      ],
    })
    const cursor = String(page.body['nextCursor'])
    const rest = await send(
      'GET',
      `${billing(app)}/wallet/transactions?externalUserId=ada&cursor=${cursor}`,
      { headers: { authorization: app.basic } },
    )
    expect(rest.body).toMatchObject({
      items: [{ type: 'credit_granted', balanceUsdMicros: '5000000' }],
    })
  })
})

describe('the webhook of the processor', () => {
  it('refuses a forged, an old and an unsigned event', async () => {
    const post = (headers: Readonly<Record<string, string>>) =>
      fetch(`${real.url}/webhooks/stripe`, { method: 'POST', headers, body: '{"id":"evt_1"}' })
    const unsigned = await post({ 'content-type': 'application/json' })
    expect(unsigned.status).toBe(401)
    const forged = await post({ 'stripe-signature': 't=1,v1=00' })
    expect(forged.status).toBe(401)
    expect(asRecord(await forged.json())['code']).toBe('signature_invalid')
  })

  it("ignores another app's checkout that an event names", async () => {
    const first = await newMerchant('victim')
    const second = await newMerchant('attacker')
    const { body } = await topUp(first.app, { amountUsd: '9', externalUserId: 'ada' })
    // The attacker copies the reference to a session of its own account.
    const session = stripe
      .world(first.at)
      .get('checkout.session', await processorId(body['sessionId']))
    const own = await topUp(second.app, { amountUsd: '9', externalUserId: 'ada' })
    const id = await processorId(own.body['sessionId'])
    Object.assign(stripe.world(second.at).get('checkout.session', id), {
      client_reference_id: session.client_reference_id,
      metadata: session.metadata,
    })
    stripe.payCheckout(second.at, id)
    await stripe.webhooks.idle()
    await until(async () => (await eventsWaiting()) === 0)
    expect(await statusOf(first.app, body['sessionId'])).toBe('open')
    expect(await balanceOf(first.app)).toBe('5000000')
    expect(await paymentsOf(second.app)).toEqual([])
  })
})
