import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { AccountState, PaymentProcessor } from '../../../../core/billing/processor/port.ts'
import { DomainError } from '../../../../proto/errors.ts'
import { createBrowser } from '../../pages/support.ts'
import { type Real, type RealApp, password, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

/** How connections behave when the payment processor is down, slow to answer or forgetful. */

const down = (): DomainError =>
  new DomainError('PROCESSOR_UNREACHABLE', 'the payment processor does not answer')

let failing: 'nothing' | 'all' | 'after creation' | 'links' | 'refused'
let state: AccountState | null
const created: { plane: string; key: string; reference: string }[] = []
const unused = async (): Promise<never> => {
  throw new Error('connections do not call this')
}

/** A processor that creates one account per key, and fails in the chosen place. */
const processor: PaymentProcessor = {
  kind: 'stripe',
  planes: ['live'],
  createAccount: async (plane, { reference }, key) => {
    if (failing === 'all') throw down()
    if (failing === 'refused') throw new DomainError('PROCESSOR_REFUSED', 'the key is not valid')
    if (!created.some((each) => each.key === key)) created.push({ plane, key, reference })
    // The account exists, but the answer is lost.
    if (failing === 'after creation') throw down()
    return { id: `acct_${created.findIndex((each) => each.key === key)}` }
  },
  createOnboardingUrl: async (_, { returnUrl }) => {
    if (failing !== 'nothing') throw down()
    return { url: `https://connect.example/?back=${encodeURIComponent(returnUrl)}` }
  },
  readAccount: async () => {
    if (failing !== 'nothing') throw down()
    return state
  },
  readBalance: unused,
  listPayouts: unused,
  createCustomer: unused,
  readCard: unused,
  hasCustomer: unused,
  openCheckout: unused,
  readCheckout: unused,
  expireCheckout: unused,
  pay: unused,
  readPayment: unused,
  findPayment: unused,
  refund: unused,
  listRefunds: unused,
  verifyEvent: () => {
    throw down()
  },
  listMovements: unused,
}

let real: Real
beforeAll(async () => {
  real = await startReal({}, { processor })
})
afterAll(() => real.stop())
beforeEach(() => {
  failing = 'nothing'
  created.length = 0
  state = { chargesEnabled: true, payoutsEnabled: true, detailsSubmitted: true }
})

const send = async (line: string, app: RealApp) => {
  const [method = '', path = ''] = line.split(' ')
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
    method,
    headers: app.session,
  })
  return { status: response.status, body: asRecord(await response.json()) }
}
const connect = (app: RealApp) => send('POST /billing/processor/connect', app)
const statusOf = async (app: RealApp) => (await send('GET /billing/processor', app)).body['status']

/** Starts a connection and returns the owner's browser and the way back. */
async function started(name: string) {
  const app = await real.newApp(name)
  const { body } = await connect(app)
  const back = new URL(new URL(String(body['url'])).searchParams.get('back') ?? '')
  const browser = createBrowser(real.url)
  await browser.logIn(`${name}@example.com`, password)
  return { app, browser, back: back.pathname + back.search }
}

describe('processor that does not answer', () => {
  it('fails the start, and no other route', async () => {
    const app = await real.newApp('down')
    failing = 'all'
    expect(await connect(app)).toMatchObject({
      status: 503,
      body: { code: 'processor_unreachable' },
    })
    expect(await send('GET /billing/processor', app)).toMatchObject({
      status: 200,
      body: { status: 'disconnected' },
    })
    expect((await send('GET /billing/settings', app)).status).toBe(200)
    expect((await send('DELETE /billing/processor', app)).status).toBe(200)
  })

  it('has created one account when the lost answer is asked for again', async () => {
    const app = await real.newApp('lost')
    failing = 'after creation'
    for (let i = 0; i < 3; i++) expect((await connect(app)).status).toBe(503)
    failing = 'links'
    expect((await connect(app)).status).toBe(503)
    failing = 'nothing'
    expect((await connect(app)).status).toBe(200)
    expect(created).toHaveLength(1)
    expect(created[0]?.key).toBe(`live:${created[0]?.reference}:account:${await idOf(app)}`)
    expect(await statusOf(app)).toBe('pending')
  })

  it('does not stop the person who comes back', async () => {
    const { app, browser, back } = await started('back')
    failing = 'all'
    expect((await browser.get(back)).status).toBe(303)
    expect(await statusOf(app)).toBe('pending')
    expect((await browser.get(`/apps/${app.clientId}/billing`)).status).toBe(200)
  })
})

async function idOf({ clientId }: RealApp): Promise<string | undefined> {
  const { rows } = await real.core.sql.query<{ id: string }>(
    `select a.id from processor_accounts a join clients c on c.app_id = a.app_id and c.client_id = $1`,
    [clientId],
  )
  return rows[0]?.id
}

describe('processor that refuses', () => {
  it('is 502 with its reason', async () => {
    const app = await real.newApp('refusing')
    failing = 'refused'
    expect(await connect(app)).toMatchObject({
      status: 502,
      body: { code: 'processor_refused', detail: 'the key is not valid' },
    })
  })
})

describe('processor without credentials of a plane', () => {
  it('connects no app of that plane', async () => {
    const app = await real.newApp('planes')
    const { clientId } = await real.core.as().createApp({
      name: 'Trial',
      ownerEmail: 'planes@example.com',
      isTest: true,
      isCustomer: true,
    })
    expect(await connect({ ...app, clientId })).toMatchObject({
      status: 503,
      body: {
        code: 'processor_not_configured',
        detail: expect.stringContaining('the test plane'),
      },
    })
    expect(created).toEqual([])
  })
})

describe('account at the processor', () => {
  it('that lacks details or the right to charge is pending', async () => {
    for (const [name, flags] of [
      ['bare', { chargesEnabled: true, detailsSubmitted: false }],
      ['barred', { chargesEnabled: false, detailsSubmitted: true }],
    ] as const) {
      const { app, browser, back } = await started(name)
      state = { payoutsEnabled: true, ...flags }
      await browser.get(back)
      expect(await statusOf(app)).toBe('pending')
    }
  })

  it('needs no payouts to be connected', async () => {
    const { app, browser, back } = await started('unpaid')
    state = { chargesEnabled: true, payoutsEnabled: false, detailsSubmitted: true }
    await browser.get(back)
    expect(await statusOf(app)).toBe('connected')
  })

  it('that is gone ends the connection', async () => {
    const { app, browser, back } = await started('gone')
    state = null
    await browser.get(back)
    expect(await statusOf(app)).toBe('disconnected')
  })
})
