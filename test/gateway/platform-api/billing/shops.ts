import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect } from 'vitest'
import type { ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { serviceToken } from '../../../core/support.ts'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { until } from '../../../support/waiting.ts'
import { type Real, type RealApp, newSellingApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

/** Apps that sell plans through their accounts at a fake Stripe. */

export interface Answer {
  readonly status: number
  readonly body: Record<string, unknown>
}

type Headers = Readonly<Record<string, string>>

/** An app that sells, with one user. */
export interface Shop {
  readonly app: RealApp
  readonly at: ProcessorAccount
  readonly user: string
}

export let stripe: FakeStripe
export let real: Real
export let operator: CoreClient

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpShops(): void {
  beforeAll(async () => {
    stripe = await startStripe({ now: () => real.core.clock.now() })
    real = await startReal(stripe.env)
    operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
    for (const plane of ['live', 'test'] as const)
      for (const isConnect of [false, true])
        stripe.webhooks.add({
          url: `${real.url}/webhooks/stripe`,
          secret: stripe.webhookSecrets[plane],
          plane,
          isConnect,
        })
  })
  afterAll(async () => {
    operator.close()
    await real.stop()
    await stripe.stop()
  })
}

export async function send(
  method: string,
  path: string,
  { headers, body }: { headers: Headers; body?: object },
): Promise<Answer> {
  const response = await fetch(`${real.url}${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

const pathOf = ({ app }: Pick<Shop, 'app'>): string => `/api/v1/apps/${app.clientId}`

/** Creates an app in billing mode merchant with a connected account. */
export async function newMerchant(name: string): Promise<Pick<Shop, 'app' | 'at'>> {
  const app = await newSellingApp({ real, operator }, name)
  await send('POST', `${pathOf({ app })}/billing/processor/connect`, { headers: app.session })
  const [row] = await rows<{ account: string }>(
    `select a.account from processor_accounts a join clients c on c.app_id = a.app_id and c.client_id = $1`,
    app.clientId,
  )
  const account = row?.account ?? ''
  stripe.onboard(account)
  await until(async () => {
    const { body } = await send('GET', `${pathOf({ app })}/billing/processor`, {
      headers: { authorization: app.basic },
    })
    return body['status'] === 'connected'
  })
  return { app, at: { plane: 'live', account } }
}

/** Creates a merchant's app with one user. */
export async function newShop(name: string): Promise<Shop> {
  const merchant = await newMerchant(name)
  return { ...merchant, user: await newUser(merchant) }
}

export async function newUser({ app: { basic, clientId } }: Pick<Shop, 'app'>): Promise<string> {
  const externalUserId = `u-${randomUUID()}`
  await real.core.as(basic).upsertUser({ clientId, externalUserId })
  real.core.clock.advance(1_000)
  return externalUserId
}

/** Creates an active plan of type subscription. */
export async function newPlan(
  { app: { clientId } }: Pick<Shop, 'app'>,
  priceAmount: string,
  terms: object = {},
): Promise<string> {
  const fields = { name: randomUUID(), type: 'subscription', status: 'active' }
  const units = { includedUnits: '100', overageRateWei: '1', includedUsdMicros: '10000000' }
  const planJson = JSON.stringify({ ...fields, priceAmount, ...units, ...terms })
  const { id } = await operator.plans.createPlan({ clientId, planJson })
  real.core.clock.advance(1_000)
  return id
}

/** A plan of type usage without a price. */
export const newUsagePlan = (shop: Pick<Shop, 'app'>): Promise<string> =>
  newPlan(shop, '0', { type: 'usage', includedUnits: undefined, overageRateWei: undefined })

export const change = (shop: Shop, body: object, headers: Headers = {}): Promise<Answer> =>
  send('POST', `${pathOf(shop)}/users/${shop.user}/subscription/change`, {
    headers: { authorization: shop.app.basic, ...headers },
    body,
  })

export const openCheckout = (shop: Shop, body: object, headers: Headers = {}): Promise<Answer> =>
  send('POST', `${pathOf(shop)}/billing/checkout`, {
    headers: { ...shop.app.session, ...headers },
    body,
  })

export async function subscriptionOf(shop: Shop): Promise<Record<string, unknown>> {
  const { body } = await send('GET', `${pathOf(shop)}/users/${shop.user}/subscription`, {
    headers: { authorization: shop.app.basic },
  })
  return body
}

export const planOf = async (shop: Shop): Promise<unknown> =>
  asRecord((await subscriptionOf(shop))['subscription'])['planId']

export async function balanceOf({ app: { basic, clientId }, user }: Shop): Promise<string> {
  const { balance } = await real.core.as(basic).getBalance({ clientId, externalUserId: user })
  return balance?.balanceUsdMicros ?? ''
}

export async function rows<Row extends object>(
  text: string,
  ...values: readonly unknown[]
): Promise<Row[]> {
  return (await real.core.sql.query<Row>(text, [...values])).rows
}

const ofUser = `
  app_id = (select app_id from clients where client_id = $1)
  and user_id = (select id from end_users u where u.app_id = (select app_id from clients where client_id = $1)
                 and external_user_id = $2)`

/** The user's orders, payments and invoices, the oldest first. */
export async function booked({ app: { clientId }, user }: Shop) {
  const of = [clientId, user]
  return {
    orders: await rows<{ state: string; problem: string | null; id: string }>(
      `select id, state, problem from plan_orders where ${ofUser} order by created_at`,
      ...of,
    ),
    payments: await rows<{ purpose: string; cents: number; invoiced: boolean }>(
      `select purpose, amount_cents::int as cents, invoice_id is not null as invoiced from payments where ${ofUser}
       order by created_at`,
      ...of,
    ),
    invoices: await rows<{ reason: string; cents: number }>(
      `select reason, total_cents::int as cents from invoices where ${ofUser} order by issued_at, number`,
      ...of,
    ),
  }
}

/** The processor's id of the newest checkout of the user. */
export async function checkoutOf({ app: { clientId }, user }: Shop): Promise<string> {
  const [row] = await rows<{ processor_id: string }>(
    `select processor_id from checkouts where ${ofUser} order by created_at desc limit 1`,
    clientId,
    user,
  )
  return row?.processor_id ?? ''
}

/** Gives the user a card by the page for cards. */
export async function giveCard(
  shop: Shop,
  behaviour: 'good' | 'card_declined' | 'authentication_required' = 'good',
): Promise<void> {
  const { status } = await send('POST', `${pathOf(shop)}/billing/payment-method`, {
    headers: { authorization: shop.app.basic },
    body: { externalUserId: shop.user },
  })
  expect(status).toBe(200)
  stripe.payCheckout(shop.at, await checkoutOf(shop), { behaviour })
  await until(async () => {
    const [row] = await rows<{ n: number }>(
      `select count(*)::int as n from processor_customers where ${ofUser} and card_id is not null`,
      shop.app.clientId,
      shop.user,
    )
    return row?.n === 1
  })
}

/** What Stripe took in the shop's account, in cents. */
export const taken = ({ at }: Shop): number[] =>
  [...stripe.world(at).list('payment_intent')]
    .filter(({ status }) => status === 'succeeded')
    .map(({ amount }) => Number(amount))

export async function differences(): Promise<unknown[]> {
  const found: unknown[] = []
  for await (const event of operator.books.verifyBooks({ clientId: undefined }))
    if (event.difference) found.push(event.difference)
  return found
}
