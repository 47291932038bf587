import { describe, expect, it, onTestFinished } from 'vitest'
import { createStripeProcessor } from '../../../../core/billing/processor/stripe/adapter.ts'
import type { ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import type { CardBehaviour } from '../../../fakes/stripe/world.ts'
import { startStripe } from '../../../fakes/stripe/stripe.ts'
import {
  type Behaviour,
  type ProcessorDriver,
  cardOnly,
  cents,
  collection,
  connect,
  customerAt,
  describePort,
  live,
  newKey,
  payerAt,
  reasonOf,
  test,
  topUp,
} from './port-contract.ts'

const behaviours: Readonly<Record<Behaviour, CardBehaviour>> = {
  good: 'good',
  declined: 'card_declined',
  confirmation: 'authentication_required',
}

async function open(now: () => Date = () => new Date()) {
  const stripe = await startStripe({ now })
  onTestFinished(stripe.stop)
  const processor = createStripeProcessor(stripe.config, now)
  const driver: ProcessorDriver = {
    processor,
    onboard: async ({ account }) => stripe.onboard(account ?? ''),
    deleteCustomer: async (at, id) => stripe.deleteCustomer(at, id),
    payCheckout: async (at, id, card) => {
      const isPayment = stripe.world(at).get('checkout.session', id).mode === 'payment'
      const outcome = isPayment && card === 'declined' ? 'declined' : 'paid'
      stripe.payCheckout(at, id, { outcome, behaviour: behaviours[card] })
    },
  }
  return { stripe, processor, driver }
}

describePort('stripe', async () => (await open()).driver)

describe('checkouts at Stripe', () => {
  it('take cards only, in US dollars, and keep the card for later', async () => {
    const { stripe, processor, driver } = await open()
    const at = await connect(driver)
    const customer = await customerAt(driver, at)
    await processor.openCheckout(at, topUp(customer, { fee: cents(150) }), newKey())
    const sent = stripe.requests.at(-1)
    expect(sent).toMatchObject({ account: at.account, version: '2026-10-28.endive' })
    expect(sent?.form).toMatchObject({
      mode: 'payment',
      allowed_payment_method_types: ['card'],
      adaptive_pricing: { enabled: 'false' },
      line_items: [{ quantity: '1', price_data: { currency: 'usd', unit_amount: '2000' } }],
      payment_intent_data: { setup_future_usage: 'off_session', application_fee_amount: '150' },
    })
  })

  it('are processing until a late payment is decided', async () => {
    const { stripe, processor, driver } = await open()
    const customer = await customerAt(driver, test)
    for (const [outcome, state] of [
      ['paid', 'paid'],
      ['failed', 'failed'],
    ] as const) {
      const { id } = await processor.openCheckout(test, topUp(customer), newKey())
      stripe.payCheckout(test, id, { outcome: 'processing' })
      expect(await processor.readCheckout(test, id)).toMatchObject({ state: 'processing' })
      stripe.settleCheckout(test, id, outcome)
      expect(await processor.readCheckout(test, id)).toMatchObject({ state })
    }
  })

  it('stay open while the bank asks the user', async () => {
    const { stripe, processor, driver } = await open()
    const customer = await customerAt(driver, test)
    const { id } = await processor.openCheckout(test, topUp(customer), newKey())
    stripe.payCheckout(test, id, { outcome: 'action_required' })
    const checkout = await processor.readCheckout(test, id)
    expect(checkout).toMatchObject({ state: 'open' })
    expect(await processor.readPayment(test, checkout?.payment ?? '')).toMatchObject({
      state: 'action_required',
    })
  })

  it('expire after a day', async () => {
    const { stripe, processor, driver } = await open()
    const customer = await customerAt(driver, test)
    const { id } = await processor.openCheckout(test, cardOnly(customer), newKey())
    stripe.expireCheckout(test, id)
    expect(await processor.readCheckout(test, id)).toMatchObject({ state: 'expired' })
  })
})

describe('cards at Stripe', () => {
  it('follow the latest checkout, in whatever order checkouts are read', async () => {
    let time = Date.UTC(2026, 10, 1)
    const { stripe, processor, driver } = await open(() => new Date(time))
    const customer = await customerAt(driver, test)
    const ids = []
    for (const last4 of ['1111', '2222']) {
      time += 60_000
      const { id } = await processor.openCheckout(test, cardOnly(customer), newKey())
      stripe.payCheckout(test, id, { last4 })
      ids.push(id)
    }
    for (const id of ids.toReversed()) await processor.readCheckout(test, id)
    expect(await processor.readCard(test, customer)).toMatchObject({ last4: '2222' })
  })

  it('do not return when an old checkout is read again', async () => {
    const { stripe, processor, driver } = await open()
    const customer = await customerAt(driver, test)
    const { id } = await processor.openCheckout(test, cardOnly(customer), newKey())
    stripe.payCheckout(test, id)
    await processor.readCheckout(test, id)
    const card = await processor.readCard(test, customer)
    stripe.removeCard(test, card?.id ?? '')
    expect(await processor.readCard(test, customer)).toBeNull()
    await processor.readCheckout(test, id)
    expect(await processor.readCard(test, customer)).toBeNull()
  })

  it('that were removed at once do not hide the payment', async () => {
    const { stripe, processor, driver } = await open()
    const customer = await customerAt(driver, test)
    const { id } = await processor.openCheckout(test, topUp(customer), newKey())
    const { payment_intent } = stripe.payCheckout(test, id)
    const intent = stripe.world(test).get('payment_intent', payment_intent ?? '')
    stripe.removeCard(test, intent.payment_method ?? '')
    expect(await processor.readCheckout(test, id)).toMatchObject({ state: 'paid' })
    expect(await processor.readCard(test, customer)).toBeNull()
  })

  it('cannot be charged after their last month', async () => {
    let time = Date.UTC(2026, 10, 30, 23, 59)
    const { stripe, processor, driver } = await open(() => new Date(time))
    const customer = await customerAt(driver, test)
    stripe.addCard(test, customer, { month: 11, year: 2026 })
    expect(await processor.readCard(test, customer)).toMatchObject({ expiresMonth: 11 })
    time = Date.UTC(2026, 11, 2, 0, 1)
    expect(await processor.readCard(test, customer)).toBeNull()
  })
})

describe('payments at Stripe', () => {
  it('carry the platform share only where there is one', async () => {
    const { stripe, processor, driver } = await open()
    const at = await connect(driver)
    const { customer, card } = await payerAt(driver, at)
    await processor.pay(at, collection(customer, card.id, { fee: cents(75) }), newKey())
    expect(stripe.requests.at(-1)?.form).toMatchObject({ application_fee_amount: '75' })
    await processor.pay(at, collection(customer, card.id), newKey())
    expect(stripe.requests.at(-1)?.form).not.toHaveProperty('application_fee_amount')
    const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) }
    const { movements } = await processor.listMovements(live, { ...range, after: null })
    expect(movements).toMatchObject([{ kind: 'fee', amount: 75n }])
  })

  it('are found although this clock is ahead of that of Stripe', async () => {
    const { processor, driver } = await open()
    const { customer, card } = await payerAt(driver, live)
    const payment = await processor.pay(live, collection(customer, card.id), newKey())
    const since = new Date(Date.now() + 240_000)
    const lost = { customer, reference: 'collection-1', since }
    expect(await processor.findPayment(live, lost)).toEqual(payment)
  })

  it('report disputes that took money, until they are won', async () => {
    const { stripe, processor, driver } = await open()
    const { customer, card } = await payerAt(driver, live)
    const { id } = await processor.pay(live, collection(customer, card.id), newKey())
    stripe.dispute(live, id, 'warning_needs_response')
    expect(await processor.readPayment(live, id)).toMatchObject({ disputed: 0n })
    const dispute = stripe.dispute(live, id)
    expect(await processor.readPayment(live, id)).toMatchObject({ disputed: 500n })
    stripe.closeDispute(live, dispute.id, 'won')
    expect(await processor.readPayment(live, id)).toMatchObject({ disputed: 0n })
  })

  it('show refunds of the dashboard, and refunds that the bank returned', async () => {
    const { stripe, processor, driver } = await open()
    const { customer, card } = await payerAt(driver, live)
    const { id } = await processor.pay(live, collection(customer, card.id), newKey())
    const refund = stripe.refundPayment(live, id, 120)
    expect(await processor.listRefunds(live, id)).toMatchObject([
      { id: refund.id, reference: null, amount: 120n, state: 'succeeded' },
    ])
    stripe.failRefund(live, refund.id)
    expect(await processor.listRefunds(live, id)).toMatchObject([{ state: 'failed' }])
    expect(await processor.readPayment(live, id)).toMatchObject({ refunded: 0n })
  })

  it('move money to the bank as payouts', async () => {
    const { stripe, processor } = await open()
    stripe.payOut(live, { amount: 900 })
    const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) }
    const { movements } = await processor.listMovements(live, { ...range, after: null })
    expect(movements).toMatchObject([{ kind: 'payout', amount: -900n, currency: 'usd' }])
  })
})

