import { describe, expect, it } from 'vitest'
import { until } from '../../../core/support.ts'
import { logInTo } from '../../../support/web/people.ts'
import { startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'
import {
  fake,
  setUpSync,
  sync,
  newPlan,
  cardsOf,
  featureOf,
  includedOf,
  pro,
  operator,
  starter,
  productOf,
  failing,
  isPublish,
  live,
  remove,
} from './sync-support.ts'
import { console, app, person, openApp, ask } from '../support.ts'
import { update, planOf } from './support.ts'

describe.each(['v1', 'v3'] as const)('plans in an OpenMeter of API %s', (version) => {
  setUpSync(version)

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
    await openApp('admin', { isTest: true })
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
      operator.subscriptions.updateSubscription({
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

    const atPeriodEnd = { ...ada, confirm: true, timing: 'next_billing_cycle' }
    await operator.subscriptions.cancelSubscription(atPeriodEnd)
    await operator.subscriptions.resumeSubscription({ ...ada, confirm: true })
    await operator.subscriptions.cancelSubscription(atPeriodEnd)
    expect(running()).toEqual([keyOf(proId)])
    await operator.testClocks.advanceTestClock({
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

  it('sync Starter when it changes', async () => {
    const { body } = await ask('PUT', '/starter-plan', {
      person,
      json: { includedUsdMicros: '7000000' },
    })
    expect(body).toMatchObject({ syncError: null, openmeterPlanId: fake.state.plans[0]?.id })
    expect(cardsOf(fake.state.plans[0]?.body ?? {}).map(includedOf)).toEqual([7_000_000])
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
