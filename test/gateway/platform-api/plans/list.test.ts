import { describe, expect, it } from 'vitest'
import { logInTo } from '../../../support/web/people.ts'
import type { RequestOptions } from '../../console.ts'
import { asRecord } from '../../support.ts'
import { console, app, person, setUpApp, ask } from '../support.ts'
import {
  create,
  update,
  remove,
  list,
  planOf,
  newPlan,
  defaultOf,
  auditOf,
  sdxl,
  subscription,
} from './support.ts'

setUpApp('admin')

describe("an app's plans", () => {
  it('start with one Starter and one Network Price', async () => {
    const plans = await list()
    expect(plans.map(({ name }) => name)).toEqual(['Starter', 'Network Price'])
    expect(plans[0]).toEqual({
      id: expect.any(String),
      clientId: app.clientId,
      name: 'Starter',
      type: 'usage',
      priceAmount: '0',
      priceCurrency: 'USD',
      status: 'active',
      isNetworkDefault: false,
      isStarterDefault: true,
      includedUnits: null,
      includedUsdMicros: '5000000',
      overageRateWei: null,
      overageRateUsd: null,
      billingCycle: 'monthly',
      chargeThresholdUsd: null,
      chargeThresholdUsdMicros: null,
      openmeterPlanId: null,
      lastSyncedAt: null,
      syncError: null,
      version: 1,
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
      capabilities: [],
    })
    expect(plans[1]).toMatchObject({
      type: 'free',
      isNetworkDefault: true,
      isStarterDefault: false,
    })
  })

  it('get a missing Network Price once for concurrent requests', async () => {
    await console.sql.query(
      `alter table plan_versions disable trigger user;
      delete from plans where is_network_default and app_id = (select app_id from clients where client_id = '${app.clientId}');
      alter table plan_versions enable trigger user`,
    )
    const answers = await Promise.all(Array.from({ length: 8 }, () => list()))
    for (const plans of answers)
      expect(plans.map(({ name }) => name)).toEqual(['Starter', 'Network Price'])
  })

  it('are billing products with apiVersion=2', async () => {
    const id = await newPlan({
      ...subscription,
      priceAmount: '49.00',
      includedUsdMicros: '20000000',
      overageRateUsd: '0.0000012',
      capabilities: [
        { ...sdxl, retailRateUsd: '0.0000020' },
        { pipeline: 'text-to-image', modelId: '*' },
      ],
    })
    for (const query of ['?apiVersion=2', '?format=billing', '?apiVersion=2&includeInternals=1']) {
      const { status, body } = await ask('GET', `/plans${query}`, { authorization: app.basic })
      expect([status, body['apiVersion']]).toEqual([200, 2])
      const products = body['products']
      if (!Array.isArray(products)) throw new Error('no products')
      expect(products).toHaveLength(3)
      expect(asRecord(products[1])['sync']).toMatchObject({ status: 'not_applicable' })
      expect(products[2]).toEqual({
        id,
        name: 'Pro',
        type: 'subscription',
        status: 'active',
        includedUsdMicros: '20000000',
        overageRateUsd: '0.0000012',
        billingCycle: 'monthly',
        openmeterPlanId: null,
        lastSyncedAt: null,
        syncError: null,
        sync: {
          status: 'not_applicable',
          syncedAt: null,
          openmeterPlanId: null,
          errorCode: null,
          errorMessage: null,
        },
        allowance: { includedUsdMicros: '20000000', billingCycle: 'monthly' },
        defaultRetailRateUsd: '0.0000012',
        capabilities: [
          {
            ...sdxl,
            effectiveRetailRateUsd: '0.000002',
            retailRateUsd: '0.000002',
            featureKey: 'text-to-image:sdxl',
          },
          {
            pipeline: 'text-to-image',
            modelId: '*',
            effectiveRetailRateUsd: '0.0000012',
            retailRateUsd: null,
            featureKey: 'text-to-image',
          },
        ],
      })
    }
  })

  it('are listed to callers with access to the app, and 404 for others', async () => {
    const viewer = await logInTo(console, app, 'viewer')
    expect(await list({ person: viewer })).toEqual(await list())
    const other = await console.newApp()
    const stranger = await logInTo(console, other, 'owner')
    for (const request of [{}, { authorization: other.basic }, { person: stranger }])
      expect((await ask('GET', '/plans', request)).status).toBe(404)
  })

  it('have an ETag that changes with every change, in each form', async () => {
    const etagOf = async (query = '', headers = {}) => {
      const request = { authorization: app.basic, headers }
      const answer = await ask('GET', `/plans${query}`, request)
      return [answer.status, answer.headers.get('etag') ?? ''] as const
    }
    const seen = new Set<string>()
    const changed = async () => {
      for (const query of ['', '?apiVersion=2']) {
        const [status, etag] = await etagOf(query)
        expect([status, seen.has(etag)]).toEqual([200, false])
        seen.add(etag)
        expect(await etagOf(query, { 'if-none-match': etag })).toEqual([304, etag])
      }
    }
    await changed()
    const id = await newPlan({ capabilities: [sdxl] })
    await changed()
    for (const change of [{ name: 'Pro 2' }, { status: 'inactive' }, { overageRateUsd: '0' }]) {
      await update({ id, ...change })
      await changed()
      expect(await planOf(id)).toMatchObject(change)
    }
    await ask('PUT', '/starter-plan', { person, json: { includedUsdMicros: '1' } })
    await changed()
    await remove(`?planId=${id}`)
    await changed()
    // A list is not served to other callers.
    const other = await console.newApp()
    expect((await ask('GET', '/plans', { authorization: other.basic })).status).toBe(404)
    expect((await ask('GET', '/plans', {})).status).toBe(404)
  })

  it('and their capabilities are limited, so that the list stays one message', async () => {
    const { rows } = await console.sql.query('select app_id from clients where client_id = $1', [
      app.clientId,
    ])
    const id = await newPlan({ capabilities: [sdxl] })
    await console.sql.query(
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id)
      select $1, $2, 1, gen_random_uuid(), i, 'p', i::text from generate_series(1, 19998) i`,
      [rows[0].app_id, id],
    )
    const llm = { pipeline: 'llm', modelId: '*' }
    const { status, body } = await create({ name: 'Two', capabilities: [sdxl, llm] })
    expect([status, body['detail']]).toEqual([409, expect.stringContaining('20000 capabilities')])
    const other = await newPlan({ name: 'One', capabilities: [sdxl] })
    expect((await update({ id: other, capabilities: [sdxl, llm] })).status).toBe(409)
    expect((await update({ id: other, capabilities: [llm] })).status).toBe(200)
  })

  it.each(['?apiversion=2', '?apiVersion=3', '?planId=x', '?apiVersion=2&apiVersion=2'])(
    'refuse the query %s',
    async (query) => {
      const { status } = await ask('GET', `/plans${query}`, { authorization: app.basic })
      expect(status).toBe(400)
    },
  )
})

describe('Starter plan', () => {
  const starterPlan = (json?: object, request: RequestOptions = { person }) =>
    json === undefined
      ? ask('GET', '/starter-plan', request)
      : ask('PUT', '/starter-plan', { ...request, json })

  it('is read and changed', async () => {
    const { status, body } = await starterPlan()
    expect([status, body]).toEqual([
      200,
      {
        success: true,
        plan: await defaultOf('isStarterDefault'),
        includedUsdMicros: '5000000',
        openmeterPlanId: null,
        syncError: null,
      },
    ])
    const changed = await starterPlan({ includedUsdMicros: '7000000' })
    expect(changed.status).toBe(200)
    expect(changed.body).toMatchObject({
      includedUsdMicros: '7000000',
      plan: { includedUsdMicros: '7000000', version: 2, isStarterDefault: true },
    })
    expect((await starterPlan({ includedUsdMicros: '7000000' })).body).toMatchObject({
      plan: { version: 2 },
    })
    expect((await starterPlan({ includedUsdMicros: '0' })).body).toMatchObject({
      includedUsdMicros: '0',
      plan: { version: 3 },
    })
    expect((await starterPlan()).body['plan']).toEqual(await defaultOf('isStarterDefault'))
    expect(await auditOf('starter_')).toHaveLength(3)
  })

  it.each([
    [{}, 'includedUsdMicros is required'],
    [{ includedUsdMicros: null }, 'includedUsdMicros is required'],
    [{ includedUsdMicros: 5 }, /^includedUsdMicros must be a non-negative integer string/],
    [{ includedUsdMicros: '-5' }, /^includedUsdMicros must be a non-negative integer string/],
    [{ includedUsdMicros: '5.5' }, /^includedUsdMicros must be a non-negative integer string/],
    [{ includedUsdMicros: '5', name: 'x' }, /^unknown field name/],
  ])('refuses %j', async (json, detail) => {
    const { status, body } = await starterPlan(json)
    expect(status).toBe(400)
    expect(body['detail']).toMatch(detail)
  })

  it("is limited to the app's members", async () => {
    const viewer = await logInTo(console, app, 'viewer')
    const json = { includedUsdMicros: '5' }
    expect((await starterPlan(undefined, { person: viewer })).status).toBe(200)
    expect((await starterPlan(json, { person: viewer })).status).toBe(403)
    for (const body of [undefined, json]) {
      expect((await starterPlan(body, { authorization: app.basic })).status).toBe(404)
      expect((await starterPlan(body, {})).status).toBe(404)
    }
  })
})
