import { randomUUID } from 'node:crypto'
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
} from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { type FakeOpenMeter, startOpenMeter } from '../../../fakes/openmeter/openmeter.ts'
import { begin, day, serviceToken, until } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

/** How a plan change uses the activation gate, the metering backend and the payment processor. */

type Json = Record<string, unknown>
type Headers = Readonly<Record<string, string>>

const pro = { name: 'Pro', type: 'usage', priceAmount: '49.00' }

/** Creates a user of an app, with requests about its plan. */
function usersPlan({ real, app }: { readonly real: Real; readonly app: RealApp }) {
  const user = `u-${randomUUID()}`
  const basic = { authorization: app.basic }

  async function ask(
    [method, path]: readonly [string, string],
    { body, headers = basic }: { body?: Json | string; headers?: Headers } = {},
  ): Promise<{ status: number; body: Json }> {
    const json = typeof body === 'string' ? body : JSON.stringify(body)
    const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
      method,
      headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
      ...(body && { body: json }),
    })
    return { status: response.status, body: asRecord(await response.json()) }
  }

  const ofUser = `/users/${user}/subscription`
  const read = async () => (await ask(['GET', ofUser])).body
  const change = (body: Json | string, headers?: Headers) =>
    ask(['POST', `${ofUser}/change`], { body, ...(headers && { headers }) })
  const plan = async (terms: Json = {}): Promise<string> => {
    const body = { ...pro, name: `Plan ${randomUUID().slice(0, 8)}`, ...terms }
    return String((await ask(['POST', '/plans'], { body, headers: app.session })).body['id'])
  }
  const open = () =>
    real.core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: user })
  return { user, ofUser, ask, read, change, plan, open }
}

const refused = (status: number, code: string) => ({ status, body: { code, status } })

describe('app whose users pay nothing, in the billing mode owner_rollup', () => {
  it('needs no payment method for a plan without a price, and has no others', async () => {
    const real = await startReal()
    onTestFinished(real.stop)
    const of = usersPlan({ real, app: await real.newApp('rollup') })
    await of.open()
    real.core.clock.advance(1_000)
    const planId = await of.plan({ priceAmount: '0' })
    expect(await of.change({ planId })).toMatchObject({
      status: 200,
      body: { planId, timing: 'immediate', effectiveAt: real.core.clock.now().toISOString() },
    })
    expect(await of.change({ planId: await of.plan() })).toMatchObject(
      refused(403, 'stripe_connect_required'),
    )
  })
})

describe('activation gate', () => {
  let real: Real
  let app: RealApp
  let operator: CoreClient
  beforeAll(async () => {
    real = await startReal({ ACTIVATION_GATE_MODE: 'enforce_revenue' })
    app = await real.newApp('gated')
    operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  })
  afterAll(async () => {
    operator.close()
    await real.stop()
  })

  it('precedes the checks for an inactive, unsynced or same plan, and applies only to active priced ones', async () => {
    const of = usersPlan({ real, app })
    await of.open()
    const priced = await of.plan({ status: 'inactive' })
    expect(await of.change({ planId: priced })).toMatchObject(refused(409, 'conflict'))
    await real.core.sql.query(`update plans set status = 'active' where id = $1`, [priced])
    const denial = await of.change({ planId: priced })
    expect(denial).toMatchObject(refused(403, 'stripe_connect_required'))
    expect(denial.body).toMatchObject({
      billingMode: 'owner_rollup',
      actionUrl: expect.stringContaining(app.clientId),
    })
    // Bad bodies and unknown users come first.
    expect(await of.change('{')).toMatchObject(refused(400, 'request_invalid'))
    const nobody = { body: { planId: priced } }
    expect(await of.ask(['POST', '/users/nobody/subscription/change'], nobody)).toMatchObject(
      refused(404, 'not_found'),
    )
    const same = { clientId: app.clientId, externalUserId: of.user, planId: priced }
    await operator.subscriptions.updateSubscription({
      ...same,
      timing: 'immediate',
      idempotencyKey: undefined,
    })
    expect(await of.change({ planId: priced })).toMatchObject(
      refused(403, 'stripe_connect_required'),
    )
    // Current users stay, and a free plan is not a sale.
    const free = await of.plan({ type: 'free', priceAmount: '0' })
    expect((await of.change({ planId: free })).status).toBe(200)
    const confirm = { body: { confirm: true } }
    expect((await of.ask(['DELETE', `${of.ofUser}/pending-change`], confirm)).status).toBe(200)
    expect((await of.ask(['DELETE', of.ofUser], confirm)).status).toBe(200)
    expect((await of.ask(['GET', of.ofUser])).status).toBe(200)
  })
})

