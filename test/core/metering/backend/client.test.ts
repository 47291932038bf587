import { createServer } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { userId } from '../../../../core/shared/ids.ts'
import { customerKey, meters } from '../../../../core/metering/backend/catalog.ts'
import { createOpenMeterClient } from '../../../../core/metering/backend/openmeter/client.ts'
import { type FakeOpenMeter, startOpenMeter } from '../../../fakes/openmeter/openmeter.ts'

const now = (): Date => new Date('2026-03-10T12:00:00Z')
let fake: FakeOpenMeter
beforeEach(async () => {
  fake = await startOpenMeter()
})
afterEach(() => fake.stop())

const ada = userId('7c0e5b1e-5a0d-4a53-9a3c-5c8f2f6f0001')
const key = customerKey(ada)
const customer = { key, name: 'ada', clientId: 'app_0123456789abcdef01234567' }

const event = (
  id: string,
  data: Record<string, unknown> = {},
  time = '2026-09-14T10:15:30.123456Z',
): string =>
  JSON.stringify({
    specversion: '1.0',
    type: 'create_signed_ticket',
    source: 'go-livepeer-remote-signer',
    id,
    time,
    subject: key,
    data: {
      client_id: customer.clientId,
      external_user_id: 'ada',
      pipeline: 'live',
      model_id: 'm',
      manifest_id: 'x',
      network_fee_usd_micros: 1.5,
      billable_secs: 2,
      fee_wei: 7,
      ...data,
    },
  })

it('reports requests that violate the API description', async () => {
  const send = (path: string, init: RequestInit) => fetch(`${fake.urls.v1}${path}`, init)
  await send('/api/v1/meters', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"slug":"Not A Slug","aggregation":"SUM"}',
  })
  await send('/api/v1/events', {
    method: 'POST',
    headers: { 'content-type': 'text/plain' },
    body: '[]',
  })
  await send('/api/v1/customers?keys=x&page=0', {})
  await send('/api/v3/openmeter/customers?filter[subjects]=x', {})
  await send('/api/v1/nowhere', {})
  expect(fake.violations.map((line) => line.slice(0, 60))).toEqual([
    expect.stringContaining('POST /api/v1/meters: / must have required'),
    expect.stringContaining('POST /api/v1/meters: /slug must match pattern'),
    'POST /api/v1/events does not take text/plain',
    'GET /api/v1/customers knows no parameter keys',
    expect.stringContaining('GET /api/v1/customers page: / must be >= 1'),
    expect.stringContaining('GET /openmeter/customers filter: / must NOT have additional'),
    'GET /api/v1/nowhere is not in the document',
  ])
  fake.violations.length = 0
})

it('neither buffers an endless response nor treats it as an outage', async () => {
  const flood = createServer((_request, response) => {
    const chunk = Buffer.alloc(1024 * 1024, 32)
    const more = (): void => {
      if (!response.destroyed) response.write(chunk, more)
    }
    more()
  })
  await new Promise<void>((resolve) => flood.listen(0, '127.0.0.1', resolve))
  const address = flood.address()
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  const config = { url, apiKey: undefined, timeoutMs: 20_000, batchSize: 1 }
  const client = createOpenMeterClient(config, now)
  expect(await client.ingest([event('a')])).toMatchObject({
    kind: 'broken',
    why: 'answered more than 33554432 bytes',
  })
  flood.closeAllConnections()
  await new Promise((resolve) => flood.close(resolve))
})

