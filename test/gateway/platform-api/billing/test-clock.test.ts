import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { basicOf, bearerOf, begin, serviceToken } from '../../../core/support.ts'
import { registerSecret } from '../../../support/run/secrecy.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let live: RealApp
let operator: CoreClient
beforeAll(async () => {
  real = await startReal()
  live = await real.newApp('clock')
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await real.stop()
})
beforeEach(() => real.core.clock.set(begin))

interface TestApp {
  readonly clientId: string
  readonly basic: string
}

type Headers = Readonly<Record<string, string>>

async function ask([method, path]: readonly [string, string], headers: Headers, body?: unknown) {
  const response = await fetch(`${real.url}/api/v1/apps${path}`, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

/** Creates a test app with users, for the owner of the live app. */
async function newTestApp(...users: string[]): Promise<TestApp> {
  const { status, body } = await ask(['POST', ''], live.session, { name: 'Trial', isTest: true })
  expect({ status, isTest: body['isTest'] }).toEqual({ status: 201, isTest: true })
  const clientId = String(body['clientId'])
  const secret = registerSecret(String(body['m2mClientSecret']))
  const app = { clientId, basic: basicOf(String(body['m2mClientId']), secret) }
  for (const externalUserId of users)
    await real.core.as(app.basic).upsertUser({ clientId, externalUserId })
  // So that no other period starts at the same time as their first.
  if (users.length > 0) real.core.clock.advance(1_000)
  return app
}

const as = ({ basic }: TestApp): Headers => ({ authorization: basic })
const clockOf = (app: TestApp) => ask(['GET', `/${app.clientId}/test-clock`], as(app))
const move = (app: TestApp, body: unknown, headers = as(app)) =>
  ask(['POST', `/${app.clientId}/test-clock`], headers, body)

async function moved(app: TestApp, to: string) {
  const { status, body } = await move(app, { to })
  expect({ status, pending: body['pending'], to: body['to'] }).toEqual({
    status: 200,
    pending: false,
    to: new Date(to).toISOString(),
  })
  return asRecord(body['effects'])
}

async function newPlan(app: TestApp, name: string, billingCycle: string): Promise<string> {
  const units = { includedUnits: '1', overageRateWei: '1' }
  const terms = { type: 'subscription', billingCycle, includedUsdMicros: '7000000', ...units }
  const plan = { name, ...terms, status: 'active' }
  const { status, body } = await ask(['POST', `/${app.clientId}/plans`], live.session, plan)
  expect({ status, body }).toMatchObject({ status: 201 })
  return String(body['id'])
}

async function change(app: TestApp, user: string, planId: string) {
  const path = `/${app.clientId}/users/${user}/subscription/change`
  const { status, body } = await ask(['POST', path], as(app), { planId, timing: 'immediate' })
  expect({ status, body }).toMatchObject({ status: 200 })
}

async function periodOf(app: TestApp, user: string) {
  const { body } = await ask(['GET', `/${app.clientId}/users/${user}/subscription`], as(app))
  const { planId, currentPeriodStart, currentPeriodEnd } = asRecord(body['subscription'])
  return { planId, currentPeriodStart, currentPeriodEnd }
}

/** Signs a ticket of 0.001 ETH, which is 3 USD, at the real time. */
async function use(app: TestApp, user: string, at = real.core.clock.now()): Promise<void> {
  const ticket = {
    auth_id: `${app.clientId}:${user}`,
    computed_fee: '1000000000000000',
    current_time: at.toISOString(),
    session_id: randomUUID(),
  }
  await real.core.as().ingestEvents({ envelopes: [envelope(ticket)] })
}

async function balanceOf(app: TestApp, user: string, asOf?: string) {
  const request = { clientId: app.clientId, externalUserId: user, asOf }
  const { balance } = await real.core.as(app.basic).getBalance(request)
  return { balance: balance?.balanceUsdMicros, consumed: balance?.consumedUsdMicros }
}

/** Returns the user's own usage from the builder API. */
async function meterOf({ clientId, basic }: TestApp, externalUserId: string): Promise<unknown> {
  const user = { clientId, externalUserId }
  const { accessToken } = await real.core.as(basic).mintUserToken(user)
  const url = `${real.builderUrl}/api/v1/apps/${clientId}/usage?meter=signed_ticket_count`
  const response = await fetch(url, { headers: { authorization: bearerOf(accessToken) } })
  return asRecord(await response.json())['rows']
}

async function differences(): Promise<unknown[]> {
  const all: unknown[] = []
  for await (const { difference } of operator.books.verifyBooks({ clientId: undefined }))
    if (difference) all.push(difference)
  return all
}

const clientsOf = (body: Record<string, unknown>): unknown[] =>
  Array.isArray(body['apps'])
    ? body['apps'].map(asRecord).map(({ clientId, isTest }) => ({ clientId, isTest }))
    : []

describe('test app', () => {
  it('is marked as such from its creation', async () => {
    const app = await newTestApp()
    const paths = [live, app].map(({ clientId }) => `/${clientId}`)
    const [ofLive, ofTest] = await Promise.all(
      paths.map((path) => ask(['GET', path], live.session)),
    )
    expect([ofLive?.body['isTest'], ofTest?.body['isTest']]).toEqual([false, true])
    expect(clientsOf((await ask(['GET', ''], live.session)).body)).toEqual(
      expect.arrayContaining([
        { clientId: live.clientId, isTest: false },
        { clientId: app.clientId, isTest: true },
      ]),
    )
    const change = await ask(['PUT', `/${live.clientId}`], live.session, { isTest: true })
    expect(change).toMatchObject({ status: 400 })
    await expect(real.core.sql.query('update apps set is_test = not is_test')).rejects.toThrow(
      /from its creation on, or never/,
    )
  })

  it('has a clock that shows the real time until it is moved', async () => {
    const app = await newTestApp()
    const at = begin.toISOString()
    expect(await clockOf(app)).toEqual({
      status: 200,
      body: {
        clientId: app.clientId,
        now: at,
        realNow: at,
        aheadSeconds: 0,
        latest: '2028-03-10T12:00:00.250Z',
      },
    })
    await move(app, { advanceSeconds: 90 })
    real.core.clock.advance(1_000)
    expect(await clockOf(app)).toMatchObject({
      body: { now: '2026-03-10T12:01:31.250Z', aheadSeconds: 90 },
    })
  })

  it.each([
    [{}, /exactly one/],
    [{ to: '2026-05-01T00:00:00Z', advanceSeconds: 60 }, /exactly one/],
    [{ to: 'tomorrow' }, /ISO 8601/],
    [{ to: '2026-05-01' }, /ISO 8601/],
    [{ to: begin.toISOString() }, /only moves forward/],
    [{ to: '2026-03-10T11:00:00Z' }, /only moves forward/],
    [{ to: '2027-03-12T00:00:00Z' }, /366 days at once/],
    [{ advanceSeconds: 0 }, /advanceSeconds/],
    [{ advanceSeconds: 1.5 }, /advanceSeconds/],
    [{ advanceSeconds: '60' }, /advanceSeconds/],
    [{ seconds: 60 }, /seconds/],
  ])('refuses %j', async (body, detail) => {
    const app = await newTestApp()
    const answer = await move(app, body)
    expect(answer).toMatchObject({ status: 400, body: { code: 'request_invalid' } })
    expect(JSON.stringify(answer.body)).toMatch(detail)
    expect(await clockOf(app)).toMatchObject({ body: { aheadSeconds: 0 } })
  })

  it('is at most two years ahead, and never goes back', async () => {
    const app = await newTestApp()
    await moved(app, '2027-03-10T00:00:00Z')
    await moved(app, '2028-03-10T00:00:00Z')
    expect(await move(app, { to: '2028-03-11T00:00:00Z' })).toMatchObject({ status: 400 })
    expect(await move(app, { to: '2028-03-09T00:00:00Z' })).toMatchObject({ status: 400 })
    await expect(real.core.sql.query('delete from test_clock_moves')).rejects.toThrow(
      /append-only|never/,
    )
  })

  it('is moved at most 10,000 times', async () => {
    const app = await newTestApp()
    // One move below the limit, each one second further.
    await real.core.sql.query(
      `insert into test_clock_moves (app_id, since, ahead_ms)
       select app_id, $2::timestamptz - n * interval '1 second', (10000 - n) * 1000
       from clients, generate_series(1, 9999) n
       where client_id = $1`,
      [app.clientId, begin],
    )
    expect(await move(app, { advanceSeconds: 60 })).toMatchObject({ status: 200 })
    const answer = await move(app, { advanceSeconds: 60 })
    expect(answer).toMatchObject({ status: 409, body: { code: 'conflict' } })
    expect(JSON.stringify(answer.body)).toMatch(/moved 10000 times.*create another test app/)
    expect(await clockOf(app)).toMatchObject({ body: { aheadSeconds: 10_059 } })
  })

  it('is the only kind of app with a clock, moved by its people and its M2M client', async () => {
    const path = `/${live.clientId}/test-clock`
    const m2m = { authorization: live.basic }
    const refused = { status: 409, body: { code: 'conflict' } }
    expect(await ask(['GET', path], m2m)).toMatchObject(refused)
    expect(await ask(['POST', path], m2m, { advanceSeconds: 1 })).toMatchObject(refused)
    const app = await newTestApp()
    const second = { advanceSeconds: 1 }
    expect(await move(app, second, { ...live.session })).toMatchObject({ status: 200 })
    const other = await real.newPerson()
    expect(await move(app, second, { ...other.session })).toMatchObject({ status: 404 })
    expect(await move(app, second, m2m)).toMatchObject({ status: 404 })
    expect(await move(app, second, {})).toMatchObject({ status: 404 })
    expect(await clockOf(app)).toMatchObject({ body: { aheadSeconds: 1 } })
  })

  it('applies concurrent moves one after the other', async () => {
    const app = await newTestApp('ada')
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => move(app, { advanceSeconds: 3_600 })),
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    expect(await clockOf(app)).toMatchObject({ body: { aheadSeconds: 18_000 } })
    const { rows } = await real.core.sql.query(
      `select count(*)::int as count from audit_log a join clients c using (app_id)
       where c.client_id = $1 and action = 'test_clock_advanced'`,
      [app.clientId],
    )
    expect(rows).toEqual([{ count: 5 }])
  })
})

describe('moving the clock', () => {
  it('renews daily, weekly and monthly periods over the 31st and a leap February', async () => {
    const app = await newTestApp('ada', 'bob', 'eve')
    await moved(app, '2027-01-31T09:00:00Z')
    for (const [user, cycle] of [
      ['ada', 'monthly'],
      ['bob', 'weekly'],
      ['eve', 'daily'],
    ] as const)
      await change(app, user, await newPlan(app, cycle, cycle))
    expect(await periodOf(app, 'ada')).toMatchObject({
      currentPeriodStart: '2027-01-31T09:00:00.000Z',
      currentPeriodEnd: '2027-02-28T08:59:59.999Z',
    })
    // Each user skips to the current period.
    expect(await moved(app, '2027-04-30T10:00:00Z')).toMatchObject({ periodsRenewed: 3 })
    expect(await periodOf(app, 'ada')).toMatchObject({
      currentPeriodStart: '2027-04-30T09:00:00.000Z',
      currentPeriodEnd: '2027-05-31T08:59:59.999Z',
    })
    expect(await periodOf(app, 'bob')).toMatchObject({
      currentPeriodStart: '2027-04-25T09:00:00.000Z',
      currentPeriodEnd: '2027-05-02T08:59:59.999Z',
    })
    expect(await periodOf(app, 'eve')).toMatchObject({
      currentPeriodStart: '2027-04-30T09:00:00.000Z',
      currentPeriodEnd: '2027-05-01T08:59:59.999Z',
    })
    const effects = await moved(app, '2028-02-29T09:00:00Z')
    expect(effects).toMatchObject({ periodsRenewed: 3, creditsExpired: 3, expiredUsdExact: '21' })
    expect(await periodOf(app, 'ada')).toMatchObject({
      currentPeriodStart: '2028-02-29T09:00:00.000Z',
      currentPeriodEnd: '2028-03-31T08:59:59.999Z',
    })
    expect(await differences()).toEqual([])
  })

  it('books tickets in the period of the clock, and changes no booked one', async () => {
    const app = await newTestApp('ada')
    await change(app, 'ada', await newPlan(app, 'Monthly', 'monthly'))
    await use(app, 'ada')
    expect(await balanceOf(app, 'ada')).toEqual({ balance: '4000000', consumed: '3000000' })
    const booked = await ticketsOf(app)
    await moved(app, '2026-05-15T00:00:00Z')
    expect(await balanceOf(app, 'ada')).toEqual({ balance: '7000000', consumed: '0' })
    real.core.clock.advance(1_000)
    await use(app, 'ada')
    await use(app, 'ada')
    expect(await balanceOf(app, 'ada')).toEqual({ balance: '1000000', consumed: '6000000' })
    const inMay = `/${app.clientId}/usage?startDate=2026-05-01&endDate=2026-06-01`
    expect(asRecord((await ask(['GET', inMay], as(app))).body['totals'])).toMatchObject({
      requestCount: 2,
    })
    const tickets = await ticketsOf(app)
    expect(tickets).toHaveLength(3)
    expect(tickets.slice(0, 1)).toEqual(booked)
    expect(tickets[1]).toMatchObject({
      signer: '2026-03-10T12:00:02.250Z',
      signed: '2026-05-15T00:00:01.000Z',
    })
    // The record of the past stays unchanged.
    const asOf = '2026-03-20T00:00:00Z'
    expect(await balanceOf(app, 'ada', asOf)).toEqual({ balance: '4000000', consumed: '3000000' })
    await moved(app, '2026-06-15T00:00:00Z')
    expect(await ticketsOf(app)).toEqual(tickets)
    expect(await differences()).toEqual([])
  })

  it('dates a late ticket by the clock at its signing, even from before a move', async () => {
    const app = await newTestApp('ada')
    await change(app, 'ada', await newPlan(app, 'Monthly', 'monthly'))
    const before = real.core.clock.now()
    real.core.clock.advance(60_000)
    await moved(app, '2026-05-15T00:00:00Z')
    await use(app, 'ada', before)
    expect(await ticketsOf(app)).toMatchObject([
      { signed: before.toISOString(), signer: before.toISOString() },
    ])
    // The included usage of its period has ended: it stays unpaid, and the current period is
    // untouched.
    expect(await balanceOf(app, 'ada')).toEqual({ balance: '7000000', consumed: '0' })
    expect(await differences()).toEqual([])
  })

  it('applies a scheduled successor', async () => {
    const app = await newTestApp('ada')
    const [first, second] = [
      await newPlan(app, 'First', 'weekly'),
      await newPlan(app, 'Second', 'daily'),
    ]
    await change(app, 'ada', first)
    const path = `/${app.clientId}/users/ada/subscription/change`
    const next = { planId: second, timing: 'next_billing_cycle' }
    expect(await ask(['POST', path], as(app), next)).toMatchObject({ status: 200 })
    real.core.clock.advance(1_000)
    expect(await moved(app, '2026-03-17T13:00:00Z')).toMatchObject({
      subscriptionsSwitched: 1,
      periodsRenewed: 1,
    })
    expect(await periodOf(app, 'ada')).toMatchObject({
      planId: second,
      currentPeriodStart: '2026-03-17T12:00:01.250Z',
    })
    expect(await differences()).toEqual([])
  })

  it('applies a later plan change only to later periods of the clock', async () => {
    const app = await newTestApp('ada')
    const plan = await newPlan(app, 'Weekly', 'weekly')
    await change(app, 'ada', plan)
    await moved(app, '2026-03-20T00:00:00Z')
    const raised = { id: plan, includedUsdMicros: '9000000' }
    const { status } = await ask(['PUT', `/${app.clientId}/plans`], live.session, raised)
    expect(status).toBe(200)
    expect(await balanceOf(app, 'ada')).toMatchObject({ balance: '7000000' })
    await moved(app, '2026-03-25T00:00:00Z')
    expect(await balanceOf(app, 'ada')).toMatchObject({ balance: '9000000' })
    expect(await differences()).toEqual([])
  })

  it('adds a raised Starter amount to every user, once', async () => {
    const app = await newTestApp('ada')
    await moved(app, '2026-04-20T00:00:00Z')
    const { status } = await ask(['PUT', `/${app.clientId}/starter-plan`], live.session, {
      includedUsdMicros: '8000000',
    })
    expect(status).toBe(200)
    expect(await balanceOf(app, 'ada')).toMatchObject({ balance: '8000000' })
    expect(await moved(app, '2026-04-20T02:00:00Z')).toMatchObject({ planAdjustments: 0 })
    expect(await balanceOf(app, 'ada')).toMatchObject({ balance: '8000000' })
    expect(await differences()).toEqual([])
  })

  it('ends sessions, and windows of meters, by the clock', async () => {
    const app = await newTestApp('ada')
    await moved(app, '2026-05-15T00:00:00Z')
    real.core.clock.advance(1_000)
    await use(app, 'ada')
    const sessions = async () => {
      const url = `${real.url}/api/v1/builder/apps/${app.clientId}/usage/requests`
      const query = '?groupBy=session&startDate=2026-05-01&endDate=2026-06-01'
      const { items } = asRecord(await (await fetch(url + query, { headers: as(app) })).json())
      return Array.isArray(items)
        ? items.map(asRecord).map(({ startedAt, endedAt }) => ({ startedAt, endedAt }))
        : []
    }
    const startedAt = '2026-05-15T00:00:01.000Z'
    expect(await sessions()).toEqual([{ startedAt, endedAt: undefined }])
    await moved(app, '2026-05-15T00:04:00Z')
    expect(await sessions()).toEqual([{ startedAt, endedAt: undefined }])
    // Less than a minute of real time has passed.
    await moved(app, '2026-05-15T00:06:00Z')
    expect(await sessions()).toEqual([{ startedAt, endedAt: startedAt }])
    expect(await meterOf(app, 'ada')).toMatchObject([
      { windowEnd: '2026-05-15T00:06:00.000Z', value: 1 },
    ])
  })

  it('does not affect other apps', async () => {
    const app = await newTestApp('ada')
    const before = await balanceOf(live, 'ada')
    await moved(app, '2027-03-01T00:00:00Z')
    expect(await balanceOf(live, 'ada')).toEqual(before)
    await use(live, 'ada')
    expect(await ticketsOf(live)).toMatchObject([{ clock_ms: null }])
  })

  it('verification reports a ticket dated by another clock', async () => {
    const app = await newTestApp('ada')
    await moved(app, '2026-04-01T00:00:00Z')
    real.core.clock.advance(1_000)
    await use(app, 'ada')
    const set = (change: string) =>
      real.core.sql.query(`
        begin; set local session_replication_role = replica;
        update tickets set clock_ms = clock_ms ${change} where clock_ms is not null; commit`)
    await set('+ 3600000')
    expect(JSON.stringify(await differences())).toContain('clock_ms')
    await set('- 3600000')
    expect(await differences()).toEqual([])
  })
})

async function ticketsOf(app: { readonly clientId: string }) {
  const { rows } = await real.core.sql.query<{ signed_at: Date; clock_ms: bigint | null }>(
    `select event_id, signed_at, clock_ms, retail_attos, terms_id, charge_id
     from tickets t join clients c on c.app_id = t.app_id and c.client_id = $1 order by received_at, event_id`,
    [app.clientId],
  )
  return rows.map((row) => ({
    ...row,
    signed: row.signed_at.toISOString(),
    signer: new Date(row.signed_at.getTime() - Number(row.clock_ms ?? 0)).toISOString(),
  }))
}
