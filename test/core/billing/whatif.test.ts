import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createWhatIf } from '../../../core/billing/whatif/whatif.ts'
import type { WhatIfAnswer } from '../../../core/billing/whatif/whatif.ts'
import { simulateLedger } from '../../../core/balances/ledger/trial.ts'
import { createDiscovery } from '../../../core/plans/catalog/discovery.ts'
import { createOffers } from '../../../core/plans/offers/service.ts'
import { tx } from '../../../core/lib/sql.ts'
import { type World, createWorld, envelope, recordRate } from '../metering/harness.ts'

let world: World
const begin = async (): Promise<void> => {
  world = await createWorld()
}
const end = () => world.stop()

const pipelines = ['live', 'image']

function createTrying() {
  const now = () => world.clock.at
  const { pool } = world
  const discovery = createDiscovery({ pipelines, url: null, now })
  const offers = createOffers({
    pool,
    discovery,
    selling: { require: async () => {}, requireThreshold: async () => {} },
    countSubscribers: async () => 0,
    onStarterChange: async () => {},
    now,
  })
  return createWhatIf({ pool, drafts: offers.drafts, simulateLedger, now })
}

const day = { from: '2026-09-14', to: '2026-09-15' }
const tryPlans = (
  request: object,
  { limitSeconds = 60 }: { limitSeconds?: number } = {},
): Promise<WhatIfAnswer> =>
  createTrying().simulatePlans(world.app.id, JSON.stringify({ ...day, ...request }), {
    limitSeconds,
    signal: new AbortController().signal,
  })

let sequence = 0
interface Use {
  readonly user?: string
  readonly fee?: bigint
  readonly pipeline?: string
  readonly model?: string
  readonly at?: string
}
const usd = 10n ** 18n
/** Wei for a dollar at 3,000 USD per ETH, rounded down. Worth slightly less than a dollar. */
const dollarWei = usd / 3_000n
const dollar = dollarWei * 3_000n
const ticket = ({ user = 'ada', fee = 10n ** 12n, pipeline = 'live', model = 'm', at }: Use = {}) =>
  envelope({
    auth_id: `${world.app.clientId}:${user}`,
    computed_fee: String(fee),
    sequence_number: sequence++,
    pipeline,
    model_id: model,
    ...(at === undefined ? {} : { current_time: at, current_time_unix: Date.parse(at) }),
  })
const book = (uses: readonly Use[], fixed = true) =>
  world.metering({ fixed }).ingestEvents(uses.map(ticket))

interface Terms {
  readonly rate: string | null
  readonly bundles: readonly (readonly [pipeline: string, model: string, rate: string | null])[]
}

/** Inserts the next version of Starter before any user exists, so that all users start with it. */
async function setStarter({ rate, bundles }: Terms): Promise<void> {
  const { rows } = await world.pool.query<{ plan_id: string; version: number }>(
    `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                billing_cycle, created_at)
     select app_id, plan_id, version + 1, type, price_amount, price_currency, included_attos, $2, billing_cycle, $3
     from plan_versions
     where plan_id = (select id from plans where app_id = $1 and is_starter_default)
     order by version desc limit 1
     returning plan_id, version`,
    [world.app.id, rate, world.clock.at],
  )
  const [row] = rows
  for (const [position, [pipeline, model, price]] of bundles.entries())
    await world.pool.query(
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
       values ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [world.app.id, row?.plan_id, row?.version, randomUUID(), position, pipeline, model, price],
    )
}

/** A draft with the same terms. */
const same = ({ rate, bundles }: Terms, included = '5000000') => ({
  name: 'Same',
  type: 'usage',
  includedUsdMicros: included,
  overageRateUsd: rate,
  capabilities: bundles.map(([pipeline, modelId, retailRateUsd]) => ({
    pipeline,
    modelId,
    retailRateUsd,
  })),
})

/** Reads every row of every table. */
async function everything(): Promise<Record<string, unknown>> {
  const { rows } = await world.pool.query<{ name: string }>(
    `select c.relname as name from pg_class c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace order by 1`,
  )
  const tables: Record<string, unknown> = {}
  for (const { name } of rows) {
    const { rows: all } = await world.pool.query<{ row: string }>(
      `select t::text || t.xmin::text as row from "${name}" t order by 1`,
    )
    tables[name] = all.map(({ row }) => row)
  }
  return tables
}

/** Sums the stored figures of the app, in atto-dollars. */
async function booked() {
  const { rows } = await world.pool.query<Record<string, string>>(
    `select count(*)::text as tickets, sum(cost_attos) as cost, sum(coalesce(retail_attos, cost_attos)) as retail,
            coalesce(sum(platform_fee_attos), 0) as fee,
            (select sum(overage_attos) from balances) as overage,
            (select sum(remaining_attos) from grants where kind = 'included') as unused
     from tickets`,
  )
  return rows[0]
}

