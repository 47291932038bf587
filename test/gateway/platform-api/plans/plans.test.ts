import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { TestApp } from '../../../core/support.ts'
import { type Person, logInTo } from '../../../support/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

let console: Console
let app: TestApp
let person: Person
beforeAll(async () => {
  console = await startConsole()
})
afterAll(() => console.stop())
beforeEach(async () => {
  app = await console.newApp()
  person = await logInTo(console, app, 'admin')
})

const ask = (method: string, path: string, request: RequestOptions = { person }) =>
  console.ask(method, `/api/v1/apps/${app.clientId}${path}`, request)
const create = (json: object, more: RequestOptions = {}) =>
  ask('POST', '/plans', { person, json, ...more })
const update = (json: object) => ask('PUT', '/plans', { person, json })
const remove = (query: string) => ask('DELETE', `/plans${query}`)
const list = async (request: RequestOptions = { authorization: app.basic }) => {
  const { text } = await ask('GET', '/plans', request)
  const plans: unknown = JSON.parse(text)
  if (!Array.isArray(plans)) throw new Error(`no array: ${text}`)
  return plans.map(asRecord)
}
const planOf = async (id: unknown) => {
  const plan = (await list()).find((one) => one['id'] === id)
  if (!plan) throw new Error(`no plan ${String(id)}`)
  return plan
}
const newPlan = async (json: object = {}): Promise<string> => {
  const { status, body } = await create({ name: 'Pro', ...json })
  expect(body).toEqual({ id: expect.any(String) })
  expect(status).toBe(201)
  return String(body['id'])
}
const defaultOf = async (flag: 'isStarterDefault' | 'isNetworkDefault') => {
  const plan = (await list()).find((one) => one[flag] === true)
  if (!plan) throw new Error(`no plan with ${flag}`)
  return plan
}
const auditOf = async (prefix: string) => {
  const { rows } = await console.sql.query(
    `select action, actor from audit_log l join clients c using (app_id)
    where c.client_id = $1 and action like $2 order by l.created_at, l.id`,
    [app.clientId, `${prefix}%`],
  )
  return rows.map(({ action, actor }) => [action, actor])
}

const sdxl = { pipeline: 'text-to-image', modelId: 'sdxl' }
const subscription = { type: 'subscription', includedUnits: '100', overageRateWei: '5' }

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

