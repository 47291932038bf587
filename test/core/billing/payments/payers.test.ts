import { afterEach, describe, expect, it } from 'vitest'
import type { ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import {
  type Answer,
  newMerchant,
  real,
  send,
  setUpShops,
  stripe,
} from '../../../gateway/platform-api/billing/shops.ts'
import type { RealApp } from '../../../gateway/real.ts'
import { asRecord } from '../../../gateway/support.ts'
import { until } from '../../../support/waiting.ts'

setUpShops()
afterEach(() => {
  stripe.webhooks.plan = () => ({})
  stripe.faults = () => undefined
})

const billing = ({ clientId }: RealApp): string => `/api/v1/apps/${clientId}/billing`

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

/** Pays a top-up and waits until it is credited. Returns the processor's payment. */
async function pay(app: RealApp, at: ProcessorAccount, amountUsd: string): Promise<string> {
  const { body } = await topUp(app, { amountUsd, externalUserId: 'ada' })
  const session = stripe.payCheckout(at, await processorId(body['sessionId']))
  await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
  return String(session.payment_intent)
}

describe('a customer that was deleted at the processor', () => {
  interface StoredCustomer {
    readonly id: string
    readonly former_ids: string[]
  }

  async function customerOf({ clientId }: RealApp): Promise<StoredCustomer> {
    const { rows } = await real.core.sql.query<StoredCustomer>(
      `select k.customer_id as id, k.former_ids
       from processor_customers k join clients c on c.app_id = k.app_id where c.client_id = $1`,
      [clientId],
    )
    const [customer] = rows
    if (!customer) throw new Error('there is no customer')
    return customer
  }

  /** Deletes the customer; the event of it is lost. */
  async function deleteSilently(app: RealApp, at: ProcessorAccount): Promise<string> {
    const { id } = await customerOf(app)
    await stripe.webhooks.idle()
    stripe.webhooks.plan = () => ({ copies: 0 })
    stripe.deleteCustomer(at, id)
    stripe.webhooks.plan = () => ({})
    return id
  }

  const cardSetup = (app: RealApp) =>
    send('POST', `${billing(app)}/payment-method`, {
      headers: { authorization: app.basic },
      body: { externalUserId: 'ada' },
    })

  const goneEntries = async ({ clientId }: RealApp) =>
    (
      await real.core.sql.query<{ details: Record<string, unknown> }>(
        `select a.details from audit_log a join clients c on c.app_id = a.app_id
         where c.client_id = $1 and a.action = 'processor_customer_gone'`,
        [clientId],
      )
    ).rows.map(({ details }) => details)

  it('is replaced by a new one, which pays and has the card', async () => {
    const { app, at } = await newMerchant('gone')
    await pay(app, at, '20')
    const former = await deleteSilently(app, at)
    await pay(app, at, '30')
    expect(await balanceOf(app)).toBe('55000000')
    const customer = await customerOf(app)
    expect(customer).toEqual({ id: expect.not.stringMatching(former), former_ids: [former] })
    expect((await walletOf(app))['paymentMethod']).toMatchObject({ hasDefault: true })
    expect(await goneEntries(app)).toMatchObject([{ customerId: former, plane: at.plane }])
  })

  it('is forgotten with its card when its event comes, and again for each further one', async () => {
    const { app, at } = await newMerchant('gone-by-event')
    for (const last4 of ['1111', '2222']) {
      const { body } = await cardSetup(app)
      stripe.payCheckout(at, await processorId(body['sessionId']), { last4 })
      const card = async () => asRecord((await walletOf(app))['paymentMethod'])
      await until(async () => (await card())['hasDefault'] === true)
      stripe.deleteCustomer(at, (await customerOf(app)).id)
      await until(async () => (await card())['hasDefault'] === false)
    }
    expect((await cardSetup(app)).status).toBe(200)
    expect((await customerOf(app)).former_ids).toHaveLength(2)
    expect(await goneEntries(app)).toHaveLength(2)
  })

  it('keeps the money of a checkout that it paid before', async () => {
    const { app, at } = await newMerchant('gone-after-paying')
    const { body } = await topUp(app, { amountUsd: '20', externalUserId: 'ada' })
    const session = await processorId(body['sessionId'])
    const former = (await customerOf(app)).id
    await stripe.webhooks.idle()
    stripe.webhooks.plan = () => ({ copies: 0 })
    stripe.payCheckout(at, session)
    stripe.deleteCustomer(at, former)
    stripe.webhooks.plan = () => ({})
    expect((await cardSetup(app)).status).toBe(200)
    expect((await customerOf(app)).former_ids).toEqual([former])
    real.core.clock.advance(120_000)
    await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
    expect(await balanceOf(app)).toBe('25000000')
  })

  it('is not taken for one because the processor refuses or does not answer', async () => {
    const { app, at } = await newMerchant('not-gone')
    await pay(app, at, '20')
    const { id } = await customerOf(app)
    const refuse = (status: number, route: RegExp) => {
      stripe.faults = ({ method, path }) =>
        route.test(`${method} ${path}`) ? { kind: 'refuse', status } : undefined
    }
    refuse(400, /^POST .*sessions/)
    expect((await cardSetup(app)).status).toBe(502)
    await deleteSilently(app, at)
    refuse(500, /^GET .*customers/)
    expect((await cardSetup(app)).status).toBe(502)
    expect(await customerOf(app)).toEqual({ id, former_ids: [] })
    stripe.faults = () => undefined
    expect((await cardSetup(app)).status).toBe(200)
    expect((await customerOf(app)).former_ids).toEqual([id])
  })
})

describe('transactions with payer user', () => {
  it('are those of the named user, also while the owner pays', async () => {
    const app = await real.newApp('statement')
    const given = await send('POST', `/api/v1/apps/${app.clientId}/users/ada/allowances`, {
      headers: { authorization: app.basic },
      body: { amountUsdMicros: '2000000' },
    })
    expect(given.status).toBe(200)
    const list = (query: string) =>
      send('GET', `${billing(app)}/wallet/transactions?${query}`, { headers: app.session })
    const own = await list('payer=user&externalUserId=ada')
    expect(own).toMatchObject({
      status: 200,
      body: {
        items: [
          { creditDeltaUsdMicros: '2000000', balanceUsdMicros: '7000000' },
          { type: 'credit_granted', balanceUsdMicros: '5000000' },
        ],
      },
    })
    const [credit] = [own.body['items']].flat()
    const owners = await list('externalUserId=ada')
    expect(owners.body['items']).not.toContainEqual(credit)
    const refused = ['payer=user', 'payer=user&externalUserId=%20', 'payer=me&externalUserId=ada']
    for (const query of refused) expect([query, (await list(query)).status]).toEqual([query, 400])
    expect((await list('payer=user&externalUserId=nobody')).status).toBe(404)
    const wallet = `${billing(app)}/wallet?payer=user&externalUserId=ada`
    expect((await send('GET', wallet, { headers: app.session })).status).toBe(400)
  })
})

describe('the list of payments', () => {
  const read = (app: RealApp, query = '', headers: Record<string, string> = app.session) =>
    fetch(`${real.url}/api/v1/internal/apps/${app.clientId}/payments${query}`, { headers })
  const listed = async (app: RealApp, query = '') => {
    const answer = await read(app, query)
    expect(answer.status).toBe(200)
    return asRecord(await answer.json())
  }
  const amounts = async (app: RealApp, query: string) => {
    const { payments } = await listed(app, query)
    return Array.isArray(payments) ? payments.map((one) => asRecord(one)['amountUsd']) : []
  }

  it('has what went back, filters by state, user and time, and pages', async () => {
    const { app, at } = await newMerchant('list')
    const paid = []
    for (const amountUsd of ['10', '20', '30']) {
      paid.push(await pay(app, at, amountUsd))
      real.core.clock.advance(1_000)
    }
    stripe.refundPayment(at, paid[0] ?? '', 400)
    stripe.refundPayment(at, paid[1] ?? '')
    await until(async () => (await amounts(app, '?state=refunded')).length === 1)
    await until(async () => (await amounts(app, '?state=partly_refunded')).length === 1)
    expect(await amounts(app, '')).toEqual(['30.00', '20.00', '10.00'])
    expect(await amounts(app, '?state=refunded')).toEqual(['20.00'])
    expect(await amounts(app, '?state=partly_refunded')).toEqual(['10.00'])
    expect(await amounts(app, '?state=received')).toEqual(['30.00'])
    expect(await amounts(app, '?externalUserId=bob')).toEqual([])
    expect(await amounts(app, '?since=2100-01-01')).toEqual([])
    expect(await amounts(app, '?until=2100-01-01T00:00:00Z')).toHaveLength(3)
    const first = await listed(app, '?limit=2')
    const rest = `?limit=2&cursor=${encodeURIComponent(String(first['nextCursor']))}`
    expect(await amounts(app, rest)).toEqual(['10.00'])
    stripe.dispute(at, paid[2] ?? '')
    await until(async () => (await amounts(app, '?state=disputed')).length === 1)
    expect((await listed(app, '?state=disputed'))['payments']).toMatchObject([
      { externalUserId: 'ada', purpose: 'top_up', disputedUsd: '30.00', invoiceId: null },
    ])
  })

  it('is a table, too, in which no cell is a formula', async () => {
    const { app, at } = await newMerchant('table')
    const user = '=1+1,"x"'
    await real.core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: user })
    const { body } = await topUp(app, { amountUsd: '5', externalUserId: user })
    stripe.payCheckout(at, await processorId(body['sessionId']))
    await until(async () => (await statusOf(app, body['sessionId'])) === 'settled')
    const answer = await read(app, '?state=received', { ...app.session, accept: 'text/csv' })
    expect(answer.headers.get('content-type')).toContain('text/csv')
    const [head, row, end] = (await answer.text()).split('\n')
    expect(head).toMatch(/^createdAt,externalUserId,purpose,amountUsd,/)
    expect(row).toContain(`,"'=1+1,""x""",top_up,5.00,`)
    expect(end).toBe('')
  })

  it('refuses an unknown state, a date that is none, and a person of another app', async () => {
    const { app } = await newMerchant('refusing')
    for (const query of ['?state=lost', '?since=yesterday', '?until=2026-02-31', '?cursor=x'])
      expect((await read(app, query)).status).toBe(400)
    const { session } = (await newMerchant('another')).app
    expect((await read(app, '', session)).status).toBe(404)
    expect((await read(app, '', {})).status).toBe(401)
  })
})
