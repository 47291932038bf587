import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { formatDecimal18, parseDecimal18 } from '../../../../core/lib/money.ts'
import { chainInserted } from '../../../core/plans/chain-prices.ts'
import { eventOf, tollgate } from '../../../core/books/support.ts'
import { type TestApp, serviceToken } from '../../../core/support.ts'
import { type Person, logInTo } from '../../../support/web/people.ts'
import { readEvents } from '../../../support/web/sse.ts'
import { type Console, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

/**
 * Plans and changes by HTTP, tickets by gRPC, figures by HTTP: a ticket's retail price is
 * determined once, and sums match.
 */

let console: Console
let app: TestApp
let person: Person
beforeAll(async () => {
  console = await startConsole()
  vi.stubEnv('CORE_TARGET', console.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
  app = await console.newApp({ starterUsdMicros: '0' })
  person = await logInTo(console, app, 'admin')
  await setCut('12.5')
})
afterAll(() => console.stop())

async function setCut(percent: string): Promise<void> {
  await console.sql.query(
    `insert into platform_cuts (app_id, since, percent, created_at)
     select app_id, $2::timestamptz, $3, $2::timestamptz - interval '2 minutes' from clients where client_id = $1`,
    [app.clientId, console.clock.now(), percent],
  )
  await chainInserted(console.sql)
}

const byKey = () => ({ authorization: app.basic })
const post = (path: string, json: object, by: object = { person }) =>
  console.ask('POST', `/api/v1/apps/${app.clientId}${path}`, { ...by, json })
const get = async (path: string): Promise<Record<string, unknown>> => {
  const { status, body } = await console.ask(
    'GET',
    `/api/v1/builder/apps/${app.clientId}/usage${path}`,
    byKey(),
  )
  expect(status).toBe(200)
  return body
}

interface Rates {
  readonly overageRateUsd?: string
  readonly capabilities?: readonly object[]
}

async function newPlan(rates: Rates): Promise<string> {
  const plan = { name: randomUUID(), type: 'free', includedUsdMicros: '90000', ...rates }
  const { status, body } = await post('/plans', plan)
  expect([status, body]).toEqual([201, expect.anything()])
  return String(body['id'])
}

async function newUser(planId: string): Promise<string> {
  const user = `u-${randomUUID()}`
  await console.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: user })
  const change = { planId, timing: 'immediate' }
  const { status } = await post(`/users/${user}/subscription/change`, change, byKey())
  expect(status).toBe(200)
  console.clock.advance(1_000)
  return user
}

interface Ticket {
  readonly fee: bigint
  readonly pipeline: string
  readonly model: string
}

let sequence = 0
const book = (user: string, tickets: readonly Ticket[], more: object = {}) =>
  console.as().ingestEvents({
    envelopes: tickets.map(({ fee, pipeline, model }) =>
      eventOf({
        auth_id: `${app.clientId}:${user}`,
        computed_fee: String(fee),
        current_time: console.clock.now().toISOString(),
        pipeline,
        model_id: model,
        session_id: user.slice(0, 30),
        sequence_number: sequence++,
        ...more,
      }),
    ),
  })

const scaled = (value: unknown): bigint => parseDecimal18(String(value)) ?? -1n
const items = (body: Record<string, unknown>) =>
  Array.isArray(body['items']) ? body['items'].map(asRecord) : []

/** Collects a user's charges as they arrive. */
async function follow(user: string) {
  const stopping = new AbortController()
  const { signal } = stopping
  const path = `/api/v1/builder/apps/${app.clientId}/usage/stream?userId=${user}`
  const response = await fetch(console.url + path, { headers: byKey(), signal })
  const charges: Record<string, unknown>[] = []
  const over = (async () => {
    for await (const { event, data } of readEvents(response, signal))
      if (event === 'charge' && data) charges.push(data)
  })()
  const stop = async (): Promise<void> => {
    stopping.abort()
    await over
  }
  return { charges, stop }
}

/** Returns the tickets of an export of the app, by id. */
async function exported(): Promise<Map<unknown, Record<string, unknown>>> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-retail-'))
  const file = join(folder, 'all.ndjson.gz')
  const { code } = await tollgate('export', '--app', app.clientId, '--out', file)
  expect(code).toBe(0)
  const lines = gunzipSync(await readFile(file))
    .toString('utf8')
    .trim()
    .split('\n')
  await rm(folder, { recursive: true })
  const rows = lines.map((line) => asRecord(JSON.parse(line)))
  return new Map(rows.map((row) => [row['id'], row]))
}