describe('payouts at Stripe', () => {
  it('have the decimals of their currency, and the code of a failure', async () => {
    const { stripe, processor } = await open()
    stripe.payOut(live, { amount: 900 })
    stripe.payOut(live, { amount: 1_200, currency: 'jpy', status: 'in_transit' })
    const failed = { status: 'failed', failure_code: 'account_closed' }
    stripe.payOut(live, { amount: 1_500, currency: 'kwd', ...failed })
    const page = await processor.listPayouts(live, { limit: 50, after: null })
    expect(page).toMatchObject({
      payouts: [
        { currency: 'kwd', decimals: 3, state: 'failed', failure: 'account_closed' },
        { currency: 'jpy', decimals: 0, amount: 1_200n, state: 'in_transit', failure: null },
        { currency: 'usd', decimals: 2, amount: 900n, state: 'paid' },
      ],
      hasMore: false,
    })
    const [first] = page?.payouts ?? []
    expect(first?.arrivesAt.getTime()).toBe((first?.createdAt.getTime() ?? 0) + 2 * 86_400_000)
    expect(await processor.readBalance(live)).toMatchObject([
      { currency: 'usd', decimals: 2, available: -900n },
      { currency: 'jpy', decimals: 0, available: -1_200n },
    ])
  })

  it('are unclear with an unknown status', async () => {
    const { stripe, processor } = await open()
    stripe.payOut(live, { amount: 900, status: 'lost' })
    const page = { limit: 50, after: null }
    expect(await reasonOf(processor.listPayouts(live, page))).toBe('PROCESSOR_UNREACHABLE')
  })
})