describe('creating a plan', () => {
  it('stores its input to the last digit', async () => {
    const id = await newPlan({
      name: '  Größe 2.0 ',
      type: 'usage',
      priceAmount: '49.00',
      priceCurrency: 'USD',
      status: 'inactive',
      includedUnits: '123456789012345678901234567890',
      overageRateWei: '9007199254740993',
      includedUsdMicros: '0',
      overageRateUsd: '0.0000012',
      billingCycle: 'weekly',
      chargeThresholdUsd: '10.50',
      capabilities: [
        {
          ...sdxl,
          slaTargetScore: 0.75,
          slaTargetP95Ms: 900,
          maxPricePerUnit: '123456789012345678',
          retailRateUsd: '0',
        },
        { pipeline: 'llm', modelId: '*' },
      ],
    })
    expect(await planOf(id)).toMatchObject({
      name: 'Größe 2.0',
      type: 'usage',
      priceAmount: '49.00',
      priceCurrency: 'USD',
      status: 'inactive',
      includedUnits: '123456789012345678901234567890',
      overageRateWei: '9007199254740993',
      includedUsdMicros: '0',
      overageRateUsd: '0.0000012',
      billingCycle: 'weekly',
      chargeThresholdUsd: '10.5',
      chargeThresholdUsdMicros: '10500000',
      version: 1,
      capabilities: [
        {
          id: expect.any(String),
          ...sdxl,
          slaTargetScore: 0.75,
          slaTargetP95Ms: 900,
          maxPricePerUnit: '123456789012345678',
          retailRateUsd: '0',
        },
        {
          id: expect.any(String),
          pipeline: 'llm',
          modelId: '*',
          slaTargetScore: null,
          slaTargetP95Ms: null,
          maxPricePerUnit: null,
          retailRateUsd: null,
        },
      ],
    })
    expect(await auditOf('plan_')).toEqual([['plan_created', person.accountId]])
  })

  it('has the defaults of a free plan', async () => {
    expect(await planOf(await newPlan({ includedUnits: '5', overageRateWei: '5' }))).toMatchObject({
      type: 'free',
      priceAmount: '0',
      priceCurrency: 'USD',
      status: 'active',
      includedUnits: null,
      overageRateWei: null,
      includedUsdMicros: null,
      overageRateUsd: null,
      billingCycle: 'monthly',
    })
  })

  it('requires edit rights on the app', async () => {
    const json = { name: 'Pro' }
    const other = await console.newApp()
    const callers = {
      viewer: { person: await logInTo(console, app, 'viewer') },
      'member of another app': { person: await logInTo(console, other, 'owner') },
      'M2M client': { authorization: app.basic },
      nobody: {},
    }
    const statuses = await Promise.all(
      Object.values(callers).map(
        async (caller) => (await ask('POST', '/plans', { ...caller, json })).status,
      ),
    )
    expect(statuses).toEqual([403, 404, 404, 404])
    for (const method of ['PUT', 'DELETE']) {
      const path = method === 'PUT' ? '/plans' : '/plans?planId=x'
      const more = method === 'PUT' ? { json } : {}
      expect((await ask(method, path, { authorization: app.basic, ...more })).status).toBe(404)
      expect((await ask(method, path, { ...callers.viewer, ...more })).status).toBe(403)
    }
    const detailFor = async (clientId: string, path: string) => {
      const { status, body } = await console.ask('POST', `/api/v1/apps/${clientId}${path}`, {
        authorization: app.basic,
        json,
      })
      return [status, body['detail']]
    }
    const unknown = 'app_000000000000000000000000'
    const way = [
      404,
      expect.stringContaining('POST /login, then read the CSRF token from GET /api/v1/session'),
    ]
    expect(await detailFor(app.clientId, '/plans')).toEqual(way)
    expect(await detailFor(unknown, '/plans')).toEqual(way)
    // The credential is checked before the request.
    expect(
      (
        await ask('POST', '/plans', {
          authorization: app.basic,
          headers: { 'content-type': 'text/plain' },
        })
      ).status,
    ).toBe(404)
    expect((await list()).length).toBe(2)
  })

  /**
   * In the order of the checks: each request has the fault of its row and those of all later rows.
   */
  const faults: readonly (readonly [string, object, string | RegExp])[] = [
    ['no name', { name: undefined }, 'name is required'],
    ['a name of another type', { name: 5 }, /^name must have 1 to 64/],
    ['a long name', { name: 'x'.repeat(65) }, /^name must have 1 to 64/],
    ['a name that ends with a dot', { name: 'Pro.' }, /^name must have 1 to 64/],
    ['a name with a slash', { name: 'a/b' }, /^name must have 1 to 64/],
    ['a name with two lines', { name: 'a\nb' }, /^name must have 1 to 64|not allowed/],
    ['a reserved name', { name: 'Network Price' }, 'the name Network Price is reserved'],
    ['another way to write it', { name: ' nEtWoRk  pRice ' }, /is reserved$/],
    ['a third way to write it', { name: 'Ｎetwork Price' }, /is reserved$/],
    ['the old name of Network Price', { name: 'network discovery' }, /is reserved$/],
    ['the name of Starter', { name: 'STARTER' }, /is reserved$/],
    ['the name of the plan with nothing', { name: 'Nothing Included' }, /is reserved$/],
    ['is_network_default', { is_network_default: false }, 'is_network_default cannot be set'],
    ['is_starter_default', { is_starter_default: true }, 'is_starter_default cannot be set'],
    ['isNetworkDefault', { isNetworkDefault: true }, 'isNetworkDefault cannot be set'],
    ['capabilities that are no array', { capabilities: {} }, 'capabilities must be an array'],
    ['capabilities that are null', { capabilities: null }, 'capabilities must be an array'],
    [
      'too many capabilities',
      { capabilities: Array.from({ length: 201 }, (_, i) => ({ ...sdxl, modelId: `m${i}` })) },
      'capabilities may have at most 200 entries',
    ],
    ['a capability that is no object', { capabilities: [5] }, 'capabilities[0] must be an object'],
    [
      'a capability without a pipeline',
      { capabilities: [{ modelId: 'x' }] },
      'capabilities[0].pipeline is required',
    ],
    [
      'a capability without a model',
      { capabilities: [sdxl, { pipeline: 'llm' }] },
      'capabilities[1].modelId is required',
    ],
    ['the same pair twice', { capabilities: [sdxl, sdxl] }, /^capabilities\[1\] names .* twice$/],
    [
      'a pipeline that nobody knows',
      { capabilities: [sdxl, { pipeline: 'nothing', modelId: '*' }] },
      /^the catalogue has no nothing/,
    ],
    ['another type', { type: 'gold' }, 'type must be one of: free, subscription, usage'],
    [
      'a subscription without units',
      { type: 'subscription', includedUnits: null, overageRateWei: '5' },
      'includedUnits and overageRateWei are required for subscription plans',
    ],
    [
      'a subscription without a rate',
      { type: 'subscription', includedUnits: '5', overageRateWei: null },
      'includedUnits and overageRateWei are required for subscription plans',
    ],
    [
      'units as a number',
      { type: 'usage', includedUnits: 5 },
      /^includedUnits must be a non-negative integer string/,
    ],
    [
      'units with a sign',
      { type: 'usage', includedUnits: '+5' },
      /^includedUnits must be a non-negative integer string/,
    ],
    [
      'units of 40 digits',
      { type: 'usage', includedUnits: '1'.repeat(40) },
      /^includedUnits must be a non-negative integer string/,
    ],
    [
      'units in other digits',
      { type: 'usage', includedUnits: '٣' },
      /^includedUnits must be a non-negative integer string/,
    ],
    [
      'units below zero',
      { type: 'usage', includedUnits: '-5' },
      /^includedUnits must be a non-negative integer string/,
    ],
    [
      'a rate of units with a point',
      { type: 'usage', overageRateWei: '5.5' },
      /^overageRateWei must be a non-negative integer string/,
    ],
    ...['1e-7', '.5', '-1', '', ' 1', '1'.repeat(40), '0.' + '1'.repeat(19), '٠.١', '२', '2'].map(
      (rate) =>
        [
          `the rate ${rate}`,
          { overageRateUsd: rate },
          /^overageRateUsd must be a non-negative decimal USD amount/,
        ] as const,
    ),
    [
      'a rate that is a number',
      { overageRateUsd: 0.000_001 },
      /^overageRateUsd must be a non-negative decimal USD amount/,
    ],
    ...[
      '1e-7',
      '.5',
      '5.',
      '-0',
      '+1',
      '1'.repeat(40),
      '0.' + '1'.repeat(40),
      '٠.١',
      '０.１',
      0,
    ].map(
      (rate) =>
        [
          `the rate ${rate} of a capability`,
          { capabilities: [{ ...sdxl, retailRateUsd: rate }] },
          /^capabilities\[0\]\.retailRateUsd must be a non-negative decimal USD amount/,
        ] as const,
    ),
    [
      'a score below zero',
      { capabilities: [{ ...sdxl, slaTargetScore: -1 }] },
      /^capabilities\[0\]\.slaTargetScore must be/,
    ],
    [
      'half a millisecond',
      { capabilities: [{ ...sdxl, slaTargetP95Ms: 0.5 }] },
      /^capabilities\[0\]\.slaTargetP95Ms must be/,
    ],
    [
      'a ceiling of zero',
      { capabilities: [{ ...sdxl, maxPricePerUnit: '0' }] },
      /^capabilities\[0\]\.maxPricePerUnit must be/,
    ],
    [
      'another cycle',
      { billingCycle: 'yearly' },
      'billingCycle must be one of: daily, weekly, monthly',
    ],
    [
      'a threshold of a subscription',
      { ...subscription, chargeThresholdUsd: '10' },
      'chargeThresholdUsd is only valid for Pay-Per-Use (type "usage") plans',
    ],
    ...['10.555', '0', '0.00', '-1', '1000001', '1000000.01', '1e3', '.5', '5.', '٥'].map(
      (threshold) =>
        [
          `the threshold ${threshold}`,
          { type: 'usage', chargeThresholdUsd: threshold },
          /^chargeThresholdUsd must be a decimal string of dollars above 0/,
        ] as const,
    ),
    ...['-1', '1.0', '', 'abc', '+5', '0x10', ' 5', '01', '1'.repeat(17), 5_000_000].map(
      (included) =>
        [
          `includedUsdMicros of ${included}`,
          { includedUsdMicros: included },
          /^includedUsdMicros must be a non-negative integer string/,
        ] as const,
    ),
    [
      'a price of three decimals',
      { priceAmount: '1.001' },
      /^priceAmount must be a non-negative decimal string/,
    ],
    [
      'a price below zero',
      { priceAmount: '-1' },
      /^priceAmount must be a non-negative decimal string/,
    ],
    ['another currency', { priceCurrency: 'EUR' }, 'priceCurrency must be USD'],
    ['a currency in small letters', { priceCurrency: 'usd' }, 'priceCurrency must be USD'],
    ['another status', { status: 'draft' }, 'status must be one of: active, inactive'],
    ['a mistyped field', { includedUsdMicro: '5' }, /^unknown field includedUsdMicro; known are: /],
    [
      'a mistyped field of a capability',
      { capabilities: [{ ...sdxl, retailRate: '0' }] },
      /^unknown field capabilities\[0\]\.retailRate; known are: /,
    ],
  ]

  it('reports one fault after the other, in the order of the checks', async () => {
    const wrong: unknown[] = []
    for (const [index, [what, change, message]] of faults.entries()) {
      const later = faults.slice(index + 1).map(([, other]) => other)
      const json = Object.assign({ name: 'Pro' }, ...later.toReversed(), change)
      const { status, body } = await create(json)
      const detail = String(body['detail'])
      const isTold = typeof message === 'string' ? detail === message : message.test(detail)
      if (status !== 400 || !isTold) wrong.push([what, status, detail])
    }
    expect(wrong).toEqual([])
    expect(await list()).toHaveLength(2)
  })

  it('reports a body that is not a JSON object', async () => {
    for (const form of ['{', '[]', 'null', '5', '"x"'])
      expect(
        (
          await ask('POST', '/plans', {
            person,
            form,
            headers: { 'content-type': 'application/json' },
          })
        ).status,
      ).toBe(400)
  })

  it('reports unknown or excluded capabilities', async () => {
    await ask('PUT', '/manifest', {
      person,
      json: { excludedCapabilities: [{ pipeline: 'llm', modelId: 'banned' }] },
    })
    const banned = { pipeline: 'llm', modelId: 'banned' }
    const unknown = { pipeline: 'zzz', modelId: 'm' }
    const { status, body } = await create({ name: 'Pro', capabilities: [sdxl, banned, unknown] })
    expect([status, body['conflicts']]).toEqual([
      400,
      [
        { ...unknown, reason: 'unknown' },
        { ...banned, reason: 'excluded' },
      ],
    ])
    expect(
      (await create({ name: 'Pro', capabilities: [{ ...banned, modelId: '*' }] })).status,
    ).toBe(201)
  })

  it('refuses a name that differs only in its kinds of s', async () => {
    const statuses: number[] = []
    for (const name of ['STRAẞE 1', 'straße 1', 'Strasse 1', 'ΟΔΟΣ', 'οδοσ'])
      statuses.push((await create({ name })).status)
    expect(statuses).toEqual([201, 409, 409, 201, 409])
  })

  it('refuses a name that differs only by case, blanks or composition, 20 at a time', async () => {
    // The last two have é as one character and as two.
    const names = [
      'Pro Café',
      'pro café',
      'PRO  CAFÉ',
      ' Pro Café ',
      'Ｐro Caf\u00e9',
      'Pro Cafe\u0301',
    ]
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => create({ name: names[i % names.length] })),
    )
    expect(answers.map(({ status }) => status).toSorted()).toEqual([
      201,
      ...Array.from({ length: 19 }, () => 409),
    ])
    expect(
      (await list()).filter(
        ({ isStarterDefault, isNetworkDefault }) => !isStarterDefault && !isNetworkDefault,
      ),
    ).toHaveLength(1)
  })
})

