import * as fc from 'fast-check'
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { createCuts } from '../../../core/billing/cuts.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { tx } from '../../../core/lib/sql.ts'
import { newAppId, parseExternalUserId, userId } from '../../../core/shared/ids.ts'
import { planReads } from '../../../core/plans/offers/reads.ts'
import { createExplain } from '../../../core/usage/tickets/explain.ts'
import { toTicket } from '../../../core/usage/tickets/rpc.ts'
import { type World, createWorld, envelope } from '../metering/harness.ts'

let world: World
const ledger = createLedger()
beforeAll(async () => {
  world = await createWorld()
  await world.pool.query(
    `insert into platform_cuts (app_id, since, percent, created_at)
     values ($1, '2026-09-14T10:00:00Z', 12.5, '2026-09-14T09:00:00Z')`,
    [world.app.id],
  )
  await world.pool.query(
    `with version as (
       insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                  billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, price_amount, price_currency, 1000, 0.0000015, billing_cycle, created_at
       from plan_versions
       where plan_id = (select id from plans where app_id = $1 and is_starter_default)
       returning app_id, plan_id, version)
     insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
     select app_id, plan_id, version, '0192f3a0-0000-7000-8000-00000000000b', 0, 'live', 'sdxl', 0.000002 from version`,
    [world.app.id],
  )
})
afterAll(() => world.stop())

const explain = async (eventId: string, app: typeof world.app.id | null = world.app.id) => {
  const { pool } = world
  const listCuts = createCuts({ pool, now: () => world.clock.at }).list
  return toTicket(
    await createExplain({ pool, ledger, plans: planReads, listCuts }).explain(eventId, app),
  )
}

let sequence = 0
/** Books tickets of one user in one batch. Returns their event ids. */
async function book(user: string, tickets: readonly Record<string, unknown>[], fixed = true) {
  const ids = tickets.map(() => randomUUID())
  await world.metering({ fixed }).ingestEvents(
    tickets.map((data, i) =>
      envelope(
        {
          auth_id: `${world.app.clientId}:${user}`,
          session_id: `session-${user}`,
          sequence_number: sequence++,
          ...data,
        },
        { id: ids[i] },
      ),
    ),
  )
  return ids
}

/** Converts a decimal with at most 18 places to an integer, for exact checks. */
const scaled = (text: string): bigint => {
  const [whole = '', fraction = ''] = text.split('.')
  return BigInt(whole + fraction.padEnd(18, '0'))
}

async function grant(user: string, featureKey: string | null, amount: bigint): Promise<string> {
  const { user: of } = await world.users.upsert(
    world.app.id,
    { externalUserId: parseExternalUserId(user) },
    { name: 'test' },
  )
  return tx(world.pool, async (db) => {
    const [account] = await ledger.lock(
      db,
      [{ appId: world.app.id, userId: of.id }],
      world.clock.at,
    )
    if (!account) throw new Error('the user has no account')
    const credit = { amount: usdAttos(amount), source: 'manual', featureKey } as const
    const { id } = ledger.credit(account, credit, world.clock.at)
    await ledger.save(db, [account], world.clock.at)
    return id
  })
}

