import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { operate } from '../../../deploy/cli/support.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, newSellingApp, startReal } from '../../real.ts'
import { createBrowser } from '../../pages/support.ts'
import { asRecord } from '../../support.ts'

let real: Real
let operator: CoreClient
let platform: string
beforeAll(async () => {
  real = await startReal({ ACTIVATION_GATE_MODE: 'enforce', PAYMENT_PROCESSOR: 'simulated' })
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  vi.stubEnv('CORE_TARGET', real.core.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
  const { apps } = await operator.apps.listApps({ limit: 10, cursor: undefined })
  platform = apps.find(({ isPlatformApp }) => isPlatformApp)?.clientId ?? ''
})
afterAll(async () => {
  vi.unstubAllEnvs()
  operator.close()
  await real.stop()
})

let sessions = 0

/** Signs one ticket of an end user. 10^15 wei are 3 USD. */
async function use(app: RealApp, fee = '1000000000000000', pixels = 0): Promise<void> {
  const ticket = {
    auth_id: `${app.clientId}:ada`,
    computed_fee: fee,
    current_time: real.core.clock.now().toISOString(),
    pixels,
    sequence_number: 0,
    session_id: `session-${(sessions += 1)}`,
  }
  await real.core.as().ingestEvents({ envelopes: [envelope(ticket)] })
}

type Headers = Readonly<Record<string, string>>

async function ask(
  method: string,
  app: Pick<RealApp, 'clientId'>,
  {
    path = '/billing/owner-plan',
    headers = {},
    json,
  }: { path?: string; headers?: Headers; json?: unknown },
) {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
    method,
    headers: { ...headers, ...(json === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

const read = (app: RealApp) => ask('GET', app, { headers: app.session })
const list = (app: RealApp) =>
  ask('GET', app, { path: '/billing/owner-plans', headers: app.session })
const take = (app: RealApp, json: object, headers: Headers = {}) =>
  ask('POST', app, { headers: { ...app.session, ...headers }, json })

/** Creates an owner plan: a plan of the platform app. */
async function newPlan(name: string, terms: object): Promise<string> {
  const units = { includedUnits: '100', overageRateWei: '1' }
  const plan = {
    name,
    type: 'subscription',
    status: 'active',
    priceAmount: '0',
    ...units,
    ...terms,
  }
  const { id } = await operator.plans.createPlan({
    clientId: platform,
    planJson: JSON.stringify(plan),
  })
  return id
}

/** Creates an app in billing mode merchant. */
const newShop = (name: string): Promise<RealApp> => newSellingApp({ real, operator }, name)

/** Pays at a page of the simulated processor. */
async function payAt(checkoutUrl: unknown): Promise<void> {
  const browser = createBrowser(real.url)
  const path = new URL(String(checkoutUrl)).pathname
  await browser.post(path, { ...(await browser.get(path)).fields, card: 'works' })
}

const isPlatformOwned = ({ clientId }: RealApp, owned: boolean) =>
  operator.billing.updateBillingSettings({ clientId, isPlatformOwned: owned })

describe('the account of an owner', () => {
  it('has what Starter includes, and charges by app', async () => {
    const app = await real.newApp('reads')
    expect(await read(app)).toMatchObject({
      status: 200,
      body: { email: 'reads@example.com', platformClientId: platform, plan: null, charges: [] },
    })
    await use(app)
    await use(app, '333333333333333')
    const { body } = await read(app)
    expect(body).toMatchObject({
      balanceUsdMicros: '1000000',
      overageUsdMicros: '0',
      plan: { name: 'Starter', includedUsdMicros: '5000000' },
      subscription: { status: 'active' },
      charges: [
        {
          clientId: app.clientId,
          name: 'reads',
          ticketCount: 2,
          ownerChargeUsdMicros: '4000000',
        },
      ],
    })
  })

  it('is printed by tollgate account show', async () => {
    const app = await real.newApp('shown')
    await use(app)
    const { code, text } = await operate('account', 'show', '--email', 'shown@example.com')
    expect(code).toBe(0)
    expect(text).toMatch(/plan +Starter/)
    expect(text).toMatch(/left +2\.00 USD/)
    expect(text).toContain(app.clientId)
    const unknown = await operate('account', 'show', '--email', 'nobody@example.com')
    expect(unknown.code).toBe(1)
  })

  it('is shown only to the account that pays', async () => {
    const [app, other] = [await real.newApp('private'), await real.newApp('stranger')]
    const admin = await real.newPerson(true)
    const status = async (headers: Headers) =>
      [
        (await ask('GET', app, { headers })).status,
        (await ask('POST', app, { headers, json: { planId: 'x' } })).status,
        (await ask('GET', app, { path: '/billing/owner-plans', headers })).status,
      ].join(' ')
    expect(await status({})).toBe('401 401 401')
    expect(await status({ authorization: app.basic })).toBe('401 401 401')
    expect(await status(other.session)).toBe('404 404 404')
    // A platform admin is an owner of every app, but does not pay for it.
    expect(await status(admin.session)).toBe('403 403 403')
  })

  it('does not exist for a platform-owned app', async () => {
    const app = await real.newApp('platforms')
    await isPlatformOwned(app, true)
    expect((await read(app)).status).toBe(409)
    expect((await take(app, { planId: 'x' })).status).toBe(409)
    expect((await list(app)).status).toBe(409)
  })
})

describe('an owner plan', () => {
  it('is taken at once without a price, and shown in the billing summary with all units', async () => {
    const app = await real.newApp('takes')
    await use(app, '1')
    const planId = await newPlan('Team', {
      includedUsdMicros: '20000000',
      includedUnits: '5',
      overageRateWei: '1000',
    })
    const { status, body } = await take(app, { planId, timing: 'immediate' })
    expect([status, body]).toEqual([200, expect.objectContaining({ planId, timing: 'immediate' })])
    real.core.clock.advance(1_000)
    expect((await read(app)).body).toMatchObject({
      plan: { id: planId, name: 'Team' },
      balanceUsdMicros: '20000000',
    })
    await use(app, '1', 7)
    const summary = await ask('GET', app, { path: '/billing', headers: app.session })
    expect(summary.body).toMatchObject({
      plan: { id: planId, name: 'Team' },
      subscription: { status: 'active' },
      cycle: { overage: { overageUnits: '2', overageWei: '2000' } },
    })
    expect((await take(app, { planId })).status).toBe(400)
  })

  it('with a price is taken when it is paid, and with a card on file at once', async () => {
    const app = await real.newApp('pays')
    const terms = { priceAmount: '49.00', includedUsdMicros: '60000000' }
    const planId = await newPlan('Pro', terms)
    const before = await take(app, { planId })
    expect([before.status, before.body['effectiveAt']]).toEqual([200, null])
    expect((await read(app)).body['plan']).toMatchObject({ name: 'Starter' })
    const browser = createBrowser(real.url)
    const path = new URL(String(before.body['checkoutUrl'])).pathname
    const page = await browser.get(path)
    expect(page.text).toContain('$49.00')
    await browser.post(path, { ...page.fields, card: 'works' })
    const planOf = async () => {
      real.core.clock.advance(10)
      return asRecord((await read(app)).body['plan'])['id']
    }
    await expect.poll(planOf, { timeout: 10_000 }).toBe(planId)
    real.core.clock.advance(1_000)
    const dearer = await newPlan('Max', { ...terms, priceAmount: '99.00' })
    expect((await take(app, { planId: dearer })).body).toMatchObject({ planId: dearer })
    expect(await planOf()).toBe(dearer)
  })

  it('is listed with price and included usage, if a change to it is possible', async () => {
    const app = await real.newApp('chooses')
    const closed = await newPlan('Closed', { status: 'inactive' })
    const free = await newPlan('Listed', { includedUsdMicros: '7000000' })
    const priced = await newPlan('Listed for money', { priceAmount: '12.50' })
    const { status, body } = await list(app)
    const plans = Array.isArray(body['plans']) ? body['plans'].map(asRecord) : []
    expect([status, plans[0]]).toEqual([
      200,
      expect.objectContaining({ name: 'Starter', isStarter: true, needsCard: false }),
    ])
    const find = (planId: string) => plans.find(({ id }) => id === planId)
    const shown = { name: 'Listed', priceAmount: '0', includedUsdMicros: '7000000' }
    expect(find(free)).toMatchObject({ ...shown, includedUnits: '100', needsCard: false })
    expect(find(priced)).toMatchObject({ priceAmount: '12.50', needsCard: true })
    expect(find(closed)).toBeUndefined()
    expect(plans.map(({ name }) => name)).not.toContain('Network Price')
  })

  it('ends with its period by a change to Starter, which is shown until then', async () => {
    const app = await real.newApp('leaves')
    const planId = await newPlan('Left', { includedUsdMicros: '9000000' })
    await take(app, { planId, timing: 'immediate' })
    real.core.clock.advance(1_000)
    expect((await read(app)).body).toMatchObject({ plan: { id: planId }, scheduledPlan: null })
    const { body } = await list(app)
    const [starter] = Array.isArray(body['plans']) ? body['plans'].map(asRecord) : []
    const left = await take(app, { planId: starter?.['id'], timing: 'next_billing_cycle' })
    const { plan, scheduledPlan } = (await read(app)).body
    expect([plan, scheduledPlan]).toMatchObject([
      { id: planId },
      { planId: starter?.['id'], name: 'Starter', effectiveAt: left.body['effectiveAt'] },
    ])
  })

  it('is changed once for a repeated Idempotency-Key', async () => {
    const app = await real.newApp('repeats')
    const planId = await newPlan('Once', { includedUsdMicros: '1000000' })
    const key = { 'idempotency-key': 'take-once' }
    const first = await take(app, { planId, timing: 'immediate' }, key)
    const second = await take(app, { planId, timing: 'immediate' }, key)
    expect(second).toEqual(first)
  })

  it("is refused for an unknown plan, another app's plan and a missing planId", async () => {
    const app = await real.newApp('refused')
    const unknown = '00000000-0000-4000-8000-00000000000f'
    expect((await take(app, { planId: unknown })).status).toBe(404)
    const created = await operator.plans.createPlan({
      clientId: app.clientId,
      planJson: JSON.stringify({ name: 'Own', type: 'free', status: 'active' }),
    })
    expect((await take(app, { planId: created.id })).status).toBe(404)
    expect((await take(app, {})).status).toBe(400)
    expect((await take(app, { planId: unknown, timing: 'later' })).status).toBe(400)
  })
})

describe('the wallet of an owner whose users pay', () => {
  const reads = ['wallet', 'state', 'wallet/transactions']
  const writes = { 'wallet/top-up': { amountUsd: '5' }, 'payment-method': {}, collect: {} }

  /** Adds a person with a role to an app. Returns the headers of its browser. */
  async function join(app: RealApp, role: string): Promise<Headers> {
    const { email, session: headers } = await real.newPerson()
    const request = { path: '/admins', headers: app.session, json: { email, role } }
    const { body } = await ask('PUT', app, request)
    const url = `${real.url}/api/v1/invitations/${String(asRecord(body['invitation'])['id'])}/accept`
    expect((await fetch(url, { method: 'POST', headers })).status).toBe(200)
    return headers
  }

  const get = (app: RealApp, path: string) =>
    ask('GET', app, { path: `/billing/${path}?payer=owner`, headers: app.session })
  const post = (app: RealApp, path: string, json: object) =>
    ask('POST', app, {
      path: `/billing/${path}`,
      headers: app.session,
      json: { payer: 'owner', ...json },
    })

  /** Returns status and code of each route. */
  async function answers(app: RealApp, headers: Headers, more: Record<string, string> = {}) {
    const query = Object.entries(more).map(([name, value]) => `&${name}=${value}`)
    const all = await Promise.all([
      ...reads.map((path) =>
        ask('GET', app, { path: `/billing/${path}?payer=owner${query.join('')}`, headers }),
      ),
      ...Object.entries(writes).map(([path, json]) =>
        ask('POST', app, {
          path: `/billing/${path}`,
          headers,
          json: { payer: 'owner', ...json, ...more },
        }),
      ),
    ])
    return [...new Set(all.map(({ status, body }) => `${status} ${String(body['code'])}`))]
  }

  it('is topped up, has a card and is collected with payer owner', async () => {
    const app = await newShop('sells')
    expect((await ask('GET', app, { path: '/billing/wallet', headers: app.session })).status).toBe(
      400,
    )
    const topUp = await post(app, 'wallet/top-up', writes['wallet/top-up'])
    expect([topUp.status, topUp.body['amountUsdMicros']]).toEqual([200, '5000000'])
    await payAt(topUp.body['checkoutUrl'])
    const walletOf = async () => {
      real.core.clock.advance(10)
      return (await get(app, 'wallet')).body
    }
    const balanceOf = async () => asRecord((await walletOf())['balance'])['usdMicros']
    await expect.poll(balanceOf, { timeout: 10_000 }).toBe('10000000')
    await payAt((await post(app, 'payment-method', {})).body['checkoutUrl'])
    await expect
      .poll(async () => asRecord((await walletOf())['paymentMethod'])['hasDefault'])
      .toBe(true)
    expect(await walletOf()).toMatchObject({
      billingMode: 'merchant',
      payer: expect.stringMatching(/^account:/),
    })
    expect((await get(app, 'state')).body).toMatchObject({
      subject: { type: 'owner', billingMode: 'merchant' },
      collection: { collector: 'platform' },
    })
    expect((await get(app, 'wallet/transactions')).body['items']).toContainEqual(
      expect.objectContaining({ type: 'credit_purchased', creditDeltaUsdMicros: '5000000' }),
    )
    expect((await post(app, 'collect', {})).body).toMatchObject({ outcome: 'skipped' })
    expect((await read(app)).body['balanceUsdMicros']).toBe('10000000')
  })

  it('is only for a session of the account that pays', async () => {
    const [app, other] = [await newShop('sells-alone'), await newShop('sells-beside')]
    const admin = await real.newPerson(true)
    expect(await answers(app, {})).toEqual(['404 not_found'])
    expect(await answers(app, other.session)).toEqual(['404 not_found'])
    // The first owner pays, so the second one joins later.
    real.core.clock.advance(1_000)
    const refused = [
      { authorization: app.basic },
      { authorization: app.machineToken },
      // A platform admin is an owner of every app, but does not pay for it.
      admin.session,
      await join(app, 'owner'),
      await join(app, 'admin'),
      await join(app, 'viewer'),
    ]
    for (const headers of refused)
      expect(await answers(app, headers)).toEqual(['403 edit_forbidden'])
  })

  it('is refused together with a user, and for another payer', async () => {
    const app = await newShop('sells-twice')
    const both = { externalUserId: 'ada' }
    expect(await answers(app, app.session, both)).toEqual(['400 request_invalid'])
    expect((await post(app, 'collect', { payer: 'users' })).status).toBe(400)
    const rpc = { clientId: app.clientId, externalUserId: undefined }
    await expect(operator.wallets.getWallet({ ...rpc, payer: 'users' })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
    await expect(operator.wallets.getWallet({ ...rpc, payer: 'owner' })).rejects.toMatchObject({
      reason: 'EDIT_FORBIDDEN',
    })
  })

  it('is the same in billing mode owner_rollup, and missing for a platform-owned app', async () => {
    const app = await real.newApp('names-itself')
    const { body } = await ask('GET', app, { path: '/billing/wallet', headers: app.session })
    expect((await get(app, 'wallet')).body['payer']).toBe(body['payer'])
    await isPlatformOwned(app, true)
    expect(await answers(app, app.session)).toEqual(['409 conflict'])
  })
})

describe('a refusal of the activation gate', () => {
  const create = (app: RealApp, externalUserId: string) =>
    ask('POST', app, {
      path: '/users',
      headers: { authorization: app.basic },
      json: { externalUserId },
    })

  /** Returns the text of the page to which a refusal leads its owner. */
  async function readCure(app: RealApp, code: string): Promise<string> {
    const { body } = await create(app, 'new')
    expect(body['code']).toBe(code)
    const path = new URL(String(body['actionUrl'])).pathname
    return (await fetch(`${real.url}${path}`, { headers: app.session })).text()
  }

  async function expectAdmitted(app: RealApp): Promise<void> {
    await expect
      .poll(
        async () => {
          real.core.clock.advance(10)
          return (await create(app, 'new')).status
        },
        { timeout: 10_000 },
      )
      .toBeLessThan(300)
  }

  it("leads to the owner's money, where a top-up cures it", async () => {
    const app = await newShop('cured-by-money')
    await use(app, '2000000000000000')
    expect(await readCure(app, 'owner_payment_method_required')).toContain(
      `href="/app/${app.clientId}/money"`,
    )
    const json = { payer: 'owner', amountUsd: '20' }
    const path = '/billing/wallet/top-up'
    const { body } = await ask('POST', app, { path, headers: app.session, json })
    await payAt(body['checkoutUrl'])
    await expectAdmitted(app)
  })

  it('is cured by an owner plan', async () => {
    const app = await newShop('cured-by-plan')
    await use(app, '2000000000000000')
    expect((await create(app, 'new')).status).toBe(402)
    const planId = await newPlan('Cure', { priceAmount: '9.00', includedUsdMicros: '30000000' })
    await payAt((await take(app, { planId })).body['checkoutUrl'])
    await expectAdmitted(app)
  })

  it('leads to the users when the cap is reached', async () => {
    const app = await newShop('capped')
    await operator.billing.updateBillingSettings({ clientId: app.clientId, endUserCap: '1' })
    const text = await readCure(app, 'end_user_cap_reached')
    expect(text).toContain(`href="/app/${app.clientId}/users"`)
    expect(text).toContain('a higher cap')
  })
})

describe('settings of an owner', () => {
  const change = (app: RealApp, json: object) =>
    ask('PUT', app, { path: '/billing/settings', headers: app.session, json })

  it('are the billing mode only', async () => {
    const app = await real.newApp('modes')
    expect(await change(app, { billingMode: 'merchant' })).toMatchObject({
      status: 200,
      body: { billingMode: 'merchant' },
    })
    for (const json of [{ platformCutPercent: 0 }, { endUserCap: 5 }, { isPlatformOwned: true }])
      expect(await change(app, { billingMode: 'owner_rollup', ...json })).toMatchObject({
        status: 403,
        body: { code: 'edit_forbidden' },
      })
    const { body } = await ask('GET', app, { path: '/billing/settings', headers: app.session })
    expect(body['billingMode']).toBe('merchant')
  })

  it('keep the billing mode while something is unpaid', async () => {
    const app = await real.newApp('unpaid')
    await use(app, '2000000000000000')
    expect(await change(app, { billingMode: 'merchant' })).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining("the owner's account is unpaid") },
    })
    const merchant = await real.newApp('unpaid-users')
    await change(merchant, { billingMode: 'merchant' })
    await use(merchant, '2000000000000000')
    expect(await change(merchant, { billingMode: 'owner_rollup' })).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining("the app's users is unpaid") },
    })
  })
})

describe('deleting an app', () => {
  const remove = (app: Pick<RealApp, 'clientId'>, headers: Headers) =>
    ask('DELETE', app, { path: '', headers })

  it('is refused while something is unpaid or an account is connected', async () => {
    const [unpaid, app] = [await real.newApp('owes'), await real.newApp('connected')]
    await use(unpaid, '2000000000000000')
    expect((await remove(unpaid, unpaid.session)).status).toBe(409)
    const processor = '/billing/processor'
    await ask('POST', app, { path: `${processor}/connect`, headers: app.session })
    const { status, body } = await remove(app, app.session)
    await ask('DELETE', app, { path: processor, headers: app.session })
    expect([status, body['detail']]).toEqual([409, expect.stringContaining('disconnect it first')])
    expect((await remove(app, app.session)).status).toBe(200)
  })

  it('is refused for the platform app', async () => {
    const admin = await real.newPerson(true)
    expect((await remove({ clientId: platform }, admin.session)).status).toBe(409)
  })
})
