import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let app: RealApp
let operator: CoreClient
beforeAll(async () => {
  real = await startReal({ ACTIVATION_GATE_MODE: 'enforce' })
  app = await real.newApp('mine')
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await real.stop()
})

async function ask(
  method: string,
  path: string,
  { headers, body }: { headers: Readonly<Record<string, string>>; body?: object },
) {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    body: asRecord(await response.json()),
  }
}
const m2m = () => ({ authorization: app.basic })
const settle = (values: object) =>
  operator.billing.updateBillingSettings({
    clientId: app.clientId,
    billingMode: undefined,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
    ...values,
  })

describe('refusal of the activation gate', () => {
  it('is a problem document with the billing mode and where to act', async () => {
    await settle({ endUserCap: '1', billingMode: 'merchant' })
    await ask('POST', '/users', { headers: m2m(), body: { externalUserId: 'first' } })
    const refused = await ask('POST', '/users', {
      headers: m2m(),
      body: { externalUserId: 'one more' },
    })
    const actionUrl = expect.stringMatching(new RegExp(`/apps/${app.clientId}/billing$`))
    expect(refused).toEqual({
      status: 403,
      type: expect.stringContaining('application/problem+json'),
      body: {
        type: expect.stringMatching(/\/problems\/end-user-cap-reached$/),
        title: 'App cannot provision end users',
        status: 403,
        code: 'end_user_cap_reached',
        error: 'end_user_cap_reached',
        billingMode: 'merchant',
        actionUrl,
        detail: expect.stringContaining('reached its cap on active end users'),
        correlation_id: expect.any(String),
      },
    })
  })

  it('has the same code in the processor state and at the token endpoint', async () => {
    const { body } = await ask('GET', '/billing/processor', { headers: m2m() })
    expect(asRecord(asRecord(body['activation'])['provisioning'])).toEqual({
      allowed: false,
      code: 'end_user_cap_reached',
      detail: expect.stringContaining('reached its cap on active end users'),
    })
    const response = await fetch(`${real.url}/api/v1/oidc/token`, {
      method: 'POST',
      headers: m2m(),
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        scope: 'sign:mint_user_token',
        external_user_id: 'one more',
      }),
    })
    expect([response.status, asRecord(await response.json())['error']]).toEqual([
      403,
      'end_user_cap_reached',
    ])
  })
})

describe('priced plan', () => {
  const plan = { name: 'Pro', type: 'usage', priceAmount: '49.00' }
  const required = {
    status: 403,
    body: { code: 'stripe_connect_required', billingMode: 'merchant' },
  }

  it('cannot be activated or put on sale without a connected account', async () => {
    await settle({ billingMode: 'merchant' })
    const headers = app.session
    expect(await ask('POST', '/plans', { headers, body: plan })).toMatchObject(required)
    const draft = { ...plan, status: 'inactive' }
    const { status, body } = await ask('POST', '/plans', { headers, body: draft })
    expect(status).toBe(201)
    const change = { id: body['id'], status: 'active' }
    expect(await ask('PUT', '/plans', { headers, body: change })).toMatchObject(required)
    const free = { id: body['id'], status: 'active', priceAmount: '0' }
    expect((await ask('PUT', '/plans', { headers, body: free })).status).toBe(200)
  })
})

describe('payment processor', () => {
  it("is disconnected, and shows the platform's settings", async () => {
    await settle({ endUserCap: '50', billingMode: 'owner_rollup', platformCutPercent: '12.5' })
    real.core.clock.advance(60_000)
    const { status, body } = await ask('GET', '/billing/processor', { headers: m2m() })
    expect([status, body]).toEqual([
      200,
      {
        clientId: app.clientId,
        status: 'disconnected',
        processor: null,
        plane: 'live',
        chargesEnabled: false,
        payoutsEnabled: false,
        detailsSubmitted: false,
        openmeterStripeAppId: null,
        openmeterBillingProfileId: null,
        defaultCurrency: 'USD',
        connectedAt: null,
        billingMode: 'owner_rollup',
        applicationFee: 'none',
        endUserCap: 50,
        isPlatformOwned: false,
        platformCutPercent: 12.5,
        activation: {
          provisioning: { allowed: true, code: null, detail: null },
          selling: {
            allowed: false,
            code: 'stripe_connect_required',
            detail: expect.stringContaining('merchant'),
          },
        },
      },
    ])
    expect(await ask('GET', '/billing/processor', { headers: app.session })).toMatchObject({
      status,
      body,
    })
  })

  it('cannot be connected without a processor in the deployment', async () => {
    const { status, body } = await ask('POST', '/billing/processor/connect', {
      headers: app.session,
    })
    expect([status, body['code']]).toEqual([503, 'processor_not_configured'])
    expect(body['detail']).toContain('no payment processor')
  })

  it('can be disconnected repeatedly', async () => {
    for (let i = 0; i < 2; i++)
      expect(await ask('DELETE', '/billing/processor', { headers: app.session })).toMatchObject({
        status: 200,
        body: { success: true },
      })
  })

  it('is connected and disconnected only by people', async () => {
    for (const [method, path] of [
      ['POST', '/billing/processor/connect'],
      ['DELETE', '/billing/processor'],
    ] as const)
      expect((await ask(method, path, { headers: m2m() })).status).toBe(401)
  })
})
