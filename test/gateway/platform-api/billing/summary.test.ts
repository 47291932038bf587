import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let operator: CoreClient
beforeAll(async () => {
  real = await startReal()
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await real.stop()
})

/** The rate of the tests is 3000 USD for one ETH, and it is March 10th. */
const now = '2026-03-10T12:00:00Z'

interface Ticket {
  readonly fee: string
  readonly at?: string
  readonly pixels?: number
}

let sessions = 0

async function use(app: RealApp, tickets: readonly Ticket[]): Promise<void> {
  const envelopes = tickets.map(({ fee, at = now, pixels = 0 }, sequence_number) =>
    envelope({
      auth_id: `${app.clientId}:ada`,
      computed_fee: fee,
      current_time: at,
      pixels,
      sequence_number,
      session_id: `session-${(sessions += 1)}`,
    }),
  )
  await real.core.as().ingestEvents({ envelopes })
}

async function cut(app: RealApp, platformCutPercent: string): Promise<void> {
  await real.core.sql.query(
    `insert into platform_cuts (app_id, since, percent, created_at)
     select app_id, '2026-01-01', $2, '2025-12-31' from clients where client_id = $1`,
    [app.clientId, platformCutPercent],
  )
}

async function summaryOf(app: RealApp, query = '') {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}/billing${query}`, {
    headers: { authorization: app.basic },
  })
  return { status: response.status, body: asRecord(await response.json()) }
}
async function usageOf(app: RealApp) {
  const { body } = await summaryOf(app)
  return asRecord(asRecord(body['cycle'])['usage'])
}

describe('the billing summary', () => {
  it("of an app without an owner's subscription is that of the UTC month, with every day of it", async () => {
    const app = await real.newApp('fresh')
    const { status, body } = await summaryOf(app)
    expect(status).toBe(200)
    const cycle = asRecord(body['cycle'])
    const timeline = cycle['timeline']
    expect(body).toMatchObject({
      clientId: app.clientId,
      plan: {
        type: 'usage',
        name: 'Starter',
        priceAmount: '0',
        priceCurrency: 'USD',
        includedUnits: null,
        includedUsdMicros: '5000000',
        overageRateWei: null,
        billingCycle: 'monthly',
        status: 'active',
      },
      subscription: null,
      platformCutPercent: null,
    })
    expect(cycle).toMatchObject({
      periodStart: '2026-03-01T00:00:00.000Z',
      periodEnd: '2026-03-31T23:59:59.999Z',
      usage: {
        requestCount: 0,
        totalFeeWei: '0',
        totalFeeEth: '0',
        networkFeeUsdMicros: '0',
        ownerChargeWei: '0',
        ownerChargeUsdMicros: '0',
        platformFeeWei: '0',
        totalUnits: '0',
      },
      overage: { overageUnits: '0', overageWei: '0' },
    })
    expect(timeline).toHaveLength(31)
    expect(timeline).toEqual(
      Array.from({ length: 31 }, (_, i) => ({
        date: `2026-03-${String(i + 1).padStart(2, '0')}`,
        requestCount: 0,
        feeWei: '0',
      })),
    )
  })

  it.each([
    {
      totalFeeWei: '8420000000000000',
      totalFeeEth: '0.00842',
      networkFeeUsdMicros: '25260000',
      platformFeeWei: '842000000000000',
      ownerChargeWei: '9262000000000000',
      ownerChargeUsdMicros: '27786000',
    },
    {
      totalFeeWei: '128750000000000000',
      totalFeeEth: '0.12875',
      networkFeeUsdMicros: '386250000',
      platformFeeWei: '12875000000000000',
      ownerChargeWei: '141625000000000000',
      ownerChargeUsdMicros: '424875000',
    },
  ])('of $totalFeeWei wei at a cut of 10 % is that of the vectors', async (usage) => {
    const app = await real.newApp(`vector-${usage.totalFeeWei}`)
    await cut(app, '10')
    await use(app, [{ fee: usage.totalFeeWei }])
    expect(await usageOf(app)).toMatchObject({ ...usage, requestCount: 1 })
    expect((await summaryOf(app)).body['platformCutPercent']).toBe(10)
  })

  it.each([
    ['1', '0', '1'],
    ['7', '1', '8'],
    ['9007199254740993', '1351079888211148', '10358279142952141'],
  ])('of %s wei at a cut of 15 %% is exact', async (fee, platformFeeWei, ownerChargeWei) => {
    const app = await real.newApp(`exact-${fee}`)
    await cut(app, '15')
    await use(app, [{ fee }])
    expect(await usageOf(app)).toMatchObject({ totalFeeWei: fee, platformFeeWei, ownerChargeWei })
  })

  it('rounds once: a thousand tickets of one wei are one micro', async () => {
    const app = await real.newApp('thousand')
    await use(
      app,
      Array.from({ length: 1_000 }, () => ({ fee: '1' })),
    )
    expect(await usageOf(app)).toMatchObject({
      requestCount: 1_000,
      totalFeeWei: '1000',
      networkFeeUsdMicros: '1',
      ownerChargeUsdMicros: '1',
    })
  })

  it('adds up: days to the totals, and to the totals of the usage route', async () => {
    const app = await real.newApp('adds-up')
    await cut(app, '12.5')
    await use(app, [
      { fee: '1000000000000001', at: '2026-03-01T00:00:00Z', pixels: 3 },
      { fee: '2000000000000003', at: '2026-03-09T23:59:59.999Z', pixels: 4 },
      { fee: '5', at: '2026-03-10T00:00:00Z' },
      // Of the month before.
      { fee: '900', at: '2026-02-28T23:59:59.999Z', pixels: 100 },
    ])
    const { body } = await summaryOf(app)
    const cycle = asRecord(body['cycle'])
    const usage = asRecord(cycle['usage'])
    const days = cycle['timeline'] as { date: string; requestCount: number; feeWei: string }[]
    expect(days.filter(({ requestCount }) => requestCount > 0)).toEqual([
      { date: '2026-03-01', requestCount: 1, feeWei: '1000000000000001' },
      { date: '2026-03-09', requestCount: 1, feeWei: '2000000000000003' },
      { date: '2026-03-10', requestCount: 1, feeWei: '5' },
    ])
    expect(usage).toMatchObject({
      requestCount: 3,
      totalFeeWei: '3000000000000009',
      totalUnits: '7',
    })
    const total = (value: (day: (typeof days)[number]) => bigint) =>
      days.reduce((sum, each) => sum + value(each), 0n)
    expect(total(({ requestCount }) => BigInt(requestCount))).toBe(3n)
    expect(String(total(({ feeWei }) => BigInt(feeWei)))).toBe(usage['totalFeeWei'])
    expect(BigInt(String(usage['ownerChargeWei']))).toBe(
      BigInt(String(usage['totalFeeWei'])) + BigInt(String(usage['platformFeeWei'])),
    )
    const totals = asRecord(
      asRecord(
        await (
          await fetch(
            `${real.url}/api/v1/builder/apps/${app.clientId}/usage?startDate=2026-03-01&endDate=2026-03-31`,
            { headers: { authorization: app.basic } },
          )
        ).json(),
      )['totals'],
    )
    for (const name of Object.keys(totals).filter((each) => each in usage))
      expect([name, totals[name]]).toEqual([name, usage[name]])
  })

  it("has the owner's period, plan and overage where the owner is subscribed", async () => {
    const app = await real.newApp('owned')
    const { rows } = await real.core.sql.query<{ account: string; app: string }>(
      `select m.account_id as account, c.app_id as app from clients c
       join members m on m.app_id = c.app_id and m.role = 'owner' where c.client_id = $1`,
      [app.clientId],
    )
    const [owner] = rows
    await real.core
      .as()
      .getAccess({ clientId: app.clientId, externalUserId: `owner:${owner?.account}` })
    await real.core.sql.query(
      `insert into plans (app_id, id, name, name_key, type, status, is_starter_default, is_network_default, billing_cycle,
                          created_at, updated_at)
       values ($1, '00000000-0000-4000-8000-000000000001', 'Team', 'team', 'subscription', 'active', false, false, 'monthly',
               now(), now())`,
      [owner?.app],
    )
    await real.core.sql.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos,
                                  included_units, overage_rate_wei, billing_cycle, created_at)
       values ($1, '00000000-0000-4000-8000-000000000001', 1, 'subscription', '29.00', 'USD', 20000000, 100000,
               1000000000000, 'monthly', now())`,
      [owner?.app],
    )
    await real.core.sql.query(
      `update subscriptions set plan_id = '00000000-0000-4000-8000-000000000001' where app_id = $1`,
      [owner?.app],
    )
    // The plan begins with the next period.
    real.core.clock.set(new Date('2026-04-12T00:00:00Z'))
    await use(app, [{ fee: '1', at: '2026-04-12T00:00:00Z', pixels: 108_300 }])
    const { body } = await summaryOf(app)
    real.core.clock.set(new Date(now))
    const period = {
      currentPeriodStart: '2026-04-10T12:00:00.250Z',
      currentPeriodEnd: '2026-05-10T12:00:00.249Z',
    }
    expect(body).toMatchObject({
      plan: { name: 'Team', type: 'subscription', priceAmount: '29.00', includedUnits: '100000' },
      subscription: { status: 'active', ...period },
      cycle: {
        periodStart: period.currentPeriodStart,
        periodEnd: period.currentPeriodEnd,
        usage: { totalUnits: '108300' },
        overage: { overageUnits: '8300', overageWei: '8300000000000000' },
      },
    })
    const { timeline } = asRecord(body['cycle']) as { timeline: { date: string }[] }
    expect([timeline.length, timeline[0]?.date, timeline.at(-1)?.date]).toEqual([
      31,
      '2026-04-10',
      '2026-05-10',
    ])
  })

  it("has the owner's period although their subscription is missing", async () => {
    const app = await real.newApp('lost')
    const { rows } = await real.core.sql.query<{ account: string }>(
      `select account_id as account from clients c
       join members m on m.app_id = c.app_id and m.role = 'owner' where c.client_id = $1`,
      [app.clientId],
    )
    const externalUserId = `owner:${rows[0]?.account}`
    await real.core.as().getAccess({ clientId: app.clientId, externalUserId })
    const { body: before } = await summaryOf(app)
    await real.core.sql.query(
      'delete from subscriptions s using clients c where c.app_id = s.app_id and c.client_id = $1',
      [app.clientId],
    )
    const { body } = await summaryOf(app)
    expect(body['cycle']).toEqual(before['cycle'])
    expect(body['subscription']).toMatchObject({
      status: 'active',
      currentPeriodStart: asRecord(before['subscription'])['currentPeriodStart'],
    })
  })

  it('takes no query parameters', async () => {
    const app = await real.newApp('query')
    const { status, body } = await summaryOf(app, '?month=2026-01')
    expect([status, body['detail']]).toEqual([
      400,
      'unknown query parameter month; there are none here',
    ])
  })

  it('is 404 for everybody who may not see it', async () => {
    const [mine, theirs] = [await real.newApp('mine'), await real.newApp('theirs')]
    const url = (clientId: string) => `${real.url}/api/v1/apps/${clientId}/billing`
    const status = async (clientId: string, headers: Readonly<Record<string, string>>) =>
      (await fetch(url(clientId), { headers })).status
    const wrongSecret = { authorization: mine.basic.slice(0, -6) }
    const over = { cookie: String(mine.session.cookie).replace(/.{6}$/, 'aaaaaa') }
    for (const headers of [
      {},
      wrongSecret,
      { authorization: 'Bearer nonsense' },
      { authorization: 'Digest x' },
      { authorization: 'no credential at all' },
      over,
      { authorization: theirs.basic },
      theirs.session,
    ])
      expect(await status(mine.clientId, headers)).toBe(404)
    // A wrong query is told to nobody else either.
    for (const headers of [{}, wrongSecret])
      expect((await fetch(`${url(mine.clientId)}?x=1`, { headers })).status).toBe(404)
    expect(await status('app_000000000000000000000000', { authorization: mine.basic })).toBe(404)
    expect(await status(mine.m2mClientId, { authorization: mine.basic })).toBe(404)
    expect(await status(mine.clientId, mine.session)).toBe(200)
  })
})

describe('without a metering backend', () => {
  it('is 503, after 404', async () => {
    const bare = await startReal({ METERING_BACKEND: 'none' })
    const app = await bare.newApp('bare')
    const ask = (headers: Readonly<Record<string, string>>) =>
      fetch(`${bare.url}/api/v1/apps/${app.clientId}/billing`, { headers })
    const refused = await ask({ authorization: app.basic })
    expect([refused.status, asRecord(await refused.json())['code']]).toEqual([
      503,
      'metering_not_configured',
    ])
    expect((await ask({})).status).toBe(404)
    await bare.stop()
  })
})