describe('explanation of a ticket', () => {
  it('includes all inputs of its prices, enough to recompute them', async () => {
    const [id = ''] = await book('ada', [
      { pipeline: 'live', model_id: 'sdxl', computed_fee: '8420000000000001' },
    ])
    const ticket = await explain(id)
    const { sale } = ticket
    expect(ticket).toMatchObject({
      clientId: world.app.clientId,
      eventId: id,
      externalUserId: 'ada',
      signedAt: '2026-09-14T10:15:30.123456Z',
      feeWei: '8420000000000001',
    })
    expect(sale).toMatchObject({
      rate: { source: 'fixed', usdPerEth: '3000' },
      networkCostUsd: '25.260000000000003',
      plan: { name: 'Starter', version: 2 },
      rule: {
        name: 'bundle',
        bundleId: '0192f3a0-0000-7000-8000-00000000000b',
        retailRateUsd: '0.000002',
        multiple: '2',
      },
      retailCostUsd: '50.520000000000006',
      cut: { percent: '12.5', since: '2026-09-14T10:00:00.000Z' },
      platformFeeUsd: '3.157500000000000375',
      ownerChargeUsd: '28.417500000000003375',
      charge: { ticketCount: 1, paidUsd: '0.000000000000001' },
    })
    if (!sale?.rate || !sale.rule) throw new Error('it has no price')
    const exact = BigInt(ticket.feeWei) * scaled(sale.rate.usdPerEth)
    expect(scaled(sale.networkCostUsd)).toBe(exact / 10n ** 18n)
    expect(scaled(sale.retailCostUsd)).toBe((exact * scaled(sale.rule.multiple)) / 10n ** 36n)
    expect(ticket.formula).toEqual([
      'fee = 8420000000000001 wei = 0.008420000000000001 ETH',
      'network cost = 0.008420000000000001 ETH × 3000 USD/ETH = 25.260000000000003 USD',
      'retail = 0.008420000000000001 ETH × 3000 USD/ETH × 2 (bundle) = 50.520000000000006 USD',
      'platform fee = 0.008420000000000001 ETH × 3000 USD/ETH × 12.5 % = 3.157500000000000375 USD',
      'owner charge = 25.260000000000003 + 3.157500000000000375 = 28.417500000000003375 USD',
      'burned = 50.520000000000006 retail - 50.520000000000005 overage = 0.000000000000001 USD',
      'each figure is rounded down once, to 18 decimals, from the exact product',
    ])
  })

  it("distinguishes the plan rule from a bundle, and shows the ticket's period", async () => {
    const [id = ''] = await book('pat', [{ pipeline: 'other', model_id: 'm' }])
    const { sale } = await explain(id)
    expect(sale?.rule).toMatchObject({ name: 'plan', bundleId: undefined, multiple: '1.5' })
    expect(sale?.period?.start && sale.period.start <= '2026-09-14T10:20:00.000Z').toBe(true)
  })

  it('splits a charge among its tickets by the burn order, with shares that add up to it', async () => {
    const feature = await grant('bob', 'live', 10_000n)
    const money = await grant('bob', null, 4_000n)
    const ids = await book('bob', [
      { pipeline: 'other', model_id: 'm', computed_fee: '1', current_time: '2026-09-14T10:19:01Z' },
      { pipeline: 'live', model_id: 'm', computed_fee: '2', current_time: '2026-09-14T10:19:02Z' },
      { pipeline: 'other', model_id: 'm', computed_fee: '9', current_time: '2026-09-14T10:19:03Z' },
    ])
    const tickets = await Promise.all(ids.map((id) => explain(id)))
    const [first, second, third] = tickets.map(({ sale }) => sale?.charge?.share)
    expect(tickets[0]?.sale?.charge).toMatchObject({ ticketCount: 3 })
    // 1,000 are included; then each ticket uses the credits valid for it, in order of signing.
    const of = (share: typeof first) => share?.draws.map((draw) => [draw.kind, draw.creditId])
    expect(of(first)?.[0]?.[0]).toBe('included')
    expect(of(second)?.map(([, id]) => id)).toContain(feature)
    expect(of(second)?.map(([, id]) => id)).not.toContain(undefined)
    const sums = new Map<string, bigint>()
    for (const { creditId, amountUsd } of [first, second, third].flatMap((s) => s?.draws ?? []))
      sums.set(creditId, (sums.get(creditId) ?? 0n) + scaled(amountUsd))
    const whole = tickets[0]?.sale?.charge?.draws ?? []
    expect([...sums].sort()).toEqual(
      whole.map(({ creditId, amountUsd }) => [creditId, scaled(amountUsd)]).sort(),
    )
    expect(whole.map(({ creditId }) => creditId)).toContain(money)
    const overage = [first, second, third].reduce((n, s) => n + scaled(s?.overageUsd ?? '0'), 0n)
    expect(overage).toBe(scaled(tickets[0]?.sale?.charge?.overageUsd ?? ''))
  })

  it("has no share if the charge's tickets are too far apart", async () => {
    await grant('eve', 'live', 10_000n)
    const [id = ''] = await book('eve', [
      { pipeline: 'live', model_id: 'm', computed_fee: '2', current_time: '2026-09-10T10:19:02Z' },
      { pipeline: 'live', model_id: 'm', computed_fee: '9', current_time: '2026-09-14T10:19:03Z' },
    ])
    const charge = (await explain(id)).sale?.charge
    expect(charge).toMatchObject({ ticketCount: 2 })
    expect(charge?.share).toBeUndefined()
  })

  it('has no price while the ticket waits for a rate', async () => {
    const [id = ''] = await book('una', [{}], false)
    const ticket = await explain(id)
    expect(ticket.sale).toBeUndefined()
    expect(ticket.formula).toEqual([
      'fee = 120000 wei = 0.00000000000012 ETH, which waits for a rate',
    ])
  })

  it('stays the same after a new version, rate and cut', async () => {
    const [id = ''] = await book('zoe', [{ pipeline: 'live', model_id: 'sdxl' }])
    const before = await explain(id)
    await world.pool.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                  billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, price_amount, price_currency, included_attos, 0.5, billing_cycle, created_at
       from plan_versions where version = 2 and app_id = $1`,
      [world.app.id],
    )
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at) values ($1, '2026-09-14T10:21:00Z', 90, '2026-09-14T10:20:00Z')`,
      [world.app.id],
    )
    expect(await explain(id)).toEqual(before)
  })

  it("shows the cut at booking if the signer's clock is ahead", async () => {
    const [id = ''] = await book('eve', [{ current_time: '2026-09-14T10:25:00Z' }])
    const before = await explain(id)
    expect(before.sale?.cut).toMatchObject({ percent: '12.5' })
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at) values ($1, '2026-09-14T10:22:00Z', 80, '2026-09-14T10:20:00Z')`,
      [world.app.id],
    )
    expect(await explain(id)).toEqual(before)
  })

  it('covers one app only, or any app for an operator', async () => {
    const [id = ''] = await book('ada', [{}])
    await expect(explain(id, newAppId())).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    await expect(explain('no-such-event')).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    expect((await explain(id, null)).eventId).toBe(id)
  })
})

describe('shares of a charge', () => {
  const owner = { appId: newAppId(), userId: userId(randomUUID()) }
  it('equal the results of burning all its tickets, with any earlier balance', () => {
    const amounts = fc.bigInt({ min: 0n, max: 50n })
    fc.assert(
      fc.property(
        fc.array(fc.tuple(amounts, fc.constantFrom(null, 'a', 'b')), { maxLength: 4 }),
        fc.array(fc.tuple(amounts, fc.constantFrom('a', 'b')), { minLength: 1, maxLength: 8 }),
        (credits, spends) => {
          // The plain rule: each ticket takes from the first credits valid for it.
          const left = credits.map(([amount]) => amount)
          const expected = spends.map(([cost, pipeline]) => {
            let open = cost
            const draws = credits.flatMap(([, feature], i) => {
              const part = feature === null || feature === pipeline ? min(left[i] ?? 0n, open) : 0n
              left[i] = (left[i] ?? 0n) - part
              open -= part
              return part === 0n ? [] : [{ creditId: `c${i}`, amount: -part }]
            })
            return { draws, overage: open }
          })
          const drawn = credits.flatMap(([amount], i) =>
            amount === left[i]
              ? []
              : [{ creditId: `c${i}`, amount: usdAttos((left[i] ?? 0n) - amount) }],
          )
          const shares = ledger.shareCharge({
            owner,
            draws: drawn,
            overage: expected.reduce((sum, { overage }) => sum + overage, 0n),
            credits: credits.flatMap(([amount, featureKey], i) =>
              amount === left[i] ? [] : [creditOf(i, amount, featureKey)],
            ),
            tickets: spends.map(([cost, pipeline], i) => ({
              appId: world.app.id,
              userId: world.app.id as never,
              eventId: `e${i}`,
              signedAt: new Date(i * 1000),
              pipeline,
              modelId: 'm',
              cost: usdAttos(cost),
            })),
          })
          expect(shares?.map(({ draws, overage }) => ({ draws, overage }))).toEqual(expected)
        },
      ),
    )
  })

  it('are null if the tickets do not add up to the charge', () => {
    const tickets = [
      {
        appId: world.app.id,
        userId: world.app.id as never,
        eventId: 'e',
        signedAt: new Date(0),
        pipeline: 'a',
        modelId: 'm',
        cost: usdAttos(5n),
      },
    ]
    expect(ledger.shareCharge({ owner, draws: [], overage: 4n, credits: [], tickets })).toBeNull()
  })
})

const min = (a: bigint, b: bigint): bigint => (a < b ? a : b)

const creditOf = (i: number, amount: bigint, featureKey: string | null) => ({
  id: `c${i}`,
  kind: 'grant' as const,
  source: 'manual' as const,
  featureKey,
  amount: usdAttos(amount),
  remaining: usdAttos(0n),
  priority: i,
  effectiveAt: new Date(0),
  expiresAt: null,
  expiredAt: null,
  createdAt: new Date(0),
  state: 'stored' as const,
})
