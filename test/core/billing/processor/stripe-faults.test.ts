import { createServer } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createStripeProcessor } from '../../../../core/billing/processor/stripe/adapter.ts'
import type { PaymentProcessor } from '../../../../core/billing/processor/port.ts'
import { DomainError } from '../../../../proto/errors.ts'
import type { Fault } from '../../../fakes/stripe/faults.ts'
import { startStripe } from '../../../fakes/stripe/stripe.ts'
import { addCard } from '../../../fakes/stripe/money.ts'
import { cents, collection, live, newKey, reasonOf, topUp } from './port-contract.ts'

async function open() {
  const stripe = await startStripe()
  onTestFinished(stripe.stop)
  const processor = createStripeProcessor(stripe.config, () => new Date())
  const customer = await processor.createCustomer(
    live,
    { reference: 'user-1', description: 'ada' },
    newKey(),
  )
  const card = addCard(stripe.world(live), customer.id, {})
  const pay = (key: string, amount = 500) =>
    processor.pay(live, collection(customer.id, card.id, { amount: cents(amount) }), key)
  const payments = () => [...stripe.world(live).list('payment_intent')]
  /** Applies the fault to the next `times` requests that match the route. */
  function breakNext(fault: Fault, times = Infinity): void {
    let left = times
    stripe.faults = ({ method }) => (method === 'POST' && left-- > 0 ? fault : undefined)
  }
  return { stripe, processor, customer: customer.id, card, pay, payments, breakNext }
}

const unclear: [string, Fault][] = [
  ['a connection that breaks before the effect', { kind: 'reset before' }],
  ['a connection that breaks after the effect', { kind: 'reset after' }],
  ['status 500 before the effect', { kind: 'refuse', status: 500 }],
  ['status 503', { kind: 'refuse', status: 503 }],
  ['too many requests', { kind: 'refuse', status: 429, fields: { code: 'rate_limit' } }],
  ['a lock', { kind: 'refuse', status: 429, fields: { code: 'lock_timeout' } }],
  ['a key in use', { kind: 'refuse', status: 409, fields: { code: 'idempotency_key_in_use' } }],
  ['a page of a proxy', { kind: 'body', status: 502, text: '<html>Bad gateway</html>' }],
  ['JSON of a proxy', { kind: 'body', status: 502, text: '{"message":"bad gateway"}' }],
  ['a garbled body', { kind: 'body', status: 200, text: '{"id":"pi_' }],
  ['another object', { kind: 'body', status: 200, text: '{"object":"customer","id":"cus_1"}' }],
  ['null', { kind: 'body', status: 200, text: 'null' }],
  ['a list', { kind: 'body', status: 200, text: '[]' }],
  ['an empty body', { kind: 'body', status: 200, text: '' }],
  [
    'a payment without amount',
    { kind: 'body', status: 200, text: '{"object":"payment_intent","id":"pi_1","metadata":{}}' },
  ],
  ['a body of 5 MiB', { kind: 'body', status: 200, text: `"${'x'.repeat(5 * 1024 * 1024)}"` }],
]

describe('an unclear answer of Stripe', () => {
  it.each(unclear)('is unreachable after %s, and the same key charges once', async (_, fault) => {
    const { stripe, pay, payments, breakNext } = await open()
    const key = newKey()
    breakNext(fault)
    expect(await reasonOf(pay(key))).toBe('PROCESSOR_UNREACHABLE')
    stripe.faults = () => undefined
    expect(await pay(key)).toMatchObject({ state: 'succeeded' })
    expect(payments()).toHaveLength(1)
  })

  it('is hidden by one retry with the same key', async () => {
    const { stripe, pay, payments, breakNext } = await open()
    breakNext({ kind: 'reset after' }, 1)
    expect(await pay('live:app_1:c1')).toMatchObject({ state: 'succeeded' })
    expect(payments()).toHaveLength(1)
    const sent = stripe.requests.filter(({ route }) => route === '/v1/payment_intents')
    expect(sent.map(({ key }) => key)).toEqual(['live:app_1:c1', 'live:app_1:c1'])
  })

  it('is retried at most once', async () => {
    const { stripe, pay, breakNext } = await open()
    breakNext({ kind: 'refuse', status: 500 })
    await reasonOf(pay(newKey()))
    const sent = stripe.requests.filter(({ route }) => route === '/v1/payment_intents')
    expect(sent).toHaveLength(2)
  })

  it('that Stripe stored with the key is resolved by looking for the payment', async () => {
    const { stripe, processor, customer, pay, payments, breakNext } = await open()
    const since = new Date(Date.now() - 1_000)
    const key = newKey()
    breakNext({ kind: 'error after', isStored: true })
    expect(await reasonOf(pay(key))).toBe('PROCESSOR_UNREACHABLE')
    stripe.faults = () => undefined
    expect(await reasonOf(pay(key))).toBe('PROCESSOR_UNREACHABLE')
    const lost = { customer, reference: 'collection-1', since }
    const found = await processor.findPayment(live, lost)
    expect(found).toMatchObject({ id: payments()[0]?.id, state: 'succeeded' })
  })

  it('never becomes "no card" or "no account"', async () => {
    const { stripe, processor, customer } = await open()
    const reads: ((processor: PaymentProcessor) => Promise<unknown>)[] = [
      (processor) => processor.readCard(live, customer),
      (processor) => processor.readAccount(live),
      (processor) => processor.readCheckout(live, 'cs_1'),
      (processor) => processor.readPayment(live, 'pi_1'),
      (processor) => processor.listRefunds(live, 'pi_1'),
      (processor) => processor.readBalance(live),
      (processor) => processor.listPayouts(live, { limit: 50, after: 'po_1' }),
    ]
    for (const fault of [
      { kind: 'refuse', status: 500 },
      { kind: 'body', status: 200, text: '{}' },
      { kind: 'body', status: 404, text: '<html>not found</html>' },
    ] satisfies Fault[]) {
      stripe.faults = () => fault
      for (const read of reads)
        expect(await reasonOf(read(processor))).toBe('PROCESSOR_UNREACHABLE')
    }
  })
})

