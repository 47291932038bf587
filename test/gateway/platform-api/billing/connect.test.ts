import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { atOnce, serviceToken } from '../../../core/support.ts'
import { createBrowser } from '../../pages/support.ts'
import { type Real, type RealApp, password, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let operator: CoreClient
beforeAll(async () => {
  real = await startReal({ ACTIVATION_GATE_MODE: 'enforce', PAYMENT_PROCESSOR: 'simulated' })
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await real.stop()
})

type Session = Readonly<Record<string, string>>
const send = async (line: string, headers: Session, body?: object) => {
  const [method = '', path = ''] = line.split(' ')
  const response = await fetch(`${real.url}/api/v1/apps/${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}
const settings = (clientId: string, values: object) =>
  operator.billing.updateBillingSettings({
    clientId,
    billingMode: undefined,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
    ...values,
  })

async function logIn(email: string) {
  const browser = createBrowser(real.url)
  await browser.logIn(email, password)
  return browser
}
type Browser = Awaited<ReturnType<typeof logIn>>

/** Creates an app in billing mode merchant, with its owner's browser. */
async function newOwner(name: string) {
  const app = await real.newApp(name)
  await settings(app.clientId, { billingMode: 'merchant' })
  return { app, browser: await logIn(`${name}@example.com`), page: `/apps/${app.clientId}/billing` }
}

const pathOf = (url: URL | string | null | undefined): string => {
  const { pathname, search } = new URL(String(url), 'https://svc.example')
  return pathname + search
}

const connect = async (app: RealApp, session: Session = app.session): Promise<string> => {
  const { status, body } = await send(`POST ${app.clientId}/billing/processor/connect`, session)
  expect(status).toBe(200)
  return pathOf(String(body['url']))
}

/** Does one thing on the processor's page and returns the path that it leads back to. */
async function onboard(browser: Browser, path: string, action: string): Promise<string> {
  const page = await browser.get(path)
  expect(page.status).toBe(200)
  const [target = ''] = path.split('?')
  const answer = await browser.post(target, { ...page.fields, action })
  expect(answer.status).toBe(303)
  return pathOf(answer.location)
}

const statusOf = async ({ clientId, basic }: RealApp) =>
  (await send(`GET ${clientId}/billing/processor`, { authorization: basic })).body

const accountsOf = async ({ clientId }: RealApp) =>
  (
    await real.core.sql.query<{ account: string; plane: string; ended: boolean }>(
      `select a.account, a.plane, a.ended_at is not null as ended from processor_accounts a
       join clients c on c.app_id = a.app_id and c.client_id = $1 order by a.created_at, a.ended_at nulls last, a.id`,
      [clientId],
    )
  ).rows

const plan = { name: 'Pro', type: 'usage', priceAmount: '49.00' }
const sell = async ({ clientId, session }: RealApp) =>
  send(`POST ${clientId}/plans`, session, { ...plan, name: `Pro ${Math.random()}` })

describe('owner who connects an account', () => {
  it('lets users pay on the same page, which plans with a price need', async () => {
    const app = await real.newApp('switch')
    const browser = await logIn('switch@example.com')
    const page = `/apps/${app.clientId}/billing`
    expect((await browser.get(page)).text).not.toContain('Let users pay you')
    const back = await onboard(browser, await connect(app), 'complete')
    await browser.get(back)
    const connected = await browser.get(page)
    expect(connected.text).toContain('The account is connected; let users pay you.')
    const fields = { ...connected.fields, billing_mode: 'merchant' }
    const unknown = await browser.post(`${page}/mode`, { ...fields, billing_mode: 'both' })
    expect(unknown).toMatchObject({ status: 400, text: expect.stringContaining('must be one of') })
    expect((await sell(app)).body['code']).toBe('stripe_connect_required')
    expect((await browser.post(`${page}/mode`, fields)).status).toBe(303)
    const done = await browser.get(page)
    expect(done.text).toContain('Users pay you')
    expect(done.text).not.toContain('Let users pay you')
    expect((await sell(app)).status).toBe(201)
  })

  it('goes from the refusal to the page, the processor and back, until plans can be sold', async () => {
    const { app, browser } = await newOwner('circle')
    const refused = await sell(app)
    expect(refused).toMatchObject({ status: 403, body: { code: 'stripe_connect_required' } })
    const page = await browser.get(pathOf(String(refused.body['actionUrl'])))
    expect(page.text).toContain('Connect a payment account')
    const form = `/apps/${app.clientId}/billing/connect`
    const started = await browser.post(form, page.fields)
    expect(started.status).toBe(303)
    expect(await sell(app)).toMatchObject({ body: { code: 'stripe_connect_pending' } })
    expect(await statusOf(app)).toMatchObject({ status: 'pending', detailsSubmitted: false })

    const back = await onboard(browser, pathOf(started.location), 'submit')
    expect(pathOf((await browser.get(back)).location)).toBe(`/apps/${app.clientId}/billing`)
    expect(await statusOf(app)).toMatchObject({
      status: 'pending',
      detailsSubmitted: true,
      chargesEnabled: false,
      connectedAt: null,
    })
    expect(await sell(app)).toMatchObject({ body: { code: 'stripe_connect_pending' } })

    const pending = await browser.get(pathOf(String(refused.body['actionUrl'])))
    expect(pending.text).toContain('Complete the account')
    const again = await browser.post(form, pending.fields)
    expect(
      await browser.get(await onboard(browser, pathOf(again.location), 'complete')),
    ).toMatchObject({ status: 303 })
    expect(await statusOf(app)).toMatchObject({
      processor: 'simulated',
      plane: 'live',
      status: 'connected',
      chargesEnabled: true,
      payoutsEnabled: true,
      detailsSubmitted: true,
      connectedAt: real.core.clock.now().toISOString(),
      applicationFee: 'owner_charge',
      activation: { selling: { allowed: true, code: null } },
    })
    expect((await sell(app)).status).toBe(201)
    expect(await accountsOf(app)).toHaveLength(1)
    const done = await browser.get(`/apps/${app.clientId}/billing`)
    expect(done.text).toContain('Connected')
    const end = await browser.post(`/apps/${app.clientId}/billing/disconnect`, done.fields)
    expect(end.status).toBe(303)
    expect(await sell(app)).toMatchObject({ body: { code: 'stripe_connect_required' } })
  })

  it('may postpone, and continues with the same account', async () => {
    const { app, browser } = await newOwner('later')
    const page = await browser.get(await connect(app))
    const [, postponed = ''] = /href="([^"]+)">Postpone/.exec(page.text) ?? []
    expect((await browser.get(pathOf(postponed))).status).toBe(303)
    await connect(app)
    expect(await accountsOf(app)).toHaveLength(1)
    expect(await statusOf(app)).toMatchObject({ status: 'pending' })
  })

  it('has one account after ten simultaneous starts', async () => {
    const { app } = await newOwner('crowd')
    await atOnce(10, () => connect(app))
    expect(await accountsOf(app)).toHaveLength(1)
    const { rows } = await real.core.sql.query<{ count: number }>(
      `select count(*)::int as count from simulated_objects o
       join clients c on c.client_id = $1
       where o.kind = 'account' and o.data ->> 'reference' = c.app_id::text`,
      [app.clientId],
    )
    expect(rows[0]?.count).toBe(1)
  })

  it('gets a new address when the first one has expired', async () => {
    const { app, browser } = await newOwner('slow')
    const first = await connect(app)
    real.core.clock.advance(6 * 60_000)
    const expired = await browser.get(first)
    expect(pathOf(expired.location)).toContain('/billing/processor/refresh?state=')
    const refreshed = await browser.get(pathOf(expired.location))
    expect(pathOf(refreshed.location)).toMatch(/^\/pay\/accounts\//)
    await browser.get(await onboard(browser, pathOf(refreshed.location), 'complete'))
    expect(await statusOf(app)).toMatchObject({ status: 'connected' })
    expect(await accountsOf(app)).toHaveLength(1)
  })

  it('uses the test plane in a test app, and no other', async () => {
    const { clientId, m2mClientId, m2mClientSecret } = await real.core.as().createApp({
      name: 'Trial',
      ownerEmail: 'later@example.com',
      isTest: true,
      isCustomer: true,
    })
    const basic = `Basic ${Buffer.from(`${m2mClientId}:${m2mClientSecret}`).toString('base64')}`
    const { app: other, browser } = await newOwner('live')
    const trial = { ...other, clientId, basic }
    const owner = await logIn('later@example.com')
    const page = await owner.get(`/apps/${clientId}/billing`)
    expect(page.text).toContain('a test app')
    const started = await owner.post(`/apps/${clientId}/billing/connect`, page.fields)
    await owner.get(await onboard(owner, pathOf(started.location), 'complete'))
    expect(await statusOf(trial)).toMatchObject({ status: 'connected', plane: 'test' })
    expect(await accountsOf(trial)).toMatchObject([{ plane: 'test' }])
    await browser.get(await onboard(browser, await connect(other), 'complete'))
    expect(await accountsOf(other)).toMatchObject([{ plane: 'live' }])
    // An account of the other plane does not count.
    await real.core.sql.query(
      `update processor_accounts set plane = 'test' where app_id = (select app_id from clients where client_id = $1)`,
      [other.clientId],
    )
    expect(await statusOf(other)).toMatchObject({ status: 'disconnected', plane: 'live' })
  })
})

describe('way back from the processor', () => {
  const notValid = { status: 400 }

  it('is used once', async () => {
    const { app, browser } = await newOwner('once')
    const back = await onboard(browser, await connect(app), 'complete')
    expect((await browser.get(back)).status).toBe(303)
    const repeated = await browser.get(back)
    expect(repeated).toMatchObject(notValid)
    expect(repeated.text).toContain('Nothing is lost')
    expect(repeated.text).toContain(`href="/apps/${app.clientId}/billing"`)
  })

  it('is used once by simultaneous visits', async () => {
    const { app, browser } = await newOwner('twins')
    const back = await onboard(browser, await connect(app), 'complete')
    const answers = await atOnce(8, () => browser.get(back))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([303, ...Array(7).fill(400)])
  })

  it('ends after 15 minutes', async () => {
    const { app, browser } = await newOwner('tardy')
    const back = await onboard(browser, await connect(app), 'complete')
    real.core.clock.advance(15 * 60_000)
    expect(await browser.get(back)).toMatchObject(notValid)
  })

  it('is refused with a forged state', async () => {
    const { app, browser } = await newOwner('forged')
    const back = `/api/v1/apps/${app.clientId}/billing/processor/return`
    for (const query of ['', '?state=', '?state=x', `?state=cst_${'a'.repeat(49)}`])
      expect(await browser.get(back + query)).toMatchObject(notValid)
    expect((await browser.get(`${back}?state=a&state=b`)).status).toBe(400)
  })

  it('is refused for another person and in another app, and stays usable', async () => {
    const { app, browser } = await newOwner('mine')
    const { app: foreign, browser: stranger } = await newOwner('foreign')
    const admin = await real.newPerson(true)
    const adminBrowser = await logIn(admin.email)
    const back = await onboard(browser, await connect(app), 'complete')
    expect((await stranger.get(back)).status).toBe(404)
    expect(await adminBrowser.get(back)).toMatchObject(notValid)
    const elsewhere = back.replace(app.clientId, foreign.clientId)
    expect(await stranger.get(elsewhere)).toMatchObject(notValid)
    expect(await adminBrowser.get(elsewhere)).toMatchObject(notValid)
    const visitor = await createBrowser(real.url).get(back)
    expect(visitor.location?.pathname).toBe('/login')
    expect((await browser.get(back)).status).toBe(303)
  })

  it('returns to it after a login', async () => {
    const { app, browser } = await newOwner('relog')
    const back = await onboard(browser, await connect(app), 'complete')
    const fresh = createBrowser(real.url)
    const login = await fresh.get(back)
    const returnTo = login.location?.searchParams.get('return_to') ?? ''
    const entered = await fresh.logIn('relog@example.com', password, returnTo)
    expect(pathOf(entered.location)).toBe(back)
    expect((await fresh.get(back)).status).toBe(303)
  })
})

describe('end of a connection', () => {
  it('comes with DELETE, repeatedly, and keeps the account in its row', async () => {
    const { app, browser } = await newOwner('ender')
    await browser.get(await onboard(browser, await connect(app), 'complete'))
    const [before] = await accountsOf(app)
    for (let i = 0; i < 2; i++)
      expect(await send(`DELETE ${app.clientId}/billing/processor`, app.session)).toMatchObject({
        status: 200,
        body: { success: true },
      })
    expect(await statusOf(app)).toMatchObject({
      status: 'disconnected',
      connectedAt: null,
      chargesEnabled: false,
    })
    expect(await accountsOf(app)).toEqual([{ ...before, ended: true }])
    await browser.get(await onboard(browser, await connect(app), 'complete'))
    const accounts = await accountsOf(app)
    expect(accounts.map(({ ended }) => ended)).toEqual([true, false])
    expect(accounts[1]?.account).not.toBe(before?.account)
  })

  it('comes from the processor when the owner ends it there', async () => {
    const { app, browser } = await newOwner('quits')
    await browser.get(await onboard(browser, await connect(app), 'complete'))
    await onboard(browser, await connect(app), 'end')
    await expect.poll(() => statusOf(app)).toMatchObject({ status: 'disconnected' })
    expect(await accountsOf(app)).toMatchObject([{ ended: true }])
    expect(await sell(app)).toMatchObject({ body: { code: 'stripe_connect_required' } })
  })

  it('refuses a way back that was started before', async () => {
    const { app, browser } = await newOwner('race')
    const back = await onboard(browser, await connect(app), 'complete')
    await send(`DELETE ${app.clientId}/billing/processor`, app.session)
    expect((await browser.get(back)).status).toBe(303)
    expect(await statusOf(app)).toMatchObject({ status: 'disconnected' })
  })
})

describe('people without the right', () => {
  it('do not connect or disconnect an app', async () => {
    const { app } = await newOwner('rights')
    const { app: other, browser } = await newOwner('other')
    for (const [method, path] of [
      ['POST', 'billing/processor/connect'],
      ['DELETE', 'billing/processor'],
    ] as const) {
      expect((await send(`${method} ${app.clientId}/${path}`, other.session)).status).toBe(404)
      expect((await send(`${method} ${app.clientId}/${path}`, {})).status).toBe(401)
      expect(
        (await send(`${method} ${app.clientId}/${path}`, { authorization: app.basic })).status,
      ).toBe(401)
    }
    expect((await browser.get(`/apps/${app.clientId}/billing`)).status).toBe(404)
    const own = await browser.get(`/apps/${other.clientId}/billing`)
    const stolen = await browser.post(`/apps/${app.clientId}/billing/connect`, own.fields)
    expect(stolen.status).toBe(404)
    const crossSite = await browser.post(
      `/apps/${other.clientId}/billing/connect`,
      own.fields,
      'https://evil.example',
    )
    expect(crossSite.status).toBe(403)
    expect(await accountsOf(app)).toEqual([])
  })

  it('include viewers, who see the page', async () => {
    const { app } = await newOwner('viewed')
    const { email, session } = await real.newPerson()
    await real.core.sql.query(
      `insert into members (app_id, account_id, role, created_at)
       select c.app_id, a.id, 'viewer', now() from clients c, accounts a where c.client_id = $1 and a.email = $2`,
      [app.clientId, email],
    )
    const viewer = await logIn(email)
    const page = await viewer.get(`/apps/${app.clientId}/billing`)
    expect(page.status).toBe(200)
    const refused = await viewer.post(`/apps/${app.clientId}/billing/connect`, page.fields)
    expect(refused.status).toBe(403)
    const mode = { ...page.fields, billing_mode: 'owner_rollup' }
    expect((await viewer.post(`/apps/${app.clientId}/billing/mode`, mode)).status).toBe(403)
    expect((await send(`POST ${app.clientId}/billing/processor/connect`, session)).status).toBe(403)
  })
})

describe('operator', () => {
  it('shows, starts and ends a connection for the owner', async () => {
    const { app, browser } = await newOwner('ops')
    const { clientId } = app
    const { url } = await operator.billing.connectProcessor({ clientId })
    await browser.get(await onboard(browser, pathOf(url), 'complete'))
    expect(await operator.billing.getProcessor({ clientId })).toMatchObject({ status: 'connected' })
    await operator.billing.disconnectProcessor({ clientId })
    expect(await operator.billing.getProcessor({ clientId })).toMatchObject({
      status: 'disconnected',
    })
  })
})

describe('other core', () => {
  it('sees the connection at once', async () => {
    const { app, browser } = await newOwner('twocores')
    const { core } = await real.core.startAnother()
    const other = connectCore({ target: core.target, token: serviceToken, tls: undefined })
    await browser.get(await onboard(browser, await connect(app), 'complete'))
    const { clientId } = app
    expect(await other.billing.getProcessor({ clientId })).toMatchObject({ status: 'connected' })
    await other.billing.disconnectProcessor({ clientId })
    expect(await statusOf(app)).toMatchObject({ status: 'disconnected' })
    other.close()
  })
})
