import { type Server, createServer } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createStripeProcessor } from '../../../../core/billing/processor/stripe/adapter.ts'
import type { ProcessorEvent } from '../../../../core/billing/processor/port.ts'
import { startStripe } from '../../../fakes/stripe/stripe.ts'
import {
  cardOnly,
  collection,
  connect,
  customerAt,
  live,
  newKey,
  payerAt,
  test,
  topUp,
} from './port-contract.ts'

/** Stripe with a receiver that verifies events as core does. */
async function open() {
  const stripe = await startStripe({ retryMs: 5 })
  onTestFinished(stripe.stop)
  const processor = createStripeProcessor(stripe.config, () => new Date())
  const received: ProcessorEvent[] = []
  let answer = (_count: number): number => 200
  let count = 0
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const status = answer(++count)
    const signature = String(request.headers['stripe-signature'])
    if (status === 200)
      received.push(processor.verifyEvent(Buffer.concat(chunks), signature, new Date()))
    response.writeHead(status).end()
  })
  const url = await listenAt(server)
  onTestFinished(() => void server.close())
  for (const plane of ['live', 'test'] as const) {
    const secret = stripe.webhookSecrets[plane]
    for (const isConnect of [false, true]) stripe.webhooks.add({ url, secret, plane, isConnect })
  }
  const driver = {
    processor,
    onboard: async ({ account }: { account: string | null }) => stripe.onboard(account ?? ''),
    deleteCustomer: async (...customer: Parameters<typeof stripe.deleteCustomer>) =>
      stripe.deleteCustomer(...customer),
    payCheckout: async (at: Parameters<typeof stripe.payCheckout>[0], id: string) =>
      void stripe.payCheckout(at, id),
  }
  return {
    stripe,
    processor,
    driver,
    received,
    /** Types of what arrived that the adapter acts on. */
    subjects: () => received.filter(({ subject }) => subject !== null).map(({ type }) => type),
    answerWith: (next: typeof answer): void => void (answer = next),
  }
}

async function listenAt(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/webhooks/stripe`
}

describe('events of Stripe', () => {
  it('name the checkout, its account and its plane', async () => {
    const { stripe, processor, driver, received } = await open()
    const at = await connect(driver, 'test')
    const customer = await customerAt(driver, at)
    const { id } = await processor.openCheckout(at, cardOnly(customer), newKey())
    stripe.payCheckout(at, id)
    await stripe.webhooks.idle()
    const completed = received.find(({ type }) => type === 'checkout.session.completed')
    expect(completed).toMatchObject({ at, subject: 'checkout', objectId: id })
    expect(received.find(({ type }) => type === 'account.updated')).toMatchObject({
      at,
      subject: 'account',
      objectId: at.account,
    })
  })

  it('lead to the payment of refunds and disputes', async () => {
    const { stripe, processor, driver, received } = await open()
    const { customer, card } = await payerAt(driver, live)
    const { id } = await processor.pay(live, collection(customer, card.id), newKey())
    stripe.refundPayment(live, id, 100)
    stripe.dispute(live, id)
    await stripe.webhooks.idle()
    for (const type of ['refund.created', 'charge.dispute.created'])
      expect(received.find((event) => event.type === type)).toMatchObject({ payment: id })
  })

  it('report that the owner ended the connection', async () => {
    const { stripe, driver, received } = await open()
    const at = await connect(driver)
    stripe.deauthorize(at.account ?? '')
    await stripe.webhooks.idle()
    expect(received.at(-1)).toMatchObject({ at, isDeauthorization: true })
  })

  it('arrive twice, late, in another order or not at all, as a test decides', async () => {
    const { stripe, processor, driver, subjects } = await open()
    const customer = await customerAt(driver, test)
    const pay = async (): Promise<void> => {
      const { id } = await processor.openCheckout(test, topUp(customer), newKey())
      stripe.payCheckout(test, id)
    }
    stripe.webhooks.plan = () => ({ copies: 2, delayMs: 10 })
    await pay()
    await stripe.webhooks.idle()
    expect(subjects().filter((type) => type === 'checkout.session.completed')).toHaveLength(2)
    stripe.webhooks.plan = () => ({ copies: 0 })
    await pay()
    await stripe.webhooks.idle()
    expect(subjects()).toHaveLength(4)
    stripe.webhooks.plan = () => ({})
    stripe.webhooks.hold()
    await pay()
    expect(subjects()).toHaveLength(4)
    stripe.webhooks.release((held) => held.toReversed())
    await stripe.webhooks.idle()
    expect(subjects().slice(4).toSorted()).toEqual([
      'checkout.session.completed',
      'payment_intent.succeeded',
    ])
  })

  it('are sent again after an error', async () => {
    const { stripe, processor, driver, received, answerWith } = await open()
    const customer = await customerAt(driver, test)
    answerWith((count) => (count % 2 === 1 ? 500 : 200))
    const { id } = await processor.openCheckout(test, cardOnly(customer), newKey())
    stripe.expireCheckout(test, id)
    await stripe.webhooks.idle()
    expect(received).toMatchObject([{ type: 'checkout.session.expired', objectId: id }])
    expect(Object.fromEntries(stripe.webhooks.answers)).toEqual({ 200: 1, 500: 1 })
  })
})

describe('the fake of Stripe', () => {
  it('takes 1,000 top-ups with their events and keeps its logs bounded', async () => {
    const { stripe, processor, driver, received } = await open()
    const customer = await customerAt(driver, test)
    const count = 1_000
    const one = async (at: number): Promise<void> => {
      const key = `test:app_1:bulk-${at}`
      const { id } = await processor.openCheckout(test, topUp(customer), key)
      stripe.payCheckout(test, id)
    }
    for (let at = 0; at < count; at += 100)
      await Promise.all(Array.from({ length: 100 }, (_, next) => one(at + next)))
    await stripe.webhooks.idle()
    const paid = received.filter(({ type }) => type === 'checkout.session.completed')
    expect(new Set(paid.map(({ objectId }) => objectId)).size).toBe(count)
    expect(stripe.requests.length).toBeLessThanOrEqual(10_000)
  })

  it('forgets a key after a day', async () => {
    let time = Date.now()
    const stripe = await startStripe({ now: () => new Date(time) })
    onTestFinished(stripe.stop)
    const processor = createStripeProcessor(stripe.config, () => new Date(time))
    const create = () =>
      processor.createCustomer(test, { reference: 'user-1', description: 'ada' }, 'test:app_1:u1')
    const first = await create()
    time += 23 * 3_600_000
    expect(await create()).toEqual(first)
    time += 3_600_001
    expect(await create()).not.toEqual(first)
  })
})