describe('every answer about a ticket', () => {
  it("shows its cost, its retail price with the rule, the cut and the owner's charge", async () => {
    const plan = await newPlan({
      overageRateUsd: '0.000003',
      capabilities: [{ pipeline: 'text-to-image', modelId: 'sdxl', retailRateUsd: '0.0000005' }],
    })
    const user = await newUser(plan)
    const live = await follow(user)
    await book(user, [
      { fee: 10n ** 12n, pipeline: 'text-to-image', model: 'sdxl' },
      { fee: 10n ** 12n, pipeline: 'llm', model: 'x' },
    ])
    const list = items(await get(`/requests?userId=${user}`))
    expect(list.map((item) => [item['priceRule'], item['endUserBillableUsdExact']]).sort()).toEqual(
      [
        ['bundle', '0.0015'],
        ['plan', '0.009'],
      ],
    )
    for (const item of list)
      expect(item).toMatchObject({
        networkFeeUsdExact: '0.003',
        platformFeeUsdExact: '0.000375',
        platformFeeWei: '125000000000',
        ownerChargeUsdMicros: '3375',
        termsId: expect.stringMatching(/^[0-9]+$/),
      })
    expect(new Set(list.map(({ termsId }) => termsId)).size).toBe(1)
    const { byUser } = await get(`?groupBy=user&include=retail&userId=${user}`)
    expect(byUser).toMatchObject([
      {
        networkFeeUsdMicros: '6000',
        platformFeeUsdMicros: '750',
        ownerChargeUsdMicros: '6750',
        endUserBillableUsdMicros: '10500',
      },
    ])
    await expect
      .poll(() => live.charges, { timeout: 20_000 })
      .toMatchObject([
        {
          costUsdExact: '0.0105',
          networkFeeUsdExact: '0.006',
          platformFeeUsdExact: '0.00075',
          ownerChargeUsdExact: '0.00675',
        },
      ])
    await live.stop()
  })

  it('has the same figures to the atto for any fractions in the event and its plan', async () => {
    const user = await newUser(await newPlan({ overageRateUsd: '0.000000333333333333' }))
    const live = await follow(user)
    const fee = 7_777_777_777_777_777n
    const long = `1.${'37'.repeat(85)}`
    const fractions = { billable_secs: long, cost: long, computed_fee_usd: long }
    await book(user, [{ fee, pipeline: 'llm', model: 'x' }], fractions)
    const network = fee * 3_000n
    const retail = (network * 333_333_333_333n) / 10n ** 12n
    const cut = (network * 125n) / 1_000n
    const [item = {}] = items(await get(`/requests?userId=${user}`))
    const { sale } = await get(`/requests/${item['eventId']}`)
    const line = (await exported()).get(item['eventId']) ?? {}
    const usd = formatDecimal18
    expect(item).toMatchObject({
      networkFeeUsdExact: usd(network),
      endUserBillableUsdExact: usd(retail),
      platformFeeUsdExact: usd(cut),
      platformFeeWei: String((fee * 125n) / 1_000n),
    })
    expect(sale).toMatchObject({
      networkCostUsd: usd(network),
      retailCostUsd: usd(retail),
      platformFeeUsd: usd(cut),
      ownerChargeUsd: usd(network + cut),
    })
    expect(line).toMatchObject({
      costAttos: String(network),
      retailAttos: String(retail),
      platformFeeAttos: String(cut),
      billableSecs: long.slice(0, 32),
    })
    const { totals } = await get(`?include=retail&userId=${user}`)
    const micros = (name: string) => BigInt(String(asRecord(totals)[name]))
    expect(micros('ownerChargeUsdMicros')).toBe(
      micros('networkFeeUsdMicros') + micros('platformFeeUsdMicros'),
    )
    expect(asRecord(totals)).toMatchObject({
      ownerChargeUsdMicros: item['ownerChargeUsdMicros'],
      ownerChargeWei: String(fee + (fee * 125n) / 1_000n),
    })
    await expect
      .poll(() => live.charges, { timeout: 20_000 })
      .toMatchObject([
        {
          costUsdExact: usd(retail),
          networkFeeUsdExact: usd(network),
          platformFeeUsdExact: usd(cut),
          ownerChargeUsdExact: usd(network + cut),
        },
      ])
    await live.stop()
  })

  it('omits in the stream the fields that old tickets no longer have', async () => {
    const user = await newUser(await newPlan({}))
    const live = await follow(user)
    const old = new Date(console.clock.now().getTime() - 26 * 3_600_000).toISOString()
    await console.as().ingestEvents({
      envelopes: [
        eventOf({ auth_id: `${app.clientId}:${user}`, computed_fee: '1', current_time: old }),
      ],
    })
    await expect
      .poll(() => live.charges, { timeout: 20_000 })
      .toMatchObject([
        { costUsdExact: '0.000000000000003', networkFeeUsdExact: null, ownerChargeUsdExact: null },
      ])
    await live.stop()
  })
})

