import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createStripeProcessor } from '../../core/billing/processor/stripe/adapter.ts'
import {
  type NewCheckout,
  type PaymentProcessor,
  type ProcessorAccount,
  usdCents,
} from '../../core/billing/processor/port.ts'
import { routes } from '../fakes/stripe/routes.ts'
import { startProxy } from './proxy.ts'

/**
 * Sends every request of the adapter to Stripe's own stripe-mock, which checks paths and parameters
 * against Stripe's published description. Its answers are fixtures without state, so these tests
 * prove what Stripe accepts, and test/core/billing/processor proves what the adapter makes of it.
 */
const own: ProcessorAccount = { plane: 'test', account: null }
const connected: ProcessorAccount = { plane: 'test', account: 'acct_1' }

/** In stripe-mock's description, of 2026-08-26, sessions do not have this parameter of 2026-09-30. */
const newer = 'allowed_payment_method_types'
const withoutNewer = (body: string): string =>
  new URLSearchParams(
    [...new URLSearchParams(body)].filter(([name]) => !name.startsWith(newer)),
  ).toString()

let proxy: Awaited<ReturnType<typeof startProxy>>
let processor: PaymentProcessor

beforeAll(async () => {
  proxy = await startProxy(process.env['TEST_STRIPE_MOCK_URL'] ?? '')
  proxy.rewrite = (route, body) =>
    route === 'POST /v1/checkout/sessions' ? withoutNewer(body) : body
  proxy.answers = {
    'POST /v1/checkout/sessions': { url: 'https://checkout.stripe.com/c/pay/cs_1' },
    'GET /v1/checkout/sessions/:id': {
      status: 'complete',
      payment_status: 'paid',
      mode: 'payment',
      amount_total: 2_000,
      created: 1_790_000_000,
      customer: {
        id: 'cus_1',
        object: 'customer',
        metadata: {},
        invoice_settings: { default_payment_method: null },
      },
      payment_intent: { id: 'pi_1', status: 'succeeded', payment_method: 'pm_1' },
      setup_intent: null,
    },
    'GET /v1/payment_intents/:id': {
      status: 'succeeded',
      latest_charge: { id: 'ch_1', disputed: true, amount_refunded: 0 },
    },
    'GET /v1/balance_transactions': {
      data: [
        {
          id: 'txn_1',
          object: 'balance_transaction',
          reporting_category: 'platform_earning_refund',
          amount: -100,
          currency: 'usd',
          fee_details: [],
          source: { id: 'fr_1', object: 'fee_refund', fee: 'fee_1' },
          created: 1_790_000_000,
        },
      ],
      has_more: false,
    },
  }
  const config = {
    live: null,
    test: { secretKey: 'sk_test_0123456789', webhookSecrets: [] },
    apiUrl: proxy.url,
    timeoutMs: 10_000,
  }
  processor = createStripeProcessor(config, () => new Date())
})
afterAll(() => proxy.stop())

const checkout = (fields: Partial<NewCheckout>): NewCheckout => ({
  customer: 'cus_1',
  mode: 'payment',
  amount: usdCents(2_000n),
  fee: usdCents(0n),
  description: 'Credit',
  successUrl: 'https://app.example/paid',
  cancelUrl: 'https://app.example/left',
  reference: 'checkout-1',
  ...fields,
})
const fee = usdCents(100n)
const payment = {
  customer: 'cus_1',
  card: 'pm_1',
  amount: usdCents(500n),
  fee: usdCents(0n),
  description: 'Usage',
  reference: 'collection-1',
}
const urls = { returnUrl: 'https://core.example/back', refreshUrl: 'https://core.example/again' }
const range = { from: new Date('2026-11-01'), to: new Date('2026-11-02') }

/** Calls of every function of the port that sends requests, in all their forms. */
const calls: Record<
  Exclude<keyof PaymentProcessor, 'kind' | 'planes' | 'verifyEvent'>,
  (() => Promise<unknown>)[]