describe('PUT …/starter-plan', () => {
  it('credits a raised amount to its users before it answers', async () => {
    const real = await startReal()
    const app = await real.newApp('raised')
    const of = usersPlan({ real, app })
    await of.open()
    real.core.clock.advance(day)
    const raise = (micros: string) =>
      of.ask(['PUT', '/starter-plan'], {
        headers: app.session,
        body: { includedUsdMicros: micros },
      })
    const balance = async () =>
      (
        await real.core
          .as(app.basic)
          .getBalance({ clientId: app.clientId, externalUserId: of.user })
      ).balance?.balanceUsdMicros
    expect((await raise('8000000')).status).toBe(200)
    expect(await balance()).toBe('8000000')
    // At the same clock time, but still as consecutive versions.
    await Promise.all(['9000000', '9000000', '8500000'].map(raise))
    real.core.clock.advance(10)
    expect(await balance()).toBe('9000000')
    await real.stop()
  })
})

describe('client without the scope', () => {
  let real: Real
  let app: RealApp
  beforeAll(async () => {
    real = await startReal()
    app = await real.newApp('scopes')
  })
  afterAll(() => real.stop())
  afterEach(() => setScopes(['users:read', 'users:write']))

  const setScopes = (scopes: readonly string[]) =>
    real.core.sql.query('update clients set scopes = $2 where client_id = $1', [
      app.m2mClientId,
      scopes,
    ])
  const confirm = { confirm: true }

  it.each([
    ['GET', '', undefined],
    ['GET', 's', undefined],
    ['POST', '/change', { planId: randomUUID() }],
    ['DELETE', '', confirm],
    ['DELETE', '/pending-change', confirm],
  ])('is refused: %s …/subscription%s', async (method, path, body) => {
    const of = usersPlan({ real, app })
    await of.open()
    await setScopes([method === 'GET' ? 'users:write' : 'users:read'])
    const answer = await of.ask([method, of.ofUser + path], body && { body })
    expect(answer).toMatchObject(refused(403, 'scope_missing'))
    // Also before the body and the user are checked.
    const unknown = await of.ask([method, `/users/nobody/subscription${path}`], body && { body })
    expect(unknown).toMatchObject(refused(403, 'scope_missing'))
  })
})

