import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { outcome, serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

/** Codes of docs/billing.md, with their statuses and titles. */
const codes = {
  owner_payment_method_required: { status: 402, title: 'Payment method required' },
  end_user_cap_reached: { status: 403, title: 'App cannot provision end users' },
  stripe_connect_required: { status: 403, title: 'Stripe Connect required' },
  stripe_connect_pending: { status: 403, title: 'Stripe Connect onboarding incomplete' },
} as const
type Code = keyof typeof codes

/** The kinds of refusal enforced by each mode. */
const modes = [
  { mode: 'off', cost: false, sales: false },
  { mode: 'log', cost: false, sales: false },
  { mode: 'enforce_revenue', cost: false, sales: true },
  { mode: 'enforce', cost: true, sales: true },
] as const

describe.each(modes)('gate in the mode $mode', ({ mode, cost, sales }) => {
  let real: Real
  let operator: CoreClient
  beforeAll(async () => {
    real = await startReal({ ACTIVATION_GATE_MODE: mode, PAYMENT_PROCESSOR: 'simulated' })
    operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  })
  afterAll(async () => {
    operator.close()
    await real.stop()
  })

  interface Ask {
    readonly app: RealApp
    readonly body?: object
    /** Default: those of the M2M client. */
    readonly headers?: Readonly<Record<string, string>>
  }
  async function send(line: string, { app, body, headers }: Ask) {
    const [method = '', path = ''] = line.split(' ')
    const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
      method,
      headers: {
        ...(headers ?? { authorization: app.basic }),
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    return {
      status: response.status,
      type: response.headers.get('content-type'),
      body: asRecord(await response.json()),
    }
  }
  const settle = (app: RealApp, endUserCap: string, billingMode?: string) =>
    operator.billing.updateBillingSettings({
      clientId: app.clientId,
      billingMode,
      isPlatformOwned: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
      endUserCap,
    })

  /** Creates two inactive users: a new one and a deactivated one. */
  async function idleUsers(app: RealApp): Promise<void> {
    await send('POST /users', { app, body: { externalUserId: 'idle', status: 'inactive' } })
    await send('POST /users', { app, body: { externalUserId: 'left' } })
    await send('PUT /users', { app, body: { externalUserId: 'left', status: 'inactive' } })
  }
  const mint = (app: RealApp, user: string) =>
    requestToken(app, { scope: 'sign:mint_user_token', external_user_id: user })
  const requestToken = async (app: RealApp, form: Readonly<Record<string, string>>) => {
    const response = await fetch(`${real.url}/api/v1/oidc/token`, {
      method: 'POST',
      headers: { authorization: app.basic },
      body: new URLSearchParams({ grant_type: 'client_credentials', ...form }),
    })
    return { status: response.status, body: asRecord(await response.json()) }
  }
  const activationOf = async (app: RealApp, side: string) => {
    const { body } = await send('GET /billing/processor', { app })
    return asRecord(asRecord(body['activation'])[side])
  }

  /** Calls every route that would activate a user or that checks an active one. */
  async function knock(app: RealApp) {
    const doors = {
      create: await send('POST /users', { app, body: { externalUserId: 'new' } }),
      createAgain: await send('POST /users', {
        app,
        body: { externalUserId: 'idle', status: 'active' },
      }),
      reactivate: await send('PUT /users', {
        app,
        body: { externalUserId: 'left', status: 'active' },
      }),
    }
    const minted = await mint(app, 'minted')
    // The webhook's request.
    const called = { clientId: app.clientId, externalUserId: 'called' }
    const access = await outcome(real.core.as().getAccess(called))
    return {
      doors: Object.values(doors).map((answer) => (answer.status < 300 ? 'open' : answer)),
      minted: [minted.status, minted.body['error']],
      access,
      activation: await activationOf(app, 'provisioning'),
      active: [
        (await send('POST /users', { app, body: { externalUserId: 'ada' } })).status < 300,
        (await send('POST /users/ada/keys', { app })).status,
        (await mint(app, 'ada')).status,
      ],
    }
  }

  /**
   * Returns the expected answers: the same code everywhere, but no refusal unless the mode enforces
   * it.
   */
  function expected(app: RealApp, code: Code) {
    const refusal = {
      status: codes[code].status,
      type: expect.stringContaining('application/problem+json'),
      body: {
        type: expect.stringMatching(new RegExp(`/problems/${code.replaceAll('_', '-')}$`)),
        title: codes[code].title,
        status: codes[code].status,
        detail: expect.any(String),
        code,
        error: code,
        billingMode: 'owner_rollup',
        actionUrl: expect.stringMatching(new RegExp(`/apps/${app.clientId}/billing$`)),
        correlation_id: expect.any(String),
      },
    }
    const door = cost ? refusal : 'open'
    return {
      doors: [door, door, door],
      minted: cost ? [codes[code].status, code] : [200, undefined],
      access: cost ? code.toUpperCase() : 'OK',
      activation: expect.objectContaining({ allowed: !cost, code: mode === 'off' ? null : code }),
      active: [true, 201, 200],
    }
  }

  it('treats a reached cap alike on every route that activates a user', async () => {
    const app = await real.newApp(`cap-${mode.replace('_', '-')}`)
    await idleUsers(app)
    await settle(app, '1')
    expect(await knock(app)).toEqual(expected(app, 'end_user_cap_reached'))
  })

  it('treats an owner without payment method alike on these routes, before the cap', async () => {
    const app = await real.newApp(`owner-${mode.replace('_', '-')}`)
    await idleUsers(app)
    await settle(app, '1')
    const { rows } = await real.core.sql.query<{ account: string; platform: string }>(
      `select m.account_id as account, p.client_id as platform
       from clients c
       join members m on m.app_id = c.app_id and m.role = 'owner'
       cross join platform_app
       join clients p on p.app_id = platform_app.app_id and p.kind = 'public'
       where c.client_id = $1`,
      [app.clientId],
    )
    const { account = '', platform = '' } = rows[0] ?? {}
    // The first charge creates the owner's account in the platform app. 3000 USD per ETH.
    const ticket = {
      auth_id: `${app.clientId}:owner:${account}`,
      computed_fee: '1000000000000000',
      session_id: `owner-${mode}`,
      current_time: '2026-03-10T12:00:00Z',
    }
    await real.core.as().ingestEvents({ envelopes: [envelope(ticket)] })
    const owner = { clientId: platform, externalUserId: `account:${account}` }
    await real.core.as().createAdjustment({ ...owner, amountUsdMicros: '-2000000' })
    expect(await knock(app)).toEqual(expected(app, 'owner_payment_method_required'))
  })

  it.each([
    ['stripe_connect_required', 'disconnected'],
    ['stripe_connect_pending', 'pending'],
  ] as const)('applies to every sale and purchase of a priced plan: %s', async (code, now) => {
    const app = await real.newApp(`sale-${now}-${mode.replace('_', '-')}`)
    await settle(app, '9', 'merchant')
    if (now === 'pending')
      await send('POST /billing/processor/connect', { app, headers: app.session })
    const priced = { type: 'usage', priceAmount: '9.00' }
    const edit = (method: string, body: object) =>
      send(`${method} /plans`, { app, body, headers: app.session })
    const draft = await edit('POST', { ...priced, name: 'Draft', status: 'inactive' })
    const id = String(draft.body['id'])
    expect(draft.status).toBe(201)
    const refused = { status: codes[code].status, body: { code, title: codes[code].title } }
    const created = await edit('POST', { ...priced, name: 'Pro' })
    expect(created).toMatchObject(sales ? refused : { status: 201 })
    const updated = await edit('PUT', { id, status: 'active' })
    expect(updated).toMatchObject(sales ? refused : { status: 200 })
    // Like a plan that was on sale before the gate was closed.
    await real.core.sql.query(`update plans set status = 'active' where id = $1`, [id])
    // In every mode: without an account, the payment has no recipient.
    const bought = await send('POST /users/ada/subscription/change', { app, body: { planId: id } })
    expect(bought).toMatchObject({ status: 403, body: { code } })
    expect((await send('GET /billing/processor', { app })).body['status']).toBe(now)
    expect(await activationOf(app, 'selling')).toMatchObject({
      allowed: !sales,
      code: mode === 'off' ? null : code,
    })
  })

  it('counts exactly up to the cap when 100 users are created concurrently', async () => {
    const app = await real.newApp(`crowd-${mode.replace('_', '-')}`)
    // Including ada.
    await settle(app, '8')
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        send('POST /users', { app, body: { externalUserId: `u${i}` } }),
      ),
    )
    const codesOf = answers.map(({ status, body }) => body['code'] ?? status)
    const created = codesOf.filter((code) => code === 201).length
    const refused = codesOf.filter((code) => code === 'end_user_cap_reached').length
    expect([created, refused]).toEqual(cost ? [7, 93] : [100, 0])
  })
})
