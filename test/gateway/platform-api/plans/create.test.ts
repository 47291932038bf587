import { describe, expect, it } from 'vitest'
import { logInTo } from '../../../support/web/people.ts'
import { startConsole } from '../../console.ts'
import { console, app, person, setUpApp, ask } from '../support.ts'
import { create, list, planOf, newPlan, auditOf, sdxl, subscription } from './support.ts'

setUpApp('admin')

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