describe.each(['v1', 'v3'] as const)('with an OpenMeter of API %s', (version) => {
  let fake: FakeOpenMeter
  let real: Real
  let app: RealApp
  let of: ReturnType<typeof usersPlan>
  beforeAll(async () => {
    fake = await startOpenMeter()
    real = await startReal({ OPENMETER_URL: fake.urls[version] })
    app = await real.newApp(`synced-${version}`)
    const operator = connectCore({ target: real.core.core.target, token: serviceToken })
    const { clientId } = app
    await operator.billing
      .updateBillingSettings({ clientId, billingMode: 'merchant' })
      .finally(() => operator.close())
    await until(() => fake.state.features.length > 0)
  })
  afterAll(async () => {
    await real.stop()
    await fake.stop()
  })
  beforeEach(async () => {
    of = usersPlan({ real, app })
    await of.open()
    real.core.clock.set(begin)
    real.core.clock.advance(day)
  })
  afterEach(() => {
    fake.faults = () => 'none'
  })
  const switchTo = (planId: string) => {
    const operator = connectCore({ target: real.core.core.target, token: serviceToken })
    const request = { clientId: app.clientId, externalUserId: of.user, planId }
    const rest = { timing: 'immediate', idempotencyKey: undefined }
    return operator.subscriptions
      .updateSubscription({ ...request, ...rest })
      .finally(() => operator.close())
  }

  it.each([
    ['in another currency', '10', 'EUR'],
    ['with three decimals', '1.001', 'USD'],
  ])('rejects a plan with a price %s', async (_what, amount, currency) => {
    const planId = await of.plan()
    await real.core.sql.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos,
                                  retail_rate, billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, $2, $3, included_attos, retail_rate, billing_cycle, created_at
       from plan_versions
       where plan_id = $1`,
      [planId, amount, currency],
    )
    const answer = await of.change({ planId })
    expect(answer).toMatchObject(refused(409, 'conflict'))
    expect(answer.body['detail']).toContain(`costs ${amount} ${currency}, which cannot be charged`)
    await expect(switchTo(planId)).rejects.toMatchObject({ reason: 'CONFLICT' })
  })

  it('rejects an unsynced plan, after the earlier checks', async () => {
    fake.faults = ({ path }) => (path.includes('/plans') ? 503 : 'none')
    const [unsynced, inactive] = [await of.plan(), await of.plan({ status: 'inactive' })]
    fake.faults = () => 'none'
    expect(await of.change({ planId: randomUUID() })).toMatchObject(refused(404, 'not_found'))
    expect((await of.change({ planId: inactive })).body['detail']).toContain('not active')
    const answer = await of.change({ planId: unsynced })
    expect(answer).toMatchObject(refused(409, 'conflict'))
    expect(answer.body['detail']).toContain('not synced')
    await of.ask(['POST', `/plans/${unsynced}/sync`], { headers: app.session })
    // Only the payment method is missing now.
    expect(await of.change({ planId: unsynced })).toMatchObject(
      refused(503, 'processor_not_connected'),
    )
    // A later failure does not remove users from the plan.
    fake.faults = ({ path }) => (path.includes('/plans') ? 503 : 'none')
    await of.ask(['PUT', '/plans'], {
      headers: app.session,
      body: { id: unsynced, priceAmount: '1' },
    })
    expect((await of.change({ planId: unsynced })).status).toBe(503)
  })

  it('accepts plans that are not synced: free ones, and Starter', async () => {
    fake.faults = ({ path }) => (path.includes('/plans') ? 503 : 'none')
    const free = await of.plan({ type: 'free', priceAmount: '0' })
    expect((await of.change({ planId: free, timing: 'immediate' })).status).toBe(200)
    const { rows } = await real.core.sql.query<{ id: string }>(
      `select p.id from plans p join clients c using (app_id) where c.client_id = $1 and is_starter_default`,
      [app.clientId],
    )
    expect((await of.change({ planId: rows[0]?.id ?? '' })).status).toBe(200)
  })

  it("shows a plan's remote ids: the key of all versions, and the id of the newest", async () => {
    const planId = await of.plan()
    await switchTo(planId)
    const key = `${app.clientId}_${planId.replaceAll('-', '')}`
    const remote = fake.state.plans.find((one) => one.key === key)
    const confirm = { body: { confirm: true } }
    expect((await of.ask(['DELETE', of.ofUser], confirm)).status).toBe(200)
    expect(await of.read()).toMatchObject({
      subscription: { planId, openmeterPlanKey: key, openmeterSubscriptionId: null },
      pendingCancel: { planKey: key },
    })
    const { body } = await of.ask(['GET', `${of.ofUser}s`])
    expect(body['items']).toMatchObject([
      { planId, planKey: key, openmeterPlanId: remote?.id },
      { planName: 'Starter' },
    ])
  })
})
