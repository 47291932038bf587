import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Fault } from '../../../fakes/stripe/faults.ts'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { type Real, type RealApp, startReal } from '../../../gateway/real.ts'
import { asRecord } from '../../../gateway/support.ts'

/** What owners see of their account at the payment processor: its balance and its payouts. */

let stripe: FakeStripe
let real: Real
beforeAll(async () => {
  stripe = await startStripe({ now: () => real.core.clock.now() })
  real = await startReal({ ...stripe.env, STRIPE_TIMEOUT_MS: '500' })
})
afterEach(() => {
  stripe.faults = () => undefined
})
afterAll(async () => {
  await real.stop()
  await stripe.stop()
})

/** Creates an app with an account that is completed at Stripe. */
async function newConnectedApp(name: string) {
  const app = await real.newApp(name)
  const path = `/api/v1/apps/${app.clientId}/billing/processor/connect`
  const answer = await fetch(real.url + path, { method: 'POST', headers: app.session })
  const account =
    String(asRecord(await answer.json())['url'])
      .split('/')
      .at(-1) ?? ''
  stripe.onboard(account)
  return { app, account, at: { plane: 'live', account } as const }
}

async function read({ clientId, session }: RealApp, path: string) {
  const url = `${real.url}/api/v1/internal/apps/${clientId}/billing/${path}`
  const answer = await fetch(url, { headers: session })
  return { status: answer.status, body: asRecord(await answer.json()) }
}

const requestsTo = (route: string): number =>
  stripe.requests.filter((request) => request.route === route).length

const breakAll = (fault: Fault): void => {
  stripe.faults = ({ method }) => (method === 'GET' ? fault : undefined)
}

describe('balance and payouts', () => {
  it('are read from the account of the app, by currency and newest first', async () => {
    const { app, account, at } = await newConnectedApp('paid')
    stripe.payOut(at, { amount: -2_005 })
    stripe.payOut(at, { amount: 1_200, currency: 'jpy', status: 'in_transit' })
    const failed = { status: 'failed', failure_code: 'account_closed' }
    stripe.payOut(at, { amount: 7, ...failed })
    const balance = await read(app, 'balance')
    expect(balance).toMatchObject({ status: 200, body: { account } })
    expect(balance.body['balances']).toEqual([
      { currency: 'USD', available: '20.05', pending: '0.00' },
      { currency: 'JPY', available: '-1200', pending: '0' },
    ])
    const { body } = await read(app, 'payouts?limit=2')
    expect(body['payouts']).toMatchObject([
      { amount: '0.07', currency: 'USD', status: 'failed', failure: 'account_closed' },
      { amount: '1200', currency: 'JPY', status: 'in_transit', failure: null },
    ])
    const rest = await read(app, `payouts?limit=2&cursor=${String(body['nextCursor'])}`)
    expect(rest.body).toMatchObject({ payouts: [{ amount: '-20.05', status: 'paid' }] })
    expect(rest.body).not.toHaveProperty('nextCursor')
    expect(asRecord([rest.body['payouts']].flat()[0])['arrivalDate']).toMatch(/^\d{4}-\d\d-\d\d$/)
    const accounts = stripe.requests.filter(({ route }) => route === '/v1/payouts')
    expect(new Set(accounts.map((request) => request.account))).toEqual(new Set([account]))
  })

  it('are empty without an account, and never sent for', async () => {
    const app = await real.newApp('unconnected')
    const before = stripe.requests.length
    expect(await read(app, 'balance')).toMatchObject({
      status: 200,
      body: { account: null, balances: [] },
    })
    expect(await read(app, 'payouts')).toMatchObject({
      status: 200,
      body: { account: null, payouts: [] },
    })
    expect(stripe.requests.length).toBe(before)
  })

  it('are asked for once a minute, also by many at once', async () => {
    const { app, at } = await newConnectedApp('busy')
    const before = requestsTo('/v1/balance')
    const many = await Promise.all(Array.from({ length: 12 }, () => read(app, 'balance')))
    expect(many.every(({ status }) => status === 200)).toBe(true)
    stripe.payOut(at, { amount: 500 })
    expect((await read(app, 'balance')).body['balances']).toEqual([])
    expect(requestsTo('/v1/balance')).toBe(before + 1)
    real.core.clock.advance(60_000)
    expect((await read(app, 'balance')).body['balances']).toMatchObject([{ available: '-5.00' }])
    expect(requestsTo('/v1/balance')).toBe(before + 2)
  })

  it('are no empty list when the processor does not answer', async () => {
    const { app } = await newConnectedApp('down')
    breakAll({ kind: 'hang before' })
    for (const path of ['balance', 'payouts'])
      expect(await read(app, path)).toMatchObject({
        status: 503,
        body: { code: 'processor_unreachable' },
      })
    stripe.faults = () => undefined
    for (const path of ['balance', 'payouts']) expect((await read(app, path)).status).toBe(200)
  })

  it('are refused with the reason of the processor', async () => {
    const { app, account } = await newConnectedApp('ended')
    stripe.deauthorize(account)
    expect(await read(app, 'balance')).toMatchObject({
      status: 502,
      body: { code: 'processor_refused', detail: expect.stringContaining('ended the connection') },
    })
  })

  it('refuse a larger page, and a cursor that the list did not return', async () => {
    const { app } = await newConnectedApp('cursors')
    for (const query of ['limit=51', 'limit=0', 'cursor=po_none', 'cursor=%2Fv1'])
      expect([query, (await read(app, `payouts?${query}`)).status]).toEqual([query, 400])
  })
})