/** A rate with up to eighteen decimals, as in a plan. */
const rates = fc.oneof(
  fc.constantFrom('0', '0.000001', '0.000000000000000001', '0.0000015'),
  fc.bigInt(0n, 10n ** 13n).map((rate) => formatDecimal18(rate)),
)
const features = [
  { pipeline: 'text-to-image', model: 'sdxl' },
  { pipeline: 'llm', model: 'x' },
  { pipeline: '', model: '' },
] as const
// A fee above TICKET_MAX_FEE_ETH goes to quarantine.
const fees = fc.oneof(
  fc.bigInt(0n, 10n ** 18n),
  fc.bigInt(0n, 10n ** 20n),
  fc.bigInt(0n, 10n ** 30n - 1n),
)

/** Returns a hash of all stored tickets. */
const rowsOf = async (): Promise<unknown> =>
  (
    await console.sql.query(
      'select md5(string_agg(t::text, $1 order by event_id)) as all from tickets t',
      [';'],
    )
  ).rows[0]

describe('retail', () => {
  it(
    'is the sum of its tickets to the atto, and never changes later',
    { timeout: 120_000 },
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.record({ plan: rates, ofModel: fc.option(rates), ofPipeline: fc.option(rates) }),
          fc.array(fc.record({ fee: fees, feature: fc.constantFrom(...features) }), {
            minLength: 1,
            maxLength: 6,
          }),
          async ({ plan, ofModel, ofPipeline }, calls) => {
            const capabilities = [
              ...(ofModel === null
                ? []
                : [{ pipeline: 'text-to-image', modelId: 'sdxl', retailRateUsd: ofModel }]),
              ...(ofPipeline === null
                ? []
                : [{ pipeline: 'llm', modelId: '*', retailRateUsd: ofPipeline }]),
            ]
            const planId = await newPlan({ overageRateUsd: plan, capabilities })
            const user = await newUser(planId)
            await book(
              user,
              calls.map(({ fee, feature }) => ({ fee, ...feature })),
            )

            const own = new Map([
              ['text-to-image', ofModel],
              ['llm', ofPipeline],
            ])
            const rateOf = (pipeline: string): bigint => scaled(own.get(pipeline) ?? plan)
            const list = items(await get(`/requests?userId=${user}`))
            const booked = calls.filter(({ fee }) => fee <= 10n ** 20n)
            expect(list.map(({ feeWei }) => feeWei).sort()).toEqual(
              booked.map(({ fee }) => String(fee)).sort(),
            )
            let retail = 0n
            for (const item of list) {
              const network = BigInt(String(item['feeWei'])) * scaled(item['ethUsdPrice'])
              const ratio = rateOf(String(item['pipeline'])) * 10n ** 6n
              const price = (network * ratio) / 10n ** 36n
              expect(item['endUserBillableUsdExact']).toBe(formatDecimal18(price))
              retail += price
            }
            const [stored] = (
              await console.sql.query<Record<string, string>>(
                `select b.consumed_attos::text as charged,
                      (select coalesce(sum(cost_attos + markup_attos), 0) from usage_hourly h where h.user_id = u.id)::text as hours,
                      (select coalesce(sum(cost_attos + markup_attos), 0) from ticket_sessions s where s.user_id = u.id)::text as sessions
               from end_users u join balances b on b.user_id = u.id where u.external_user_id = $1`,
                [user],
              )
            ).rows
            const text = String(retail)
            expect(stored).toEqual({ charged: text, hours: text, sessions: text })

            const before = await rowsOf()
            const { status } = await console.ask('PUT', `/api/v1/apps/${app.clientId}/plans`, {
              person,
              json: { id: planId, overageRateUsd: '0.5', capabilities: [] },
            })
            expect(status).toBe(200)
            await console.as().recordRate({
              usdPerEth: '9999',
              observedAt: console.clock.now().toISOString(),
            })
            console.clock.advance(1_000)
            expect(await rowsOf()).toEqual(before)
            expect(items(await get(`/requests?userId=${user}`))).toEqual(list)
          },
        ),
        { numRuns: 5, endOnFailure: true },
      )
      const { text } = await tollgate('verify')
      expect(text).toContain('the books are right')
    },
  )
})