describe('a refusal of Stripe', () => {
  it('reports a key that was used for another request', async () => {
    const { pay, payments } = await open()
    const key = newKey()
    await pay(key, 500)
    expect(await reasonOf(pay(key, 600))).toBe('PROCESSOR_REFUSED')
    expect(payments()).toHaveLength(1)
  })

  it('reports a wrong secret key, without showing any part', async () => {
    const { stripe } = await open()
    const secretKey = 'sk_live_of_another_deployment'
    const config = { ...stripe.config, live: { secretKey, webhookSecrets: [] } }
    const processor = createStripeProcessor(config, () => new Date())
    const error: unknown = await processor.readAccount(live).catch((error: unknown) => error)
    expect(error).toMatchObject({ reason: 'PROCESSOR_REFUSED' })
    const { message, cause } = error instanceof DomainError ? error : new Error('none')
    expect(message).toContain('secret key')
    expect(`${message} ${String(cause)}`).not.toContain('deployment_')
    expect(`${message} ${String(cause)}`).not.toContain(secretKey)
  })

  it("holds Stripe's code and parameter, but no text and id", async () => {
    const { processor } = await open()
    const request = processor.openCheckout(live, topUp('cus_none'), newKey())
    await expect(request).rejects.toThrow(
      'the payment processor refused the request: resource_missing (customer)',
    )
    await expect(request).rejects.not.toThrow('cus_none')
  })

  it('comes for amounts that Stripe does not take', async () => {
    const { pay } = await open()
    expect(await reasonOf(pay(newKey(), 49))).toBe('PROCESSOR_REFUSED')
  })
})

describe('many requests at once', () => {
  it('charge once per key, while others of the key run', async () => {
    const { stripe, pay, payments } = await open()
    stripe.latencyMs = 50
    const key = newKey()
    const results = await Promise.allSettled(Array.from({ length: 8 }, () => pay(key)))
    expect(payments()).toHaveLength(1)
    const reasons = results.flatMap((result) =>
      result.status === 'rejected' ? [result.reason.reason] : [],
    )
    expect(reasons.filter((reason) => reason !== 'PROCESSOR_UNREACHABLE')).toEqual([])
    expect(await pay(key)).toMatchObject({ id: payments()[0]?.id })
  })

  it('are refused by Stripe when they are too many', async () => {
    const { stripe, processor } = await open()
    stripe.budget = 0
    expect(await reasonOf(processor.readAccount(live))).toBe('PROCESSOR_UNREACHABLE')
  })

  it('are limited', async () => {
    const { stripe, processor } = await open()
    stripe.latencyMs = 300
    const reads = Array.from({ length: 600 }, () => processor.readAccount(live))
    const results = await Promise.allSettled(reads)
    const refused = results.filter(({ status }) => status === 'rejected')
    expect(refused).toHaveLength(600 - 512)
  })
})

describe('requests that wait behind a silent Stripe', () => {
  it('are never sent after they were given up', async () => {
    const { stripe, customer, card, payments } = await open()
    const config = { ...stripe.config, timeoutMs: 200 }
    const processor = createStripeProcessor(config, () => new Date())
    stripe.faults = () => ({ kind: 'hang before' })
    const attempts = Array.from({ length: 100 }, () =>
      reasonOf(processor.pay(live, collection(customer, card.id), newKey())),
    )
    expect(new Set(await Promise.all(attempts))).toEqual(new Set(['PROCESSOR_UNREACHABLE']))
    const sent = stripe.requests.filter(({ route }) => route === '/v1/payment_intents')
    expect(new Set(sent.map(({ key }) => key)).size).toBe(64)
    expect(payments()).toEqual([])
  })
})

describe('a slow Stripe', () => {
  it('is given up although bytes still arrive', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      const timer = setInterval(() => response.write(' '), 20)
      response.on('close', () => clearInterval(timer))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => server.closeAllConnections())
    onTestFinished(() => void server.close())
    const address = server.address()
    const apiUrl = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
    const test = { secretKey: 'sk_test_0123456789', webhookSecrets: [] }
    const config = { live: null, test, apiUrl, timeoutMs: 200 }
    const processor = createStripeProcessor(config, () => new Date())
    const read = processor.readAccount({ plane: 'test', account: null })
    expect(await reasonOf(read)).toBe('PROCESSOR_UNREACHABLE')
  })
})

describe('a silent Stripe', () => {
  it.each([{ kind: 'hang before' }, { kind: 'hang after' }] satisfies Fault[])(
    'is given up after two attempts: %o',
    async (fault) => {
      const { stripe, customer, card, breakNext, payments } = await open()
      const config = { ...stripe.config, timeoutMs: 200 }
      const processor = createStripeProcessor(config, () => new Date())
      const pay = () => processor.pay(live, collection(customer, card.id), 'live:app_1:c1')
      breakNext(fault)
      expect(await reasonOf(pay())).toBe('PROCESSOR_UNREACHABLE')
      const sent = stripe.requests.filter(({ route }) => route === '/v1/payment_intents')
      expect(sent).toHaveLength(2)
      stripe.faults = () => undefined
      expect(await pay()).toMatchObject({ state: 'succeeded' })
      expect(payments()).toHaveLength(1)
    },
  )
})