> = {
  createAccount: ['owner@example.com', null].map(
    (email) => () => processor.createAccount('test', { reference: 'app_1', email }, 'key-1'),
  ),
  createOnboardingUrl: [() => processor.createOnboardingUrl(connected, urls)],
  readAccount: [() => processor.readAccount(own), () => processor.readAccount(connected)],
  readBalance: [() => processor.readBalance(connected)],
  listPayouts: [
    () => processor.listPayouts(connected, { limit: 50, after: null }),
    () => processor.listPayouts(connected, { limit: 10, after: 'po_1' }),
  ],
  createCustomer: [own, connected].map(
    (at) => () =>
      processor.createCustomer(at, { reference: 'user-1', description: 'ada' }, 'key-2'),
  ),
  readCard: [() => processor.readCard(own, 'cus_1')],
  hasCustomer: [() => processor.hasCustomer(own, 'cus_1')],
  openCheckout: [
    () => processor.openCheckout(own, checkout({}), 'key-3'),
    () => processor.openCheckout(connected, checkout({ fee }), 'key-4'),
    () => processor.openCheckout(own, checkout({ mode: 'card', amount: null }), 'key-5'),
  ],
  readCheckout: [() => processor.readCheckout(connected, 'cs_1')],
  expireCheckout: [() => processor.expireCheckout(own, 'cs_1')],
  pay: [
    () => processor.pay(own, payment, 'key-6'),
    () => processor.pay(connected, { ...payment, fee }, 'key-7'),
  ],
  readPayment: [() => processor.readPayment(connected, 'pi_1')],
  findPayment: [
    () => processor.findPayment(own, { customer: 'cus_1', reference: 'x', since: range.from }),
  ],
  refund: [
    () =>
      processor.refund(
        own,
        { payment: 'pi_1', amount: usdCents(100n), reference: 'refund-1' },
        'key-8',
      ),
    () =>
      processor.refund(
        connected,
        { payment: 'pi_1', amount: usdCents(100n), reference: 'refund-2', returnsFee: true },
        'key-11',
      ),
  ],
  listRefunds: [() => processor.listRefunds(own, 'pi_1')],
  listMovements: [
    () => processor.listMovements(own, { ...range, after: null }),
    () => processor.listMovements(connected, { ...range, after: 'txn_1' }),
  ],
}

describe('requests to Stripe', () => {
  it.each(Object.entries(calls))('are accepted: %s', async (_, forms) => {
    for (const call of forms) {
      const before = proxy.requests.length
      // An answer may be unclear, because fixtures do not fit together.
      await call().catch(() => {})
      const sent = proxy.requests.slice(before)
      expect(sent.length).toBeGreaterThan(0)
      expect(sent.filter(({ status }) => status !== 200)).toEqual([])
    }
  })

  it('are all routes of the fake, and no others', () => {
    const sent = new Set(proxy.requests.map(({ route }) => route))
    expect([...sent].toSorted()).toEqual(Object.keys(routes).toSorted())
  })

  it('pin the version of the API', () => {
    const versions = new Set(proxy.requests.map(({ version }) => version))
    expect([...versions]).toEqual(['2026-10-28.endive'])
  })

  it('have one parameter that stripe-mock does not know yet, which then needs no exception', async () => {
    const { rewrite } = proxy
    proxy.rewrite = (_, body) => body
    await processor.openCheckout(own, checkout({}), 'key-9').catch(() => {})
    proxy.rewrite = rewrite
    expect(proxy.requests.at(-1)).toMatchObject({
      body: expect.stringContaining(newer),
      status: 400,
      error: expect.stringContaining('additional properties'),
    })
  })

  it('are refused by stripe-mock when a parameter is wrong', async () => {
    const { rewrite } = proxy
    proxy.rewrite = (_, body) => `${body}&no_such_parameter=1`
    await processor.pay(own, payment, 'key-10').catch(() => {})
    proxy.rewrite = rewrite
    expect(proxy.requests.at(-1)).toMatchObject({ status: 400 })
  })
})