describe('changing a plan', () => {
  it('keeps omitted fields, clears null ones, and creates a version only for new terms', async () => {
    const id = await newPlan({
      type: 'usage',
      priceAmount: '5',
      overageRateUsd: '0.000002',
      includedUsdMicros: '7',
      includedUnits: '8',
      chargeThresholdUsd: '10',
      capabilities: [{ ...sdxl, retailRateUsd: '0.000003' }],
    })
    const before = await planOf(id)
    expect((await update({ id })).body).toMatchObject({ success: true, id })
    expect(await planOf(id)).toMatchObject({ ...before, updatedAt: expect.any(String) })
    await update({ id, name: 'Pro 2', status: 'inactive' })
    expect(await planOf(id)).toMatchObject({ name: 'Pro 2', status: 'inactive', version: 1 })
    await update({ id, overageRateUsd: null, includedUsdMicros: null, includedUnits: null })
    expect(await planOf(id)).toMatchObject({
      ...before,
      name: 'Pro 2',
      status: 'inactive',
      overageRateUsd: null,
      includedUsdMicros: null,
      includedUnits: null,
      version: 2,
      updatedAt: expect.any(String),
    })
    await update({ id, type: 'free' })
    expect(await planOf(id)).toMatchObject({ type: 'free', chargeThresholdUsd: null, version: 3 })
    await update({ id, capabilities: [] })
    expect(await planOf(id)).toMatchObject({ capabilities: [], version: 4 })
    const { rows } = await console.sql.query(
      `select v.version, v.retail_rate, v.charge_threshold_attos is null as none,
              (select count(*) from plan_bundles b where b.plan_id = v.plan_id and b.version = v.version) as bundles
      from plan_versions v where plan_id = $1 order by version`,
      [id],
    )
    expect(
      rows.map((row) => [row.version, row.retail_rate, row.none, Number(row.bundles)]),
    ).toEqual([
      [1, '0.000002', false, 1],
      [2, null, false, 1],
      [3, null, true, 1],
      [4, null, true, 0],
    ])
  })

  it('accepts the plan as read, and keeps the ids of unchanged pairs', async () => {
    const id = await newPlan({ ...subscription, capabilities: [sdxl] })
    const plan = await planOf(id)
    expect((await update(plan)).status).toBe(200)
    expect(await planOf(id)).toMatchObject({ version: 1, capabilities: plan['capabilities'] })
    await update({
      id,
      capabilities: [
        { pipeline: 'llm', modelId: '*' },
        { ...sdxl, slaTargetP95Ms: 5 },
      ],
    })
    const [first] = [plan['capabilities']].flat().map(asRecord)
    expect(await planOf(id)).toMatchObject({
      capabilities: [{ pipeline: 'llm' }, { ...sdxl, id: first?.['id'] }],
    })
  })

  it('refuses in this order', async () => {
    const network = await defaultOf('isNetworkDefault')
    const starter = await defaultOf('isStarterDefault')
    const id = await newPlan(subscription)
    await newPlan({ name: 'Other' })
    const other = await console.newApp()
    const owner = await logInTo(console, other, 'owner')
    const foreign = (
      await console.ask('POST', `/api/v1/apps/${other.clientId}/plans`, {
        person: owner,
        json: { name: 'Theirs' },
      })
    ).body['id']
    const unknown = '01920000-0000-7000-8000-000000000001'
    const required = 'includedUnits and overageRateWei are required for subscription plans'
    const rows: [object, number, string | RegExp][] = [
      [{}, 400, 'id is required'],
      [{ id: 5 }, 400, 'id is required'],
      [{ id: network['id'], name: '' }, 400, /Network Price default plan/],
      [{ id: starter['id'], name: '' }, 400, /starter-plan/],
      [{ id: unknown, name: '' }, 404, 'Plan not found'],
      [{ id: 'x', name: '' }, 404, 'Plan not found'],
      [{ id: foreign, name: '' }, 404, 'Plan not found'],
      [{ id, name: '' }, 400, 'name is required'],
      [{ id, name: null }, 400, 'name is required'],
      [{ id, name: ' starter ' }, 400, /is reserved$/],
      [{ id, is_network_default: false }, 400, 'is_network_default cannot be set'],
      [{ id, capabilities: null, type: 'gold' }, 400, 'capabilities must be an array'],
      [
        { id, capabilities: [{ pipeline: 'zzz', modelId: 'm' }], type: 'gold' },
        400,
        /^the catalogue has no zzz/,
      ],
      [{ id, type: 'gold', includedUnits: null }, 400, /^type must be one of/],
      [{ id, includedUnits: null, overageRateUsd: 'x' }, 400, required],
      [{ id, overageRateWei: null }, 400, required],
      [{ id, overageRateUsd: 'x', billingCycle: 'x' }, 400, /^overageRateUsd must be/],
      [{ id, billingCycle: null, chargeThresholdUsd: '5' }, 400, /^billingCycle must be one of/],
      [{ id, chargeThresholdUsd: '5', includedUsdMicros: 'x' }, 400, /^chargeThresholdUsd is only/],
      [{ id, includedUsdMicros: 'x', status: 'x' }, 400, /^includedUsdMicros must be/],
      [{ id, priceAmount: '1.000', status: 'x' }, 400, /^priceAmount must be/],
      [{ id, priceCurrency: 'EUR', status: 'x' }, 400, 'priceCurrency must be USD'],
      [{ id, status: null, nmae: 'x' }, 400, /^status must be one of/],
      [{ id, nmae: 'x' }, 400, /^unknown field nmae/],
      [{ id, name: 'OTHER' }, 409, 'the app has a plan named OTHER'],
    ]
    const wrong: unknown[] = []
    const before = await list()
    for (const [json, status, detail] of rows) {
      const answer = await update(json)
      const told = String(answer.body['detail'])
      const matches = typeof detail === 'string' ? told === detail : detail.test(told)
      if (answer.status !== status || !matches) wrong.push([json, answer.status, told])
    }
    expect(wrong).toEqual([])
    expect(await list()).toEqual(before)
  })

  it('creates one version per concurrent change, one after the other', async () => {
    const id = await newPlan({ type: 'usage' })
    const rates = Array.from({ length: 12 }, (_, i) => `0.0000${i + 10}`)
    const answers = await Promise.all(rates.map((overageRateUsd) => update({ id, overageRateUsd })))
    expect(answers.map(({ status }) => status)).toEqual(rates.map(() => 200))
    const { rows } = await console.sql.query(
      'select array_agg(version order by version) as versions, array_agg(created_at order by version) as times from plan_versions where plan_id = $1',
      [id],
    )
    expect(rows[0].versions).toEqual(Array.from({ length: 13 }, (_, i) => i + 1))
    expect(rows[0].times).toEqual(rows[0].times.toSorted((a: Date, b: Date) => +a - +b))
  })
})

