import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
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

/** The tests use 3000 USD per ETH, and the date is March 10th. */
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

/** The owner becomes an end user with the M2M client's first signer token. */
async function makeOwnerUser(app: RealApp): Promise<void> {
  const { status } = await fetch(`${real.url}/api/v1/oidc/token`, {
    method: 'POST',
    headers: { authorization: app.basic },
    body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'sign:job' }),
  })
  expect(status).toBe(200)
}
async function usageOf(app: RealApp) {
  const { body } = await summaryOf(app)
  return asRecord(asRecord(body['cycle'])['usage'])
}

describe('billing summary', () => {
  it('covers the UTC month, with every day, when the owner has no subscription', async () => {
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
  ])('of $totalFeeWei wei at a cut of 10 % matches the vectors', async (usage) => {
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

  it('has days that sum to the totals, which match the usage route', async () => {
    const app = await real.newApp('adds-up')
    await cut(app, '12.5')
    await use(app, [
      { fee: '1000000000000001', at: '2026-03-01T00:00:00Z', pixels: 3 },
      { fee: '2000000000000003', at: '2026-03-09T23:59:59.999Z', pixels: 4 },
      { fee: '5', at: '2026-03-10T00:00:00Z' },
      // In the previous month.
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

  it("has the owner's period, plan and overage when the owner is subscribed", async () => {
    const app = await real.newApp('owned')
    const { rows } = await real.core.sql.query<{ app: string }>(
      `select c.app_id as app from clients c
       join members m on m.app_id = c.app_id and m.role = 'owner' where c.client_id = $1`,
      [app.clientId],
    )
    const [owner] = rows
    await makeOwnerUser(app)
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
    // The plan starts with the next period.
    real.core.clock.set(new Date('2026-04-12T00:00:00Z'))
    await use(app, [{ fee: '1', at: '2026-04-12T00:00:00Z', pixels: 108_300 }])
    const { body } = await summaryOf(app)
    real.core.clock.set(new Date('2026-05-01T00:00:00Z'))
    const statement = await fetch(
      `${real.url}/api/v1/apps/${app.clientId}/billing/statements/2026-04`,
      { headers: { authorization: app.basic } },
    )
    expect(await statement.json()).toMatchObject({
      plan: { name: 'Team' },
      cycle: { overage: { overageUnits: '8300', overageWei: '8300000000000000' } },
    })
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

  it("has the owner's period even when their subscription is missing", async () => {
    const app = await real.newApp('lost')
    await makeOwnerUser(app)
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

  it('accepts no query parameters', async () => {
    const app = await real.newApp('query')
    const { status, body } = await summaryOf(app, '?month=2026-01')
    expect([status, body['detail']]).toEqual([
      400,
      'unknown query parameter month; this route has no parameters',
    ])
  })

  it('returns 404 to every caller without access', async () => {
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
    // An invalid query is not reported to them either.
    for (const headers of [{}, wrongSecret])
      expect((await fetch(`${url(mine.clientId)}?x=1`, { headers })).status).toBe(404)
    expect(await status('app_000000000000000000000000', { authorization: mine.basic })).toBe(404)
    expect(await status(mine.m2mClientId, { authorization: mine.basic })).toBe(404)
    expect(await status(mine.clientId, mine.session)).toBe(200)
  })
})

describe('monthly statement', () => {
  const ask = (app: RealApp, month: string, headers: Record<string, string> = {}) =>
    fetch(`${real.url}/api/v1/apps/${app.clientId}/billing/statements/${month}`, {
      headers: { authorization: app.basic, ...headers },
    })
  const statementOf = async (app: RealApp, month: string) => {
    const response = await ask(app, month)
    return { status: response.status, body: asRecord(await response.json()) }
  }
  afterEach(() => real.core.clock.set(new Date(now)))

  it('has the figures of the billing summary, and days that sum to them', async () => {
    const app = await real.newApp('statement')
    await cut(app, '12.5')
    await use(app, [
      { fee: '1000000000000001', at: '2026-03-01T00:00:00Z', pixels: 3 },
      { fee: '2000000000000003', at: '2026-03-09T23:59:59.999Z', pixels: 4 },
      { fee: '5', at: '2026-03-10T00:00:00Z' },
      { fee: '7', at: '2026-02-28T23:59:59.999Z' },
    ])
    const summary = (await summaryOf(app)).body
    real.core.clock.set(new Date('2026-04-01T00:00:00Z'))
    const { status, body } = await statementOf(app, '2026-03')
    const { timeline, ...cycle } = asRecord(summary['cycle'])
    expect([status, body]).toEqual([
      200,
      {
        clientId: app.clientId,
        month: '2026-03',
        plan: null,
        cycle: { ...cycle, timeline: expect.any(Array) },
        platformCutPercent: 12.5,
      },
    ])
    const days = asRecord(body['cycle'])['timeline'] as Record<string, string | number>[]
    expect(days.map(({ date, requestCount, feeWei }) => ({ date, requestCount, feeWei }))).toEqual(
      timeline,
    )
    const usage = asRecord(cycle['usage'])
    for (const name of Object.keys(usage).filter((each) => !each.startsWith('totalFee')))
      expect([name, days.reduce((sum, day) => sum + BigInt(day[name] ?? 0), 0n)]).toEqual([
        name,
        BigInt(String(usage[name])),
      ])
    // A ticket from before the app's creation is still in its month's statement.
    expect(asRecord((await statementOf(app, '2026-02')).body['cycle'])['usage']).toMatchObject({
      requestCount: 1,
      totalFeeWei: '7',
    })
  })

  it('is a table for callers that accept CSV, without spreadsheet formulas', async () => {
    const app = await real.newApp('csv')
    await use(app, [{ fee: '1000000000000001', at: '2026-02-03T00:00:00Z', pixels: 3 }])
    const json = asRecord((await statementOf(app, '2026-02')).body['cycle'])
    const response = await ask(app, '2026-02', { accept: 'text/csv' })
    expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8')
    expect(response.headers.get('vary')).toBe('Origin, Accept')
    expect(response.headers.get('content-disposition')).toBe(
      'attachment; filename="statement-2026-02.csv"',
    )
    const rows = (await response.text()).split('\n').map((line) => line.split(','))
    const [names = [], ...lines] = rows.slice(0, -1)
    expect(lines).toHaveLength(29)
    for (const cell of lines.flat()) expect(cell).toMatch(/^(\d[\d.-]*|total)$/)
    const total = Object.fromEntries(names.map((name, i) => [name, lines.at(-1)?.[i]]))
    const { totalFeeWei: feeWei, totalFeeEth: _, ...usage } = asRecord(json['usage'])
    const texts = Object.entries(usage).map(([name, value]) => [name, String(value)])
    expect(total).toEqual({ date: 'total', feeWei, ...Object.fromEntries(texts) })
    for (const accept of ['*/*', 'application/json, text/csv;q=0.9', 'text/html'])
      expect((await ask(app, '2026-02', { accept })).headers.get('content-type')).toMatch(/json/)
  })

  it('refuses current and future months, months before the app, and other callers', async () => {
    const app = await real.newApp('refused')
    const other = await real.newApp('stranger')
    const refusals: [string, number, string][] = [
      ['2026-03', 409, '2026-03 has not ended; its statement is available from 2026-04-01'],
      ['2030-01', 409, '2030-01 has not ended'],
      ['2026-02', 404, 'there is no statement of 2026-02: the app was created on 2026-03-10'],
      ['2026-13', 400, 'month must be a UTC month as YYYY-MM, such as 2026-03'],
      ['2026-3', 400, 'month must be'],
      ['1926-03', 400, 'month must be'],
    ]
    for (const [month, status, detail] of refusals) {
      const refused = await statementOf(app, month)
      expect([refused.status, refused.body['detail']]).toEqual([
        status,
        expect.stringContaining(detail),
      ])
    }
    expect((await ask(app, '2026-02?x=1')).status).toBe(400)
    real.core.clock.set(new Date('2026-04-02T00:00:00Z'))
    expect((await ask(app, '2026-03')).status).toBe(200)
    for (const authorization of [other.basic, 'Bearer nonsense', app.basic.slice(0, -6), 'a b c'])
      expect((await ask(app, '2026-03', { authorization })).status).toBe(404)
    real.core.clock.set(new Date(now))
    await use(app, [{ fee: '1', at: '2026-02-03T00:00:00Z' }])
    const url = `${real.url}/api/v1/apps/${app.clientId}/billing/statements/2026-02`
    expect((await fetch(url)).status).toBe(404)
    expect((await fetch(url, { headers: app.session })).status).toBe(200)
    expect((await fetch(url, { headers: other.session })).status).toBe(404)
  })
})

describe('page of a statement', () => {
  const open = async (app: RealApp, month: string, headers: Readonly<Record<string, string>>) => {
    const response = await fetch(`${real.url}/apps/${app.clientId}/billing/statements/${month}`, {
      headers: { accept: 'text/html', ...headers },
      redirect: 'manual',
    })
    return { response, text: await response.text() }
  }

  it('has the days with tickets and their sums, for members', async () => {
    const app = await real.newApp('print')
    await cut(app, '12.5')
    await use(app, [
      { fee: '1000000000000000', at: '2026-02-03T00:00:00Z' },
      { fee: '2000000000000000', at: '2026-02-28T23:59:59.999Z' },
    ])
    const { response, text } = await open(app, '2026-02', app.session)
    expect(response.status).toBe(200)
    expect(text).toContain('<h1>Statement 2026-02</h1>')
    expect(text).toContain(`print<small>${app.clientId}</small>`)
    const rows = [...text.matchAll(/<tr><t[dh](?! scope="col")[^>]*>(.*?)<\/tr>/g)].map(
      ([, cells = '']) => cells.split(/<[^>]+>/).filter((cell) => cell !== ''),
    )
    expect(rows).toEqual([
      ['2026-02-03', '1 ticket', '3.00', '3.375'],
      ['2026-02-28', '1 ticket', '6.00', '6.75'],
      ['Total, 2 tickets', '9.00', '10.125'],
    ])
  })

  it('leads strangers to the login, and explains every refusal', async () => {
    const app = await real.newApp('strange')
    const other = await real.newApp('other')
    const { response } = await open(app, '2026-02', {})
    expect([response.status, response.headers.get('location')]).toEqual([
      303,
      `/login?return_to=${encodeURIComponent(`/apps/${app.clientId}/billing/statements/2026-02`)}`,
    ])
    for (const [month, status, detail] of [
      ['2026-03', 409, 'has not ended'],
      ['2026-02', 404, 'is no statement of 2026-02'],
      ['2026-13', 400, 'must be a UTC month'],
    ] as const) {
      const refused = await open(app, month, app.session)
      expect([refused.response.status, refused.text.includes(detail)]).toEqual([status, true])
    }
    expect((await open(app, '2026-02', other.session)).response.status).toBe(404)
  })
})

describe('without a metering backend', () => {
  it('returns 503, after 404', async () => {
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
