import { randomUUID } from 'node:crypto'
import { afterEach, describe, expect, it } from 'vitest'
import type { Plane, ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import { registerSecret } from '../../../support/run/secrecy.ts'
import { until } from '../../../support/waiting.ts'
import {
  differences,
  operator,
  real,
  rows,
  send,
  setUpShops,
  stripe,
} from '../../../gateway/platform-api/billing/shops.ts'

/** Refunds and disputes of top-ups whose events are lost, early, doubled or in another order. */

setUpShops()
afterEach(() => {
  stripe.webhooks.plan = () => ({})
  stripe.faults = () => undefined
})

const hourMs = 3_600_000
/** Of Starter. */
const included = 5

interface Shop {
  readonly clientId: string
  readonly basic: string
  readonly at: ProcessorAccount
}

/** Creates an app with a connected account in the plane, and the user ada. */
async function newShop(plane: Plane): Promise<Shop> {
  const { clientId, m2mClientId, m2mClientSecret } = await operator.apps.createApp({
    name: 'Shop',
    ownerEmail: `${randomUUID()}@example.com`,
    ownerPassword: registerSecret('a long enough password'),
    isCustomer: true,
    isTest: plane === 'test',
    starterUsdMicros: undefined,
  })
  const basic = `Basic ${Buffer.from(`${m2mClientId}:${m2mClientSecret}`).toString('base64')}`
  await operator.billing.updateBillingSettings({ clientId, billingMode: 'merchant' })
  await real.core.as(basic).upsertUser({ clientId, externalUserId: 'ada' })
  await operator.billing.connectProcessor({ clientId })
  const [row] = await rows<{ account: string }>(
    `select a.account from processor_accounts a
     join clients c on c.app_id = a.app_id and c.client_id = $1`,
    clientId,
  )
  const account = row?.account ?? ''
  stripe.onboard(account)
  await untilHandled()
  return { clientId, basic, at: { plane, account } }
}

interface TopUp {
  readonly sessionId: string
  /** The processor's id of the checkout. */
  readonly checkout: string
}

async function openTopUp({ clientId, basic }: Shop, amountUsd: string): Promise<TopUp> {
  const { status, body } = await send('POST', `/api/v1/apps/${clientId}/billing/wallet/top-up`, {
    headers: { authorization: basic },
    body: { amountUsd, externalUserId: 'ada' },
  })
  expect(status).toBe(200)
  const sessionId = String(body['sessionId'])
  const [row] = await rows<{ id: string }>(
    'select processor_id as id from checkouts where id = $1',
    sessionId,
  )
  return { sessionId, checkout: row?.id ?? '' }
}

async function untilSettled({ clientId, basic }: Shop, { sessionId }: TopUp): Promise<void> {
  const path = `/api/v1/apps/${clientId}/billing/wallet/checkouts/${sessionId}`
  const read = () => send('GET', path, { headers: { authorization: basic } })
  await until(async () => (await read()).body['status'] === 'settled')
}

/** Pays a top-up and waits until it is credited. Returns the processor's payment. */
async function pay(shop: Shop, amountUsd: string): Promise<string> {
  const topUp = await openTopUp(shop, amountUsd)
  const session = stripe.payCheckout(shop.at, topUp.checkout)
  await untilSettled(shop, topUp)
  await untilHandled()
  return String(session.payment_intent)
}

/** The user's balance in dollars. */
async function dollars({ clientId, basic }: Shop): Promise<number> {
  const { balance } = await real.core.as(basic).getBalance({ clientId, externalUserId: 'ada' })
  return Number(balance?.balanceUsdMicros) / 1_000_000
}

/** Waits until every event that was sent is handled. */
async function untilHandled(): Promise<void> {
  await stripe.webhooks.idle()
  await until(async () => {
    const [row] = await rows<{ n: number }>(
      'select count(*)::int as n from processor_events where handled_at is null',
    )
    return row?.n === 0
  })
}

const loseEvents = (): void => {
  stripe.webhooks.plan = () => ({ copies: 0 })
}

/** Compares what the processor moved, hours later. Returns the new differences. */
async function compare(): Promise<unknown[]> {
  real.core.clock.advance(2 * hourMs)
  const found: unknown[] = []
  for await (const { differences: news } of operator.processorReconciliation.reconcileProcessor({}))
    found.push(...news)
  return found
}

/** Reads the user's returns, the oldest first. */
const returnsOf = async ({ clientId }: Shop): Promise<string[]> =>
  (
    await rows<{ text: string }>(
      `select r.kind || ' ' || r.amount_cents as text from payment_returns r
       join clients c on c.app_id = r.app_id and c.client_id = $1
       where r.booked_at is not null order by r.created_at, r.id`,
      clientId,
    )
  ).map(({ text }) => text)

describe.each(['live', 'test'] as const)('a return of a top-up in the %s plane', (plane) => {
  it('is booked by the daily comparison if its events were lost', async () => {
    const shop = await newShop(plane)
    const [refunded, disputed] = [await pay(shop, '20'), await pay(shop, '30')]
    loseEvents()
    const refund = stripe.refundPayment(shop.at, refunded, 500)
    const dispute = stripe.dispute(shop.at, disputed)
    expect(await dollars(shop)).toBe(included + 50)
    expect(await compare()).toEqual([])
    expect(await dollars(shop)).toBe(included + 15)
    stripe.failRefund(shop.at, refund.id)
    stripe.closeDispute(shop.at, dispute.id, 'won')
    expect(await compare()).toEqual([])
    expect(await dollars(shop)).toBe(included + 50)
    expect((await returnsOf(shop)).toSorted()).toEqual([
      'dispute 3000',
      'dispute_won 3000',
      'refund 500',
      'refund_failed 500',
    ])
    expect(await differences()).toEqual([])
  })

  it('is booked if all of its events came before the payment was booked', async () => {
    const shop = await newShop(plane)
    const topUp = await openTopUp(shop, '20')
    stripe.webhooks.hold()
    const { payment_intent: payment } = stripe.payCheckout(shop.at, topUp.checkout)
    stripe.refundPayment(shop.at, String(payment), 500)
    // The events of the payment and its page are lost.
    stripe.webhooks.release((events) => {
      const early = events.filter(({ type }) => type.includes('refund'))
      return [...early, ...early].toReversed()
    })
    await untilHandled()
    expect(await returnsOf(shop)).toEqual([])
    expect(await dollars(shop)).toBe(included)
    real.core.clock.advance(61_000)
    await untilSettled(shop, topUp)
    await until(async () => (await returnsOf(shop)).length > 0)
    expect(await returnsOf(shop)).toEqual(['refund 500'])
    expect(await dollars(shop)).toBe(included + 15)
    expect(await differences()).toEqual([])
  })

  it('is booked once, in whatever order its events come, and however often', async () => {
    const shop = await newShop(plane)
    const topUp = await openTopUp(shop, '20')
    stripe.webhooks.hold()
    const { payment_intent: payment } = stripe.payCheckout(shop.at, topUp.checkout)
    stripe.failRefund(shop.at, stripe.refundPayment(shop.at, String(payment), 700).id)
    stripe.refundPayment(shop.at, String(payment), 500)
    stripe.webhooks.release((events) => [...events.toReversed(), ...events])
    await untilSettled(shop, topUp)
    await untilHandled()
    expect(await returnsOf(shop)).toEqual(['refund 500'])
    expect(await dollars(shop)).toBe(included + 15)
    expect(await compare()).toEqual([])
    expect(await differences()).toEqual([])
  })

  it('is not undone by a reading from before it', async () => {
    const shop = await newShop(plane)
    const payment = await pay(shop, '20')
    const reads = () =>
      stripe.requests.filter(({ method, path }) => method === 'GET' && path.endsWith(payment))
    const before = reads().length
    let isLate = true
    stripe.faults = ({ method, path }) => {
      if (method !== 'GET' || !path.endsWith(payment) || !isLate) return undefined
      isLate = false
      return { kind: 'late', ms: 2_000 }
    }
    stripe.refundPayment(shop.at, payment, 500)
    await until(() => reads().length > before)
    // Core reads 7 USD and books them while the reading of 5 USD is still on its way.
    const { clientId } = shop
    const [row] = (
      await operator.payments.listPayments({
        clientId,
        externalUserId: undefined,
        limit: 0,
        cursor: undefined,
      })
    ).payments
    await operator.payments.refundPayment({
      clientId,
      paymentId: row?.id ?? '',
      amountUsd: '2',
      idempotencyKey: 'r-1',
    })
    expect(await returnsOf(shop)).toEqual(['refund 700'])
    await untilHandled()
    expect(await returnsOf(shop)).toEqual(['refund 700'])
    expect(await dollars(shop)).toBe(included + 13)
  })
})

describe('a return that is read while others are recorded', () => {
  it('is given up after five readings, and booked when its event is handled again', async () => {
    const shop = await newShop('test')
    const payment = await pay(shop, '20')
    const recorded: Promise<unknown>[] = []
    let isBusy = true
    stripe.faults = ({ method, path }) => {
      if (method !== 'GET' || !path.endsWith(payment) || !isBusy) return undefined
      // Another core records a cent of the refund while the answer is on its way.
      const insert = rows(
        `insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at)
         select app_id, user_id, gen_random_uuid(), id, 'refund', 1, now() from payments where processor_id = $1`,
        payment,
      )
      recorded.push(insert)
      insert.catch(() => {})
      return { kind: 'late', ms: 1_500 }
    }
    stripe.refundPayment(shop.at, payment, 500)
    const outcomes = async (): Promise<string[]> =>
      (
        await rows<{ outcome: string | null }>(
          `select outcome from processor_events where (object_id = $1 or payment_id = $1) and handled_at is null`,
          payment,
        )
      ).map(({ outcome }) => outcome ?? '')
    const refusal = 'other returns of the payment are being recorded'
    await until(async () => (await outcomes()).some((outcome) => outcome.includes(refusal)))
    isBusy = false
    await Promise.all(recorded)
    expect(recorded.length).toBeGreaterThanOrEqual(5)
    real.core.clock.advance(hourMs)
    await untilHandled()
    const [sum] = await rows<{ cents: number }>(
      `select sum(r.amount_cents)::int as cents from payment_returns r
       join payments p on p.app_id = r.app_id and p.id = r.payment_id and p.processor_id = $1`,
      payment,
    )
    expect(sum?.cents).toBe(500)
    expect(await dollars(shop)).toBe(included + 15)
  })
})