describe('deleting a plan', () => {
  it('removes the plan from the list and frees its name', async () => {
    const id = await newPlan({ capabilities: [sdxl] })
    expect((await remove(`?planId=${id}`)).body).toMatchObject({ success: true })
    expect(await list()).toHaveLength(2)
    expect((await remove(`?planId=${id}`)).status).toBe(404)
    expect((await update({ id, name: 'x' })).status).toBe(404)
    expect(await newPlan({ name: 'PRO' })).not.toBe(id)
    expect((await auditOf('plan_')).toSorted()).toEqual(
      ['plan_created', 'plan_created', 'plan_deleted'].map((action) => [action, person.accountId]),
    )
  })

  it('refuses in this order', async () => {
    const network = await defaultOf('isNetworkDefault')
    const starter = await defaultOf('isStarterDefault')
    const other = await console.newApp()
    const owner = await logInTo(console, other, 'owner')
    const foreign = await console.ask('POST', `/api/v1/apps/${other.clientId}/plans`, {
      person: owner,
      json: { name: 'Theirs' },
    })
    expect((await remove('')).body['detail']).toBe('planId is required')
    expect((await remove('')).status).toBe(400)
    expect((await remove('?planId=')).status).toBe(400)
    expect((await remove('?planId=x&plan=y')).status).toBe(400)
    expect((await remove('?planId=x')).status).toBe(404)
    expect((await remove(`?planId=${String(foreign.body['id'])}`)).status).toBe(404)
    expect((await remove(`?planId=${String(network['id'])}`)).status).toBe(409)
    expect((await remove(`?planId=${String(starter['id'])}`)).status).toBe(409)
    expect(await list()).toHaveLength(2)
  })

  it('reports how many users are on it', async () => {
    const id = await newPlan()
    for (const externalUserId of ['ada', 'bob'])
      await ask('POST', '/users', { authorization: app.basic, json: { externalUserId } })
    await console.sql.query(
      `update subscriptions set plan_id = $2 where app_id = (select app_id from clients where client_id = $1)`,
      [app.clientId, id],
    )
    const { status, body } = await remove(`?planId=${id}`)
    expect([status, body['code'], body['activeSubscribers']]).toEqual([409, 'conflict', 2])
  })
})

