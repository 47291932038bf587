import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import { type PlanSync, createPlanSync } from '../../../../core/plans/sync/service.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import { createOpenMeter } from '../../../../core/metering/backend/openmeter/openmeter.ts'
import { type Pool, createPool } from '../../../../core/lib/sql.ts'
import { appId } from '../../../../core/platform/ids.ts'
import {
  type FakeOpenMeter,
  type Fault,
  type FakeRequest,
  startOpenMeter,
} from '../../../fakes/openmeter/openmeter.ts'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { rateCardsOf } from '../../../fakes/openmeter/plans.ts'
import { type TestApp, serviceToken, until } from '../../../core/support.ts'
import { type Person, logInTo } from '../../../support/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

const sdxl = { pipeline: 'text-to-image', modelId: 'sdxl', retailRateUsd: '0.000002' }
const anyLlm = { pipeline: 'llm', modelId: '*', retailRateUsd: '0' }
const pro = {
  name: 'Pro',
  type: 'usage',
  priceAmount: '49.00',
  includedUsdMicros: '20000000',
  overageRateUsd: '0.0000012',
  capabilities: [sdxl, anyLlm],
}

describe.each(['v1', 'v3'] as const)('plans in an OpenMeter of API %s', (version) => {
  let fake: FakeOpenMeter
  let console: Console
  let app: TestApp
  let person: Person
  let operator: CoreClient
  beforeAll(async () => {
    fake = await startOpenMeter()
    console = await startConsole({
      env: { OPENMETER_URL: fake.urls[version], ACTIVATION_GATE: 'off' },
    })
    await until(() => fake.state.features.length > 0)
    operator = connectCore({ target: console.core.target, token: serviceToken })
  })
  afterAll(async () => {
    operator.close()
    await console.stop()
    await fake.stop()
  })
  beforeEach(async () => {
    app = await console.newApp()
    person = await logInTo(console, app, 'admin')
    // Its Starter plan is synced immediately.
    await until(async () => (await starter())['lastSyncedAt'] !== null)
    fake.state.plans.length = 0
  })
  afterEach(async () => {
    fake.faults = () => 'none'
    // A late delivery would sync a plan of this test again during the next one.
    const subscriptions = `from outbox where kind = 'openmeter.subscription'`
    const untried = `select ${subscriptions} and last_error is null`
    await until(async () => (await console.sql.query(untried)).rowCount === 0)
    await console.sql.query(`delete ${subscriptions}`)
  })

  const ask = (method: string, path: string, request: RequestOptions = { person }) =>
    console.ask(method, `/api/v1/apps/${app.clientId}${path}`, request)
  const create = (json: object = pro) => ask('POST', '/plans', { person, json })
  const update = (json: object) => ask('PUT', '/plans', { person, json })
  const sync = (id: string) => ask('POST', `/plans/${id}/sync`)
  const newPlan = async (json: object = pro): Promise<string> =>
    String((await create(json)).body['id'])
  async function plans(): Promise<Record<string, unknown>[]> {
    const list: unknown = JSON.parse((await ask('GET', '/plans')).text)
    return Array.isArray(list) ? list.map(asRecord) : []
  }
  const planOf = async (id: string) => asRecord((await plans()).find((one) => one['id'] === id))
  const starter = async () =>
    asRecord((await plans()).find(({ isStarterDefault }) => isStarterDefault))
  async function productOf(id: string) {
    const { body } = await ask('GET', '/plans?apiVersion=2')
    const products: unknown = body['products']
    return asRecord(
      Array.isArray(products) ? products.find((one) => asRecord(one)['id'] === id) : null,
    )
  }
  const isPlan = ({ path }: FakeRequest): boolean => path.includes('/plans')
  const failing =
    (fault: Fault, matches: (request: FakeRequest) => boolean = isPlan) =>
    (request: FakeRequest): Fault =>
      matches(request) ? fault : 'none'
  const isPublish = ({ path }: FakeRequest): boolean => path.endsWith('/publish')
  const isCreate = ({ method, path }: FakeRequest): boolean =>
    method === 'POST' && path.endsWith('/plans')
  const cardsOf = (body: Readonly<Record<string, unknown>>) =>
    rateCardsOf(body, version === 'v1' ? 'rateCards' : 'rate_cards')
  const featureOf = (card: Record<string, unknown>) =>
    fake.state.features.find(({ key }) => key === card['key'])
  const entitlementOf = (card: Record<string, unknown>) =>
    asRecord(card[version === 'v1' ? 'entitlementTemplate' : 'entitlement'])
  const includedOf = (card: Record<string, unknown>) =>
    entitlementOf(card)[version === 'v1' ? 'issueAfterReset' : 'limit']

  it('are published on creation, with a fee in advance, and a rate and an entitlement per usage part', async () => {
    const id = await newPlan()
    const [remote] = fake.state.plans
    expect(remote).toMatchObject({ status: 'active', cadence: 'P1M', currency: 'USD' })
    expect(remote?.key).toBe(`${app.clientId}_${id.replaceAll('-', '')}`)
    const [fee, ...usage] = cardsOf(remote?.body ?? {})
    const term = version === 'v1' ? asRecord(fee?.['price'])['paymentTerm'] : fee?.['payment_term']
    expect(fee?.['price']).toMatchObject({ type: 'flat', amount: '49.00' })
    expect(term).toBe('in_advance')
    const [is, except] = version === 'v1' ? ['$eq', '$nin'] : ['eq', 'nin']
    expect(
      usage.map((card) => [featureOf(card)?.filters, asRecord(card['price'])['amount']]),
    ).toEqual([
      [{ pipeline: { [is]: 'text-to-image' }, model_id: { [is]: 'sdxl' } }, '0.000002'],
      [{ pipeline: { [is]: 'text-to-image' }, model_id: { [except]: ['sdxl'] } }, '0.0000012'],
      [{ pipeline: { [is]: 'llm' } }, '0'],
      [{ pipeline: { [except]: ['llm', 'text-to-image'] } }, '0.0000012'],
    ])
    // Guards against a defect: an allowance of only the first capability bills the others from
    // zero.
    expect(usage.map(includedOf)).toEqual([20_000_000, 20_000_000, 20_000_000, 20_000_000])
  })

  it("leave room for their users' credits, each written once", async () => {
    const m2m = console.as(app.basic)
    const ada = { clientId: app.clientId, externalUserId: 'ada' }
    await m2m.upsertUser(ada)
    const { allowance } = await m2m.createGrant({
      ...ada,
      amountUsdMicros: '2500000',
      idempotencyKey: 'order-1',
    })
    expect(allowance?.lifetimeGrantedUsdMicros).toBe('7500000')
    await m2m.createGrant({ ...ada, amountUsdMicros: '2500000', idempotencyKey: 'order-1' })
    await m2m.createGrant({ ...ada, amountUsdMicros: '1' })
    const { rows } = await console.sql.query<{ key: string }>(
      `select 'eu_' || u.id as key
       from end_users u
       join clients c on c.app_id = u.app_id
       where c.client_id = $1 and u.external_user_id = 'ada'`,
      [app.clientId],
    )
    const amounts = () =>
      fake.state.credits
        .filter(({ customer }) => customer === rows[0]?.key)
        .map(({ body }) => String(body['amount']))
        .toSorted()
    await until(() => amounts().length === 2)
    expect(amounts()).toEqual(version === 'v1' ? ['1', '2500000'] : ['0.000001', '2.5'])
  })

  it('have their users as subscribers after each change, even while OpenMeter is unavailable', async () => {
    app = await console.newApp({ isTest: true })
    person = await logInTo(console, app, 'admin')
    const { clientId } = app
    const ada = { clientId, externalUserId: 'ada' }
    await console.as(app.basic).upsertUser(ada)
    const keyOf = (planId: unknown) => `${clientId}_${String(planId).replaceAll('-', '')}`
    const running = () =>
      fake.state.subscriptions
        .filter(({ plan, status }) => status === 'active' && plan.key.startsWith(clientId))
        .map(({ plan }) => plan.key)
    const runs = (...keys: string[]) => until(() => running().join() === keys.join())
    const starterKey = keyOf((await starter())['id'])
    await runs(starterKey)

    const [proId, freeId] = [await newPlan(), await newPlan({ name: 'Free', type: 'free' })]
    const change = (planId: string) =>
      operator.switchSubscription({
        ...ada,
        planId,
        timing: 'immediate',
        idempotencyKey: undefined,
      })
    fake.faults = failing(503, ({ path }) => path.includes('/subscriptions'))
    expect((await change(freeId)).change?.planId).toBe(freeId)
    expect((await change(proId)).change?.planId).toBe(proId)
    await until(() => fake.requests.some(({ path }) => path.endsWith('/subscriptions')))
    fake.faults = () => 'none'
    await runs(keyOf(proId))
    await change(freeId)
    await runs()
    await change(proId)
    await runs(keyOf(proId))

    const atPeriodEnd = { ...ada, timing: 'next_billing_cycle' }
    await operator.endSubscription(atPeriodEnd)
    await operator.keepSubscription(ada)
    await operator.endSubscription(atPeriodEnd)
    expect(running()).toEqual([keyOf(proId)])
    await operator.moveTestClock({
      clientId,
      move: { to: undefined, advanceSeconds: 40 * 86_400 },
    })
    await runs(starterKey)

    fake.state.subscriptions.length = 0
    await console.sql.query(
      `delete from subscriptions s using clients c where c.app_id = s.app_id and c.client_id = $1`,
      [clientId],
    )
    expect((await ask('GET', '/users/ada/subscription')).status).toBe(200)
    await runs(starterKey)
  })

  it('report OpenMeter as the source of a subscription', async () => {
    const m2m = console.as(app.basic)
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    const { body } = await ask('GET', '/users/ada/subscription')
    expect(body['source']).toBe('openmeter')
  })

  it('are listed with their sync state', async () => {
    const id = await newPlan()
    const { id: remoteId } = fake.state.plans[0] ?? { id: '' }
    const lastSyncedAt = console.clock.now().toISOString()
    const fields = { openmeterPlanId: remoteId, lastSyncedAt, syncError: null }
    expect(await planOf(id)).toMatchObject(fields)
    expect(await productOf(id)).toMatchObject({
      ...fields,
      sync: {
        status: 'synced',
        syncedAt: lastSyncedAt,
        openmeterPlanId: remoteId,
        errorCode: null,
        errorMessage: null,
      },
    })
    expect((await sync(id)).body).toMatchObject({
      success: true,
      openmeterPlanId: remoteId,
      syncedAt: lastSyncedAt,
    })
  })

  it.each([
    ['daily', 'P1D'],
    ['weekly', 'P1W'],
    ['monthly', 'P1M'],
  ])('of a %s cycle have the cadence %s', async (billingCycle, cadence) => {
    await newPlan({ name: 'Timed', type: 'usage', billingCycle })
    expect(fake.state.plans[0]?.cadence).toBe(cadence)
    expect(cardsOf(fake.state.plans[0]?.body ?? {}).map(({ key }) => key)).toEqual([
      'network_spend',
    ])
  })

  it('are neither written nor published again when unchanged', async () => {
    const id = await newPlan()
    const before = fake.requests.length
    expect((await sync(id)).status).toBe(200)
    expect(fake.requests.slice(before).map(({ method }) => method)).toEqual(['GET'])
    expect(fake.state.plans).toHaveLength(1)
  })

  it('become a new version when they change, because a published one is immutable', async () => {
    const id = await newPlan()
    expect((await update({ id, priceAmount: '59' })).body).toMatchObject({ success: true, id })
    expect(fake.state.plans.map(({ status }) => status)).toEqual(['archived', 'active'])
    expect((await planOf(id))['openmeterPlanId']).toBe(fake.state.plans[1]?.id)
  })

  it('are created again when their id is unknown to OpenMeter', async () => {
    const id = await newPlan()
    fake.state.plans.length = 0
    const { status, body } = await sync(id)
    expect(status).toBe(200)
    expect(fake.state.plans.map(({ id: remoteId }) => remoteId)).toEqual([body['openmeterPlanId']])
  })

  it('are synced without a request when they are free or Network Price', async () => {
    const id = await newPlan({ name: 'Free' })
    const before = fake.requests.length
    const { status, body } = await sync(id)
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({ success: true, openmeterPlanId: null }),
    ])
    const plan = await planOf(id)
    expect(plan['lastSyncedAt']).toBe(body['syncedAt'])
    expect(asRecord((await productOf(id))['sync'])['status']).toBe('not_applicable')
    expect(fake.requests.length).toBe(before)
  })

  it('are created even if their sync fails, and keep the last success when a later one fails', async () => {
    fake.faults = failing(503)
    const { status, body } = await create()
    const syncError = 'the metering backend does not answer now'
    expect([status, body]).toEqual([201, { id: expect.any(String), syncError }])
    const id = String(body['id'])
    expect(await planOf(id)).toMatchObject({ lastSyncedAt: null, syncError })
    expect(asRecord((await productOf(id))['sync'])).toMatchObject({
      status: 'error',
      errorCode: 'sync_failed',
      errorMessage: syncError,
    })
    fake.faults = () => 'none'
    const { syncedAt } = (await sync(id)).body
    console.clock.advance(1_000)
    fake.faults = failing(503)
    expect((await update({ id, priceAmount: '1' })).body['syncError']).toBe(syncError)
    expect(await planOf(id)).toMatchObject({ lastSyncedAt: syncedAt, syncError })
  })

  it('are not created twice when only their publication fails', async () => {
    fake.faults = failing(500, isPublish)
    const { body } = await create()
    const id = String(body['id'])
    expect(body['syncError']).toBe('the metering backend failed to process the plan')
    expect((await planOf(id))['openmeterPlanId']).toBe(fake.state.plans[0]?.id)
    fake.faults = () => 'none'
    expect((await sync(id)).status).toBe(200)
    expect(fake.state.plans.map(({ status }) => status)).toEqual(['active'])
  })

  it.each([
    ['of the creation', isCreate],
    ['of the publication', isPublish],
  ])('exist once when the answer %s is lost', async (_, matches) => {
    fake.faults = failing('lose answer', matches)
    const { body } = await create()
    expect(body['syncError']).toBe('the metering backend does not answer now')
    fake.faults = () => 'none'
    expect((await sync(String(body['id']))).status).toBe(200)
    expect(fake.state.plans.map(({ status }) => status)).toEqual(['active'])
  })

  it('are replaced as drafts when a new cycle cannot be written into them', async () => {
    fake.faults = failing(500, isPublish)
    const id = await newPlan()
    fake.faults = () => 'none'
    await update({ id, billingCycle: 'daily' })
    const live = fake.state.plans.filter(({ deletedAt }) => !deletedAt)
    expect(live.map(({ cadence, status }) => [cadence, status])).toEqual([['P1D', 'active']])
  })

  const silent = {
    code: 'metering_unreachable',
    syncError: 'the metering backend does not answer now',
  }
  it.each([
    { fault: 503, status: 503, ...silent },
    { fault: 401, status: 503, ...silent },
    {
      fault: 500,
      status: 502,
      code: 'metering_failed',
      syncError: 'the metering backend failed to process the plan',
    },
    {
      fault: 400,
      status: 422,
      code: 'plan_unsyncable',
      syncError: 'the metering backend refuses the plan: it answered 400: told to answer 400',
    },
  ] as const)(
    'answer a backend with $fault with $status',
    async ({ fault, status, code, syncError }) => {
      const id = await newPlan()
      fake.state.plans.length = 0
      fake.faults = failing(fault, isCreate)
      const answer = await sync(id)
      expect(answer.status).toBe(status)
      expect(answer.body).toMatchObject({ code, error: code, success: false, syncError })
      expect((await planOf(id))['syncError']).toBe(syncError)
    },
  )

  it('report terms that OpenMeter does not support', async () => {
    const syncError = 'the plan cannot be synced: its price is in EUR, and usage is priced in USD'
    const id = await newPlan()
    // A plan from before prices were limited to USD.
    await console.sql.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos,
                                  retail_rate, billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, price_amount, 'EUR', included_attos, retail_rate, billing_cycle, created_at
       from plan_versions
       where plan_id = $1`,
      [id],
    )
    const answer = await sync(id)
    expect(answer.status).toBe(422)
    expect(answer.body).toMatchObject({ code: 'plan_unsyncable', success: false, syncError })
    expect(await planOf(id)).toMatchObject({ syncError })
  })

  it('exist once after concurrent syncs', async () => {
    const id = await newPlan()
    fake.state.plans.length = 0
    fake.faults = failing('late', isCreate)
    const answers = await Promise.all(Array.from({ length: 6 }, () => sync(id)))
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 6 }, () => 200))
    expect(fake.state.plans).toHaveLength(1)
  })

  it('are refused while another sync holds the lease', async () => {
    const id = await newPlan()
    const leasedUntil = new Date(console.clock.now().getTime() + 60_000)
    await console.sql.query(
      `update plan_syncs set lease_id = gen_random_uuid(), leased_until = $2 where plan_id = $1`,
      [id, leasedUntil],
    )
    const { status, body } = await sync(id)
    expect([status, body['syncError']]).toEqual([
      409,
      'the plan is being synced; repeat the request later',
    ])
    console.clock.advance(60_000)
    expect((await sync(id)).status).toBe(200)
  })

  it('of other apps, unknown ones, and those of viewers are not synced', async () => {
    const id = await newPlan()
    const other = await console.newApp()
    const stranger = await logInTo(console, other, 'admin')
    const viewer = await logInTo(console, app, 'viewer')
    const path = `/api/v1/apps/${app.clientId}/plans/${id}/sync`
    expect((await console.ask('POST', path, { person: stranger })).status).toBe(404)
    expect((await console.ask('POST', path, { authorization: app.basic })).status).toBe(404)
    expect((await console.ask('POST', path, { person: viewer })).status).toBe(403)
    const foreign = `/api/v1/apps/${other.clientId}/plans/${id}/sync`
    expect((await console.ask('POST', foreign, { person: stranger })).status).toBe(404)
    expect((await sync('nothing')).status).toBe(404)
  })

  const remove = (id: string) => ask('DELETE', `/plans?planId=${id}`)
  const live = () =>
    fake.state.plans.flatMap(({ key, status, deletedAt }) =>
      key.startsWith(app.clientId) && !deletedAt ? [status] : [],
    )

  it('are archived when they are deleted', async () => {
    const id = await newPlan()
    expect((await remove(id)).status).toBe(200)
    expect(live()).toEqual(['archived'])
  })

  it('are archived when they become inactive or free, and published again when they return to sale', async () => {
    const id = await newPlan()
    const { id: first } = fake.state.plans[0] ?? {}
    expect((await update({ id, status: 'inactive' })).body).not.toHaveProperty('syncError')
    expect(live()).toEqual(['archived'])
    expect(await planOf(id)).toMatchObject({ openmeterPlanId: first, syncError: null })
    await update({ id, status: 'active' })
    expect(live()).toEqual(['archived', 'active'])
    expect((await planOf(id))['openmeterPlanId']).toBe(fake.state.plans[1]?.id)
    await update({ id, type: 'free' })
    expect(live()).toEqual(['archived', 'archived'])
  })

  it('are not written before they are sold', async () => {
    const before = fake.requests.length
    const id = await newPlan({ ...pro, status: 'inactive' })
    await update({ id, priceAmount: '1' })
    expect((await remove(id)).status).toBe(200)
    expect(fake.requests.length).toBe(before)
  })

  it('are archived together with an unpublished draft', async () => {
    const id = await newPlan()
    fake.faults = failing(500, isPublish)
    await update({ id, priceAmount: '59' })
    expect(live()).toEqual(['active', 'draft'])
    fake.faults = () => 'none'
    await update({ id, status: 'inactive' })
    expect(live()).toEqual(['archived'])
  })

  it('are deleted even if their archiving fails, which is repeated', async () => {
    const id = await newPlan()
    fake.faults = failing(503)
    expect((await remove(id)).status).toBe(200)
    expect(live()).toEqual(['active'])
    fake.faults = () => 'none'
    console.clock.advance(60_000)
    await withUpkeep(({ retry }) => retry())
    expect(live()).toEqual(['archived'])
  })

  it('of a deleted app are archived by upkeep, once', async () => {
    await newPlan()
    console.clock.advance(1_000)
    await console.sql.query(
      `update apps set status = 'deleted', deleted_at = $2 where id = (select app_id from clients where client_id = $1)`,
      [app.clientId, console.clock.now()],
    )
    await withUpkeep(async ({ retry }) => {
      await retry()
      expect(live()).toEqual(['archived'])
      const before = fake.requests.length
      await retry()
      expect(fake.requests.length).toBe(before)
    })
  })

  it('sync Starter when it changes', async () => {
    const { body } = await ask('PUT', '/starter-plan', {
      person,
      json: { includedUsdMicros: '7000000' },
    })
    expect(body).toMatchObject({ syncError: null, openmeterPlanId: fake.state.plans[0]?.id })
    expect(cardsOf(fake.state.plans[0]?.body ?? {}).map(includedOf)).toEqual([7_000_000])
  })

  /** Runs one round of upkeep immediately. */
  async function withUpkeep(use: (sync: PlanSync, pool: Pool) => Promise<void>): Promise<void> {
    const pool = createPool({
      url: console.databaseUrl,
      max: 4,
      name: 't',
      statementTimeoutMs: 5_000,
    })
    const backend = createOpenMeter({
      config: { url: fake.urls[version], apiKey: undefined, timeoutMs: 5_000, batchSize: 10 },
      log: silentLog(),
      metrics: createMetrics('test'),
      now: console.clock.now,
      findSubscriber: async () => null,
    })
    const sync = createPlanSync({
      pool,
      now: console.clock.now,
      log: silentLog(),
      catalog: backend.plans,
      stopping: new AbortController().signal,
    })
    try {
      backend.start()
      await until(() => backend.ready()['openmeter'] === true)
      await use(sync, pool)
    } finally {
      await backend.stop()
      await pool.end()
    }
  }

  it('are synced by upkeep if never synced, and after failures with growing delays', async () => {
    fake.faults = failing(503)
    const id = await newPlan()
    await withUpkeep(async ({ retry, states }, pool) => {
      const { rows } = await pool.query<{ app_id: string }>(
        `delete from plan_syncs where plan_id <> '${id}' returning app_id`,
      )
      expect(rows.length).toBeGreaterThan(0)
      const own = async () => {
        const { rows: apps } = await pool.query<{ app_id: string }>(
          `select app_id from plans where id = '${id}'`,
        )
        return states(appId(apps[0]?.app_id ?? ''))
      }
      const retryIn = async () => {
        const { rows: due } = await pool.query<{ retry_at: Date }>(
          `select retry_at from plan_syncs where plan_id = '${id}'`,
        )
        return (due[0]?.retry_at.getTime() ?? 0) - console.clock.now().getTime()
      }
      expect(await retryIn()).toBe(60_000)
      console.clock.advance(60_000)
      await retry()
      expect(await retryIn()).toBe(120_000)
      fake.faults = () => 'none'
      await retry()
      expect((await own()).get(id)?.syncError).not.toBeNull()
      console.clock.advance(120_000)
      await retry()
      expect((await own()).get(id)).toMatchObject({ syncError: null })
      expect([...(await own()).values()].map(({ syncError }) => syncError)).toEqual([null, null])
      expect(fake.state.plans.every(({ status }) => status === 'active')).toBe(true)
    })
  })
})

describe('without a metering backend', () => {
  it('creates plans as before, and a sync reports that no backend is configured', async () => {
    const console = await startConsole()
    try {
      const app = await console.newApp()
      const person = await logInTo(console, app, 'admin')
      const path = `/api/v1/apps/${app.clientId}/plans`
      const { body } = await console.ask('POST', path, {
        person,
        json: { name: 'P', type: 'usage' },
      })
      expect(body).toEqual({ id: expect.any(String) })
      const answer = await console.ask('POST', `${path}/${String(body['id'])}/sync`, { person })
      expect(answer.status).toBe(503)
      expect(answer.body).toMatchObject({
        code: 'metering_not_configured',
        success: false,
        syncError: 'no metering backend with plans is configured',
      })
    } finally {
      await console.stop()
    }
  })
})