const rates = ['0', '0.0000015', '0.000001', '0.000000333333333333', '0.000000000000000001', null]
const anyRate = fc.constantFrom(...rates)
const anyTerms = fc.record({
  rate: anyRate,
  bundles: fc.uniqueArray(
    fc.tuple(fc.constantFrom(...pipelines), fc.constantFrom('*', 'm', 'n'), anyRate),
    { selector: ([pipeline, model]) => `${pipeline} ${model}`, maxLength: 4 },
  ),
})
const anyUse = fc.record({
  user: fc.constantFrom('ada', 'bob', 'cyd'),
  fee: fc.bigInt({ min: 1n, max: 10n ** 15n }),
  pipeline: fc.constantFrom(...pipelines),
  model: fc.constantFrom('m', 'n', 'o'),
})

describe('what-if', () => {
  beforeEach(begin)
  afterEach(end)

  it('matches the booked figures to the atto when drafts equal the current plans', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyTerms,
        fc.array(anyUse, { minLength: 1, maxLength: 40 }),
        async (terms, uses) => {
          await world.stop()
          world = await createWorld()
          await recordRate(world.pool, '2026-09-14T10:15:00Z', 3123.4567)
          await setStarter(terms)
          await book(uses, false)
          const answer = await tryPlans({ plans: [same(terms)] })
          const { total, plans } = answer
          const of = await booked()
          expect({
            tickets: String(total.tickets),
            cost: String(total.cost),
            retail: String(total.whatIf.revenue),
            fee: String(total.platformFee),
            overage: String(total.whatIf.overage),
            unused: String(total.whatIf.unused),
          }).toEqual(of)
          expect(total.whatIf).toEqual(total.today)
          expect(total.same).toBe(new Set(uses.map(({ user }) => user)).size)
          expect(plans.map(({ plan, users }) => [plan, users])).toEqual([['Same', total.users]])
        },
      ),
      { numRuns: 6 },
    )
  })

  it('writes nothing, in a read-only transaction', async () => {
    await book([{}, { user: 'bob' }])
    const before = await everything()
    await tryPlans({ plans: [same({ rate: '0.000002', bundles: [['image', '*', '0']] })] })
    expect(await everything()).toEqual(before)
    const { readOnly } = await import('../../../core/billing/whatif/store.ts')
    await expect(
      tx(world.pool, async (db) => {
        await readOnly(db, 1_000)
        await db.query(`update apps set name = 'other'`)
      }),
    ).rejects.toThrow(/read-only/)
  })

  it('counts users who would pay more, less and the same, by plan', async () => {
    await book([{}, { user: 'bob' }, { user: 'cyd' }, { user: 'dee' }])
    const answer = await tryPlans({
      plans: [
        { name: 'Dear', overageRateUsd: '0.000002' },
        { name: 'Cheap', overageRateUsd: '0.0000005' },
      ],
      assign: { default: 'Cheap', plans: { Starter: 'Dear' }, users: { bob: 'Cheap', cyd: null } },
    })
    const cost = 3_000_000_000_000_000n
    expect(
      answer.plans.map(
        ({ plan, isDraft, users, more, less, same: equal, whatIf: { revenue } }) => ({
          plan,
          isDraft,
          users,
          pay: [more, less, equal],
          revenue,
        }),
      ),
    ).toEqual([
      { plan: 'Dear', isDraft: true, users: 2, pay: [2, 0, 0], revenue: 4n * cost },
      { plan: 'Cheap', isDraft: true, users: 1, pay: [0, 1, 0], revenue: cost / 2n },
      { plan: 'Starter', isDraft: false, users: 1, pay: [0, 0, 1], revenue: cost },
    ])
    expect(answer.total).toMatchObject({ users: 4, more: 2, less: 1, same: 1, cost: 4n * cost })
    expect(answer.total.today.revenue).toBe(4n * cost)
  })

  it('reports when users run out of money, and unused included usage', async () => {
    const fee = dollarWei
    const at = (minute: number) => `2026-09-14T10:0${minute}:00Z`
    await book([
      { fee, at: at(1) },
      { fee, at: at(2) },
      { fee, at: at(3) },
      { fee, user: 'bob', at: at(4) },
    ])
    const { total, runOuts } = await tryPlans({
      plans: [{ name: 'Small', type: 'usage', includedUsdMicros: '2000000' }],
    })
    expect(runOuts).toEqual([
      { externalUserId: 'ada', plan: 'Small', at: new Date(at(3)), todayAt: null },
    ])
    expect(total.whatIf).toMatchObject({ usersRunOut: 1, included: 4n * usd })
    expect(total.today).toMatchObject({ usersRunOut: 0, included: 10n * usd, overage: 0n })
    expect(total.whatIf.overage).toBe(3n * dollar - 2n * usd)
    expect(total.whatIf.unused).toBe(2n * usd - dollar)
  })

  it('grants the included usage of a draft in each period', async () => {
    const fee = dollarWei
    world.clock.at = new Date('2026-09-14T10:20:00Z')
    await book([{ fee }, { fee }])
    world.clock.at = new Date('2026-09-17T10:15:00Z')
    await recordRate(world.pool, '2026-09-17T10:09:00Z')
    await book([{ fee, at: '2026-09-17T10:10:00Z' }])
    const { total, runOuts } = await tryPlans({
      to: '2026-09-20',
      plans: [{ name: 'Daily', billingCycle: 'daily', includedUsdMicros: '1000000' }],
    })
    expect(runOuts.map(({ externalUserId }) => externalUserId)).toEqual(['ada'])
    // Periods begin at 10:20, when the user was created: on the 14th, 15th and 16th.
    expect(total.whatIf.included).toBe(3n * usd)
    expect(total.whatIf.unused).toBe(2n * usd - dollar)
  })

  it('leaves out and counts tickets without a price', async () => {
    world.clock.at = new Date('2026-09-14T22:00:00Z')
    await recordRate(world.pool, '2026-09-14T10:15:00Z')
    await book([{}, { at: '2026-09-14T21:59:00Z' }], false)
    const { total } = await tryPlans({ plans: [{ name: 'Any' }] })
    expect([total.tickets, total.unpriced]).toEqual([2, 1])
    expect(total.whatIf.revenue).toBe(3_000_000_000_000_000n)
  })

  it('rejects a replay that takes too long and suggests a shorter range', async () => {
    await book([{}])
    await expect(
      tryPlans({ plans: [{ name: 'Any' }] }, { limitSeconds: 0.001 }),
    ).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
      message: expect.stringContaining('request a shorter range'),
    })
  })
})