describe('accounts at Stripe', () => {
  it('belong to their owners, who pay the fees', async () => {
    const { stripe, driver } = await open()
    await connect(driver)
    const [{ form } = { form: {} }] = stripe.requests
    expect(form).toMatchObject({
      controller: {
        stripe_dashboard: { type: 'full' },
        fees: { payer: 'account' },
        losses: { payments: 'stripe' },
        requirement_collection: 'stripe',
      },
      email: 'owner@example.com',
    })
  })

  it('are gone after their owner ended the connection', async () => {
    const { stripe, processor, driver } = await open()
    const at = await connect(driver)
    const { customer, card } = await payerAt(driver, at)
    stripe.deauthorize(at.account ?? '')
    expect(await processor.readAccount(at)).toBeNull()
    expect(await reasonOf(processor.pay(at, collection(customer, card.id), newKey()))).toBe(
      'PROCESSOR_REFUSED',
    )
    expect(await reasonOf(processor.readCard(at, customer))).toBe('PROCESSOR_REFUSED')
  })

  it("reads the platform's own account, which needs no onboarding", async () => {
    const { processor } = await open()
    expect(await processor.readAccount(test)).toMatchObject({ chargesEnabled: true })
    const urls = { returnUrl: 'https://a.example', refreshUrl: 'https://a.example' }
    await expect(processor.createOnboardingUrl(test, urls)).rejects.toThrow('not onboarded')
  })

  it('refuses a plane without key by the name of the setting', async () => {
    const { stripe } = await open()
    const processor = createStripeProcessor({ ...stripe.config, live: null }, () => new Date())
    expect(processor.planes).toEqual(['test'])
    const at: ProcessorAccount = { plane: 'live', account: null }
    await expect(processor.readAccount(at)).rejects.toThrow('STRIPE_SECRET_KEY')
    expect(await reasonOf(processor.readAccount(at))).toBe('PROCESSOR_NOT_CONFIGURED')
  })
})
