import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../../fakes/gateway-core/identity.ts'
import { type Harness, publicUrl, startHarness } from '../../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const app = `/api/v1/apps/${clientId}`
const at = '2026-01-02T03:04:05.000Z'
const userId = '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11'

describe('usage', () => {
  const totals = {
    requestCount: 3,
    currency: 'USD',
    totalFeeWei: '3000000000000000',
    totalFeeEth: '0.003',
    networkFeeUsdMicros: '9000000',
    unpricedCount: 1,
    ownerChargeWei: '3000000000000000',
    ownerChargeUsdMicros: '9000000',
    platformFeeWei: '0',
    platformFeeUsdMicros: '0',
    platformCutPercent: null,
  }
  const builder = `/api/v1/builder/apps/${clientId}/usage`

  it('returns only totals by default', async () => {
    expect((await harness.ask('GET', builder)).body).toEqual({
      clientId,
      source: 'ledger',
      period: { start: null, end: null },
      totals,
    })
  })

  it('returns the period and the requested rows', async () => {
    const { body } = await harness.ask(
      'GET',
      `${builder}?groupBy=user&startDate=2026-01-01&endDate=2026-01-31&userId=ada&include=retail`,
    )
    expect(body).toEqual({
      clientId,
      source: 'ledger',
      period: { start: '2026-01-01', end: '2026-01-31' },
      totals,
      byUser: [
        {
          endUserId: userId,
          externalUserId: 'ada',
          userType: 'system_managed',
          identifier: 'ada',
          requestCount: 2,
          currency: 'USD',
          feeWei: '2000000000000000',
          networkFeeUsdMicros: '6000000',
          ownerChargeUsdMicros: '6000000',
          platformFeeUsdMicros: '0',
        },
        {
          endUserId: 'unknown',
          externalUserId: null,
          userType: 'unknown',
          identifier: 'unknown',
          requestCount: 1,
          currency: 'USD',
          feeWei: '1000000000000000',
          networkFeeUsdMicros: '3000000',
          ownerChargeUsdMicros: '3000000',
          platformFeeUsdMicros: '0',
        },
      ],
    })
    expect(harness.core.last().request).toEqual({
      clientId,
      startDate: '2026-01-01',
      endDate: '2026-01-31',
      groupBy: 'user',
      userId: 'ada',
      gatewayRequestId: undefined,
      includeRetail: true,
    })
    const rows = (await harness.ask('GET', `${builder}?groupBy=pipeline_model`)).body[
      'byPipelineModel'
    ]
    expect(rows).toEqual([
      {
        pipeline: 'text-to-image',
        modelId: 'sdxl',
        requestCount: 3,
        currency: 'USD',
        feeWei: '3000000000000000',
        feeEth: '0.003',
        networkFeeWei: '3000000000000000',
        networkFeeEth: '0.003',
        networkFeeUsdMicros: '9000000',
        ownerChargeUsdMicros: '9000000',
        platformFeeUsdMicros: '0',
      },
    ])
  })

  const sums = {
    pipeline: 'text-to-image',
    modelId: 'sdxl',
    requestCount: 3,
    currency: 'USD',
    feeWei: '3000000000000000',
    networkFeeUsdMicros: '9000000',
    networkFeeUsdExact: '9',
    ownerChargeUsdMicros: '9000000',
    platformFeeUsdMicros: '0',
    billableSecs: '1.5',
    firstAt: at,
    lastAt: at,
  }
  const pipeline = {
    pipeline: 'text-to-image',
    modelId: 'sdxl',
    requestCount: 3,
    currency: 'USD',
    feeWei: '3000000000000000',
    feeEth: '0.003',
    networkFeeWei: '3000000000000000',
    networkFeeEth: '0.003',
    networkFeeUsdMicros: '9000000',
    ownerChargeUsdMicros: '9000000',
    platformFeeUsdMicros: '0',
  }
  it.each([
    ['daily_pipeline', 'byDailyPipeline', { date: '2026-01-02', ...pipeline }],
    ['manifest', 'byManifest', { manifestId: 'm-1', ...sums }],
    [
      'session',
      'bySession',
      { sessionId: 's-1', endUserId: userId, externalUserId: 'ada', manifestId: 'm-1', ...sums },
    ],
    [
      'day',
      'byDay',
      {
        date: '2026-01-02',
        requestCount: 3,
        currency: 'USD',
        feeWei: '3000000000000000',
        networkFeeUsdMicros: '9000000',
        ownerChargeUsdMicros: '9000000',
        platformFeeUsdMicros: '0',
      },
    ],
    [
      'hour',
      'byHour',
      {
        hour: '2026-01-02T03:00:00.000Z',
        requestCount: 3,
        currency: 'USD',
        feeWei: '3000000000000000',
        networkFeeUsdMicros: '9000000',
        ownerChargeUsdMicros: '9000000',
        platformFeeUsdMicros: '0',
      },
    ],
    ['daily_top_models', 'byDailyTopModels', { date: '2026-01-02', ...pipeline }],
    ['hourly_top_models', 'byHourlyTopModels', { hour: '2026-01-02T03:00:00.000Z', ...pipeline }],
  ])('shows rows by %s', async (groupBy, name, row) => {
    const { body } = await harness.ask('GET', `${builder}?groupBy=${groupBy}`)
    expect(Object.keys(body).sort()).toEqual(
      [name, 'clientId', 'period', 'source', 'totals'].sort(),
    )
    expect(body[name]).toEqual([row])
  })

  it('passes pipeline and model on, and rejects empty ones', async () => {
    await harness.ask('GET', `${builder}?groupBy=hour&pipeline=text-to-image&modelId=sdxl`)
    expect(harness.core.last().request).toMatchObject({
      groupBy: 'hour',
      pipeline: 'text-to-image',
      modelId: 'sdxl',
    })
    for (const name of ['pipeline', 'modelId'])
      expect((await harness.ask('GET', `${builder}?${name}=`)).status).toBe(400)
  })

  const ticket = {
    time: at,
    clientId,
    appName: 'Demo',
    endUserId: userId,
    externalUserId: 'ada',
    eventId: 'e-1',
    gatewayRequestId: 'req-9',
    pipeline: 'text-to-image',
    modelId: 'sdxl',
    manifestId: 'm-1',
    sessionId: 's-1',
    sequenceNumber: '0',
    feeWei: '1000000000',
    networkFeeUsdMicros: '3',
    networkFeeUsdExact: '0.000003',
    endUserBillableUsdMicros: '5',
    endUserBillableUsdExact: '0.0000045',
    ownerChargeUsdMicros: '4',
    platformFeeUsdExact: '0.0000003',
    platformFeeWei: '100000000',
    termsId: '7',
    priceRule: 'plan',
    ethUsdPrice: '3000',
    billableSecs: '1.5',
    pixels: '262144',
  }
  const unpriced = {
    ...ticket,
    eventId: 'e-2',
    externalUserId: null,
    networkFeeUsdMicros: null,
    networkFeeUsdExact: null,
    endUserBillableUsdMicros: null,
    endUserBillableUsdExact: null,
    ownerChargeUsdMicros: null,
    platformFeeUsdExact: null,
    platformFeeWei: null,
    termsId: null,
    priceRule: null,
    ethUsdPrice: null,
  }

  it('shows the tickets of one gateway request', async () => {
    const { body } = await harness.ask('GET', `${builder}?gatewayRequestId=req-9`)
    expect(body['events']).toEqual([ticket])
    expect(harness.core.last().request).toMatchObject({
      gatewayRequestId: 'req-9',
      includeRetail: false,
    })
  })

  it.each([
    'include=retail',
    'includeRetail=1',
    'includeRetail=true',
    'include=retail&includeRetail=false',
  ])('requests retail figures with %s', async (query) => {
    await harness.ask('GET', `${builder}?${query}`)
    expect(harness.core.last().request).toMatchObject({ includeRetail: true })
  })

  it.each([
    'include=wholesale',
    'includeRetail=yes',
    'includeRetail=',
    'gatewayRequestId=',
    'groupBy=',
    'groupBy=USER',
  ])('refuses %s', async (query) => {
    expect((await harness.ask('GET', `${builder}?${query}`)).status).toBe(400)
  })

  const history = { clientId, groupBy: 'request', openMeterConfigured: true }
  const session = {
    sessionId: 's-1',
    manifestId: 'm-1',
    clientId,
    appName: 'Demo',
    endUserId: userId,
    externalUserId: 'ada',
    pipeline: 'text-to-image',
    modelId: 'sdxl',
    requestCount: 3,
    unpricedCount: 1,
    feeWei: '3000000000',
    networkFeeUsdMicros: '9',
    networkFeeUsdExact: '0.000009',
    endUserBillableUsdMicros: '14',
    endUserBillableUsdExact: '0.0000135',
    ownerChargeUsdMicros: '10',
    platformFeeUsdExact: '0.0000009',
    platformFeeWei: '300000000',
    billableSecs: '1.5',
    pixels: '262144',
    startedAt: at,
  }

  it('lists single tickets to the app and to their user', async () => {
    const { body } = await harness.ask(
      'GET',
      `${builder}/requests?externalUserId=ada&manifestId=m-1&limit=2&cursor=c&startDate=2026-01-01`,
    )
    expect(body).toEqual({ ...history, items: [ticket, unpriced], nextCursor: 'next' })
    expect(harness.core.last()).toMatchObject({
      rpc: 'listUsageRequests',
      request: {
        clientId,
        userId: 'ada',
        manifestId: 'm-1',
        limit: 2,
        cursor: 'c',
        startDate: '2026-01-01',
        endDate: undefined,
      },
    })
    expect(
      (await harness.ask('GET', '/api/v1/user/usage/requests', { authorization: 'Bearer t' })).body,
    ).toEqual({ ...history, externalUserId: 'ada', items: [ticket] })
    expect(harness.core.last()).toMatchObject({
      rpc: 'listOwnUsageRequests',
      request: { limit: 0 },
    })
  })

  it('lists sessions, with the end of idle ones', async () => {
    expect(
      (await harness.ask('GET', `${builder}/requests?groupBy=session&userId=ada`)).body,
    ).toEqual({ ...history, groupBy: 'session', items: [{ ...session, endedAt: at }] })
    expect(
      (
        await harness.ask('GET', '/api/v1/user/usage/requests?groupBy=session', {
          authorization: 'Bearer t',
        })
      ).body,
    ).toEqual({
      ...history,
      groupBy: 'session',
      externalUserId: 'ada',
      items: [session],
      nextCursor: 'next',
    })
  })

  it.each(['0', '51', '-1', '10abc', '1.5', '', '007'])('refuses a limit of %j', async (limit) => {
    expect((await harness.ask('GET', `${builder}/requests?limit=${limit}`)).status).toBe(400)
  })

  const balance = {
    externalUserId: 'ada',
    balanceUsdMicros: '4999990',
    remainingUsdMicros: '4999980',
    consumedUsdMicros: '10',
    lifetimeGrantedUsdMicros: '5000000',
    hasAccess: true,
    featureBalances: [],
    unpricedCount: 2,
  }

  it('returns balances', async () => {
    expect((await harness.ask('GET', `${builder}/balance?externalUserId=ada`)).body).toEqual(
      balance,
    )
    expect(
      (await harness.ask('GET', '/api/v1/user/usage/balance', { authorization: 'Bearer t' })).body,
    ).toEqual(balance)
  })

  it('returns own usage by the token alone', async () => {
    const { body } = await harness.ask('GET', '/api/v1/user/usage?groupBy=none', {
      authorization: 'Bearer t',
    })
    expect(body['totals']).toEqual(totals)
    expect(harness.core.last()).toMatchObject({
      rpc: 'queryOwnUsage',
      request: { groupBy: 'none' },
    })
  })

  it.each(['', '/balance'])(
    'marks the old path of usage%s as deprecated, even when it refuses',
    async (path) => {
      const link = `<${publicUrl}/api/v1/builder/apps/${clientId}/usage${path}>; rel="successor-version"`
      const query = '?externalUserId=ada'
      const old = await harness.ask('GET', `${app}/usage${path}${query}`)
      const current = await harness.ask('GET', `${builder}${path}${query}`)
      expect(old.body).toEqual(current.body)
      expect([old.headers.get('deprecation'), old.headers.get('link')]).toEqual(['true', link])
      expect([current.headers.get('deprecation'), current.headers.get('link')]).toEqual([
        null,
        null,
      ])
      harness.core.refuse(path ? 'getBalance' : 'queryUsage', 'NOT_FOUND')
      expect(
        (await harness.ask('GET', `${app}/usage${path}${query}`)).headers.get('deprecation'),
      ).toBe('true')
    },
  )
})