// These tests write nothing, so they share a database.
describe('what-if request', () => {
  beforeAll(begin)
  afterAll(end)

  const any = { name: 'Any' }
  it.each([
    ['without a range', { from: undefined, plans: [any] }, /from is required/],
    ['with a range of more than a year', { to: '2027-09-16', plans: [any] }, /366 days/],
    ['with a range that ends before it begins', { to: '2026-09-13', plans: [any] }, /before to/],
    ['with a day that does not exist', { to: '2026-09-31', plans: [any] }, /to must be an ISO/],
    ['without plans', {}, /plans must be an array/],
    ['with an empty list of plans', { plans: [] }, /1 to 50/],
    ['with 51 plans', { plans: Array.from({ length: 51 }, () => any) }, /1 to 50/],
    ['with an unknown field', { plans: [any], dryRun: true }, /unknown field dryRun/],
    ['with an invalid plan', { plans: [any, { name: '' }] }, /plans\[1\]: name/],
    [
      'with a capability that is not in the catalogue',
      { plans: [same({ rate: null, bundles: [['x', 'y', '0']] })] },
      /plans\[0\].*x:y/,
    ],
    [
      'with a rate that is not a decimal',
      { plans: [{ ...any, overageRateUsd: '1e-7' }] },
      /plans\[0\]: overageRateUsd/,
    ],
    ['with two plans of the same name', { plans: [any, any], assign: {} }, /same name/],
    ['with two plans and no assignment', { plans: [any, { name: 'B' }] }, /assign is required/],
    [
      'with an unknown default plan',
      { plans: [any], assign: { default: 'B' } },
      /assign.default names "B"/,
    ],
    [
      'with an assignment of an unknown plan',
      { plans: [any], assign: { plans: { B: 'Any' } } },
      /not a plan of the app/,
    ],
    [
      'with an assignment of an unknown user',
      { plans: [any], assign: { users: { zoe: 'Any' } } },
      /not a user of the app/,
    ],
  ])('is rejected %s', async (_, request, message) => {
    await expect(tryPlans(request)).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
      message: expect.stringMatching(message),
    })
  })

  it('is rejected while another what-if of the app runs', async () => {
    const { takeTurn } = await import('../../../core/billing/whatif/store.ts')
    await tx(world.pool, async (db) => {
      expect(await takeTurn(db, world.app.id)).toBe(true)
      await expect(tryPlans({ plans: [any] })).rejects.toMatchObject({ reason: 'CONFLICT' })
    })
    expect((await tryPlans({ plans: [any] })).total.users).toBe(0)
  })
})