describe.each(['v1', 'v3'] as const)('API %s', (version) => {
  const clientOf = (config = {}) =>
    createOpenMeterClient(
      { url: fake.urls[version], apiKey: 'key', timeoutMs: 2_000, batchSize: 100, ...config },
      now,
    )

  it('creates a credit and its customer once, even if responses are lost', async () => {
    const client = clientOf()
    await client.provision()
    const customer = { key: 'eu_1', name: 'ada', clientId: 'app_1' }
    const credit = {
      customer,
      id: '0198c2a4-7d1e-7b3a-9c5f-000000000001',
      amountMicros: '2500000',
      source: 'promo',
      featureKey: 'llm:x',
    }
    const grant = (more: Partial<typeof credit> = {}) =>
      client.grantCredit({ ...credit, ...more }, AbortSignal.timeout(5_000))
    fake.faults = ({ method, path }) =>
      method === 'POST' && path.endsWith('/grants') ? 'lose answer' : 'none'
    expect(await grant()).toMatchObject({ kind: 'away' })
    fake.faults = () => 'none'
    expect(await grant()).toBeNull()
    expect(await grant()).toBeNull()
    expect(fake.state.customers).toHaveLength(1)
    expect(fake.state.credits).toMatchObject([
      {
        customer: 'eu_1',
        body:
          version === 'v1'
            ? {
                amount: 2_500_000,
                effectiveAt: '2026-03-10T12:00:00.000Z',
                metadata: { credit_id: credit.id, source: 'promo', feature: 'llm:x' },
              }
            : {
                amount: '2.5',
                currency: 'USD',
                funding_method: 'none',
                key: credit.id,
                labels: { source: 'promo' },
              },
      },
    ])
    expect(await grant({ id: '0198c2a4-7d1e-7b3a-9c5f-000000000002' })).toBeNull()
    expect(fake.state.credits).toHaveLength(2)
    fake.faults = ({ path }) => (path.endsWith('/grants') ? 400 : 'none')
    expect(await grant({ id: '0198c2a4-7d1e-7b3a-9c5f-000000000003' })).toMatchObject({
      kind: 'refused',
    })
  })

  describe('subscription of a customer', () => {
    const keys = { starter: 'app_1_starter', pro: 'app_1_pro' }
    const signal = AbortSignal.timeout(30_000)
    async function sell(client: ReturnType<typeof clientOf>, planKey: string): Promise<void> {
      const plan = {
        key: planKey,
        name: planKey,
        currency: 'USD',
        cadence: 'P1M',
        flatFee: null,
        usage: [
          {
            feature: { key: 'network_spend', name: 'Network spend', filters: null },
            unitPrice: '0.000001',
            included: 5_000_000,
          },
        ],
      } as const
      const sold = await client.plans.put(plan, { id: null, save: async () => {} }, signal)
      expect(sold).toMatchObject({ id: expect.any(String) })
    }
    async function prepared() {
      const client = clientOf()
      await client.provision()
      await sell(client, keys.starter)
      await sell(client, keys.pro)
      const subscribe = (planKey: string, offer = async (_isStale: boolean) => true) =>
        client.subscribe(customer, { planKey, offer }, signal)
      return { client, subscribe }
    }
    const running = () =>
      fake.state.subscriptions
        .filter(({ status }) => status === 'active')
        .map((one) => [one.customerKey, one.plan.key])

    it('starts once, follows a plan change, and ends if the plan is not sold', async () => {
      const { subscribe } = await prepared()
      fake.faults = ({ method, path }) =>
        method === 'POST' && path.endsWith('/subscriptions') ? 'lose answer' : 'none'
      expect(await subscribe(keys.starter)).toMatchObject({ kind: 'away' })
      fake.faults = () => 'none'
      expect(await subscribe(keys.starter)).toBeNull()
      expect(fake.state.subscriptions).toHaveLength(1)
      expect(await subscribe(keys.pro)).toBeNull()
      expect(await subscribe(keys.pro)).toBeNull()
      expect(fake.state.subscriptions).toHaveLength(2)
      expect(running()).toEqual([[key, keys.pro]])
      expect(await subscribe(keys.pro, async () => false)).toBeNull()
      expect(running()).toEqual([[key, keys.pro]])
      expect(await subscribe('app_1_free', async () => false)).toBeNull()
      expect(await subscribe('app_1_free', async () => false)).toBeNull()
      expect(running()).toEqual([])
      expect(await subscribe(keys.starter)).toBeNull()
      expect(running()).toEqual([[key, keys.starter]])
    })

    it("is not confused with another customer's if the server ignores filters", async () => {
      const { client, subscribe } = await prepared()
      const other = { ...customer, key: 'eu_other' }
      const wanted = { planKey: keys.starter, offer: async () => true }
      expect(await client.subscribe(other, wanted, signal)).toBeNull()
      fake.deafToFilters = true
      expect(await subscribe(keys.starter)).toBeNull()
      expect(running()).toEqual([
        ['eu_other', keys.starter],
        [key, keys.starter],
      ])
    })

    it('stays single when two cores start or change it at the same time', async () => {
      const { subscribe } = await prepared()
      const offer = vi.fn(async () => true)
      const both = (planKey: string) =>
        Promise.all([subscribe(planKey, offer), subscribe(planKey, offer)])
      expect(await both(keys.starter)).toEqual([null, null])
      expect(await both(keys.pro)).toEqual([null, null])
      expect(running()).toEqual([[key, keys.pro]])
      expect(fake.state.subscriptions).toHaveLength(2)
    })

    it('syncs a plan that is missing in OpenMeter and retries once', async () => {
      const { client, subscribe } = await prepared()
      fake.state.plans.length = 0
      const offer = vi.fn(async (isStale: boolean) => {
        if (isStale) await sell(client, keys.pro)
        return true
      })
      expect(await subscribe(keys.pro, offer)).toBeNull()
      expect(offer.mock.calls).toEqual([[false], [true]])
      expect(running()).toEqual([[key, keys.pro]])
      const hopeless = vi.fn(async () => true)
      // The failure concerns this subscription, not the address of the server.
      expect(await subscribe('app_1_unknown', hopeless)).toMatchObject({ kind: 'refused' })
      expect(hopeless).toHaveBeenCalledTimes(2)
      expect(running()).toEqual([[key, keys.pro]])
    })

    it('allows credits before and after it', async () => {
      const { client, subscribe } = await prepared()
      const grant = (id: string) =>
        client.grantCredit(
          { customer, id, amountMicros: '1', source: 'promo', featureKey: null },
          signal,
        )
      expect(await grant('0198c2a4-7d1e-7b3a-9c5f-000000000001')).toBeNull()
      expect(await subscribe(keys.starter)).toBeNull()
      expect(await subscribe(keys.pro)).toBeNull()
      expect(await grant('0198c2a4-7d1e-7b3a-9c5f-000000000002')).toBeNull()
      expect(fake.state.credits).toHaveLength(2)
    })
  })

  it('creates meters and the feature, and finds them the next time', async () => {
    expect(await clientOf().provision()).toBeNull()
    expect(
      fake.state.meters.map((meter) => [
        meter.key,
        meter.aggregation,
        meter.valueProperty,
        Object.keys(meter.dimensions).length,
      ]),
    ).toEqual([
      ['network_fee_usd_micros', 'sum', '$.network_fee_usd_micros', 4],
      ['billable_usd_micros', 'sum', '$.billable_usd_micros', 4],
      ['signed_ticket_count', 'count', undefined, 4],
      ['fee_wei', 'sum', '$.fee_wei', 5],
      ['billable_secs', 'sum', '$.billable_secs', 5],
      ['network_fee_usd_micros_by_manifest', 'sum', '$.network_fee_usd_micros', 5],
    ])
    expect(fake.state.features).toMatchObject([
      { key: 'network_spend', meterId: fake.state.meters[0]?.id },
    ])
    fake.requests.length = 0
    expect(await clientOf().provision()).toBeNull()
    expect(fake.requests.every(({ method }) => method === 'GET')).toBe(true)
  })

  it('lets several clients prepare the same meters at once', async () => {
    expect(
      await Promise.all([clientOf(), clientOf(), clientOf()].map((client) => client.provision())),
    ).toEqual([null, null, null])
    expect(fake.state.meters).toHaveLength(meters.length)
    expect(fake.state.features).toHaveLength(1)
  })

  it('reports how an existing meter differs, and does not change it', async () => {
    await clientOf().provision()
    const [first, ...others] = fake.state.meters
    if (!first) throw new Error('no meter')
    const prepareWith = async (change: object) => {
      fake.state.meters.splice(0, meters.length, { ...first, ...change }, ...others)
      return clientOf().provision()
    }
    expect(await prepareWith({ aggregation: 'count' })).toEqual({
      kind: 'different',
      why: expect.stringContaining('its aggregation is count, not sum'),
    })
    expect(await prepareWith({ eventType: 'other' })).toMatchObject({
      kind: 'different',
      why: expect.stringContaining('counts other events'),
    })
    expect(await prepareWith({ valueProperty: '$.cost' })).toMatchObject({
      why: expect.stringContaining('it sums $.cost'),
    })
    expect(await prepareWith({ dimensions: { client_id: '$.client_id' } })).toMatchObject({
      why: expect.stringContaining('lacks the dimensions external_user_id, model_id, pipeline'),
    })
    expect(
      await prepareWith({ dimensions: { ...first.dimensions, region: '$.region' } }),
    ).toBeNull()
    expect(fake.state.meters).toHaveLength(meters.length)
  })

  it('reports a feature that counts another meter', async () => {
    await clientOf().provision()
    const [feature] = fake.state.features
    if (!feature) throw new Error('no feature')
    fake.state.features[0] = { ...feature, meterId: fake.state.meters[3]?.id ?? '' }
    expect(await clientOf().provision()).toMatchObject({
      kind: 'different',
      why: expect.stringContaining('network_spend'),
    })
  })

  it('creates a customer once, with its key as its subject', async () => {
    expect(await clientOf().ensureCustomer(customer)).toBeNull()
    expect(await clientOf().ensureCustomer({ ...customer, name: 'renamed' })).toBeNull()
    expect(fake.state.customers).toMatchObject([{ key, subjects: [key], body: { name: 'ada' } }])
    expect(fake.requests.filter(({ method }) => method === 'PUT')).toEqual([])
  })

  it('adds a missing subject to a customer, and keeps its other members', async () => {
    await clientOf().ensureCustomer(customer)
    const [one] = fake.state.customers
    if (!one) throw new Error('no customer')
    const kept =
      version === 'v1'
        ? {
            name: 'Ada L.',
            key,
            metadata: { crm: '7' },
            primaryEmail: 'ada@example.com',
            currency: 'USD',
            description: 'first',
          }
        : {
            name: 'Ada L.',
            labels: { crm: '7' },
            primary_email: 'ada@example.com',
            currency: 'USD',
            description: 'first',
          }
    one.body = kept
    one.subjects = ['older']
    expect(await clientOf().ensureCustomer(customer)).toBeNull()
    expect(fake.state.customers).toHaveLength(1)
    expect(one.subjects).toEqual(['older', key])
    expect(one.body).toMatchObject(kept)
  })

  it('finds a customer by exact key if the server ignores filters', async () => {
    await clientOf().ensureCustomer({ ...customer, key: `${key}_old` })
    fake.deafToFilters = true
    await clientOf().ensureCustomer(customer)
    await clientOf().ensureCustomer(customer)
    expect(fake.state.customers.map((one) => [one.key, one.subjects])).toEqual([
      [`${key}_old`, [`${key}_old`]],
      [key, [key]],
    ])
  })

  it('reports that another customer has the subject', async () => {
    fake.state.customers.push({
      id: '01G65Z755AFWAKHE12NY0CQ9FH',
      key: 'other',
      body: { name: 'other' },
      subjects: [key],
      createdAt: '2026-01-01T00:00:00Z',
    })
    expect(await clientOf().ensureCustomer(customer)).toMatchObject({
      kind: 'refused',
      why: expect.stringContaining('another customer'),
    })
    expect(fake.state.customers).toHaveLength(1)
  })

  it('sends events once and queries their sums by day and user', async () => {
    const client = clientOf()
    await client.provision()
    const events = [
      event('a'),
      event('b', { pipeline: 'batch' }),
      event('c', {}, '2026-09-15T00:00:00Z'),
    ]
    expect(await client.ingest(events)).toBeNull()
    expect(await client.ingest(events)).toBeNull()
    const range = { from: new Date('2026-09-14T00:00:00Z'), to: new Date('2026-09-16T00:00:00Z') }
    const rows = await client.queryMeter({
      meter: 'network_fee_usd_micros',
      clientId: customer.clientId,
      window: 'day',
      groupBy: ['subject', 'pipeline'],
      ...range,
    })
    expect(rows).toEqual([
      {
        value: 1.5,
        windowStart: '2026-09-14T00:00:00.000Z',
        windowEnd: '2026-09-15T00:00:00.000Z',
        subject: key,
        groupBy: { pipeline: 'live', client_id: customer.clientId },
      },
      {
        value: 1.5,
        windowStart: '2026-09-14T00:00:00.000Z',
        windowEnd: '2026-09-15T00:00:00.000Z',
        subject: key,
        groupBy: { pipeline: 'batch', client_id: customer.clientId },
      },
      {
        value: 1.5,
        windowStart: '2026-09-15T00:00:00.000Z',
        windowEnd: '2026-09-16T00:00:00.000Z',
        subject: key,
        groupBy: { pipeline: 'live', client_id: customer.clientId },
      },
    ])
    expect(
      await client.queryMeter({
        meter: 'signed_ticket_count',
        clientId: null,
        customerKey: key,
        groupBy: ['client_id'],
      }),
    ).toMatchObject([{ value: 3, groupBy: { client_id: customer.clientId } }])
    fake.deafToFilters = true
    expect(
      await client.queryMeter({ meter: 'signed_ticket_count', clientId: 'app_other', groupBy: [] }),
    ).toEqual([])
  })

  it('distinguishes errors of the settings, of the request and of the other system', async () => {
    const fail = async (fault: typeof fake.faults, timeoutMs = 5_000) => {
      fake.faults = fault
      return clientOf({ timeoutMs }).ingest([event('a')])
    }
    expect(await fail(() => 401)).toMatchObject({
      kind: 'misconfigured',
      why: expect.stringContaining('check OPENMETER_API_KEY'),
    })
    expect(await fail(() => 404)).toMatchObject({
      kind: 'misconfigured',
      why: expect.stringContaining('check OPENMETER_URL'),
    })
    expect(await fail(() => 400)).toMatchObject({
      kind: 'refused',
      why: 'answered 400: told to answer 400',
    })
    expect(await fail(() => 429)).toMatchObject({ kind: 'away', retryAfterMs: 0 })
    expect(await fail(() => 503)).toMatchObject({ kind: 'away' })
    expect(await fail(() => 500)).toMatchObject({ kind: 'broken' })
    expect(await fail(() => 'lose answer')).toMatchObject({ kind: 'away', status: null })
    expect(await fail(() => 'late', 100)).toMatchObject({
      kind: 'away',
      why: 'no answer within 100 ms',
    })
  })
})