describe("excluding a plan's capability", () => {
  const exclude = (...excludedCapabilities: object[]) =>
    ask('PUT', '/manifest', { person, json: { excludedCapabilities } })

  it('is refused, with the conflicts, until no plan contains it', async () => {
    const id = await newPlan({ status: 'inactive', capabilities: [sdxl] })
    for (const excluded of [sdxl, { ...sdxl, modelId: '*' }]) {
      const { status, body } = await exclude(excluded)
      expect([status, body['code'], body['conflicts']]).toEqual([
        409,
        'conflict',
        [{ plan: 'Pro', ...sdxl }],
      ])
    }
    expect((await exclude({ ...sdxl, modelId: 'other' })).status).toBe(200)
    await update({ id, capabilities: [] })
    expect((await exclude(sdxl)).status).toBe(200)
    expect((await update({ id, capabilities: [sdxl] })).status).toBe(400)
    expect((await exclude()).status).toBe(200)
    await update({ id, capabilities: [sdxl] })
    await remove(`?planId=${id}`)
    expect((await exclude(sdxl)).status).toBe(200)
  })

  it('and adding it to a plan never both succeed', async () => {
    const answers = await Promise.all([
      exclude(sdxl),
      create({ name: 'Pro', capabilities: [sdxl] }),
    ])
    expect(answers.filter(({ status }) => status < 300)).toHaveLength(1)
  })
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

describe('while the catalogue is unavailable', () => {
  it('returns 503 for a plan that needs it, after earlier faults, and creates nothing', async () => {
    const away = await startConsole({
      // The port is closed.
      env: { CATALOG_URL: 'http://127.0.0.1:9/catalog.json', PIPELINES: '' },
    })
    try {
      const own = await away.newApp()
      const admin = await logInTo(away, own, 'admin')
      const path = `/api/v1/apps/${own.clientId}/plans`
      const send = (method: string, json: object) => away.ask(method, path, { person: admin, json })
      const plans = async () => (await away.ask('GET', path, { person: admin })).text
      const { status, body } = await send('POST', { name: 'Free' })
      expect(status).toBe(201)
      const before = await plans()
      const named = { name: 'Pro', type: 'gold', capabilities: [sdxl] }
      expect((await send('POST', { ...named, name: 'Starter' })).status).toBe(400)
      const refused = await send('POST', named)
      expect([refused.status, refused.body['code']]).toEqual([503, 'unavailable'])
      expect((await send('PUT', { ...named, id: body['id'] })).status).toBe(503)
      expect(await plans()).toBe(before)
      // Changes that need no catalogue still work.
      expect((await send('PUT', { id: body['id'], name: 'Free 2' })).status).toBe(200)
      expect((await send('PUT', { id: body['id'], capabilities: [] })).status).toBe(200)
    } finally {
      await away.stop()
    }
  })
})
