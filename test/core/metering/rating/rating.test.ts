import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { sums } from '../../../../core/usage/store.ts'
import { groupings } from '../../../../core/usage/types.ts'
import {
  type World,
  createWorld,
  differences,
  envelope,
  noDifferences,
  recordRate,
} from '../harness.ts'

let world: World
beforeEach(async () => {
  world = await createWorld()
})
afterEach(() => world.stop())

const rows = async <T extends object = Record<string, unknown>>(text: string): Promise<T[]> =>
  (await world.pool.query<T>(text)).rows

let sequence = 0
const ticket = (more: Record<string, unknown> = {}, user = 'ada'): Buffer =>
  envelope({
    auth_id: `${world.app.clientId}:${user}`,
    computed_fee: '1000000000000',
    sequence_number: sequence++,
    ...more,
  })

interface Version {
  readonly rate?: string | null
  readonly bundles?: readonly (readonly [pipeline: string, model: string, rate: string | null])[]
  readonly at?: Date
}

/** Adds a version to the app's Starter plan. Returns its id. */
async function sell({ rate = null, bundles = [], at = world.clock.at }: Version): Promise<bigint> {
  const [row] = await rows<{ id: bigint; plan_id: string; version: number }>(
    `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                billing_cycle, created_at)
     select app_id, plan_id, version + 1, type, price_amount, price_currency, included_attos, ${rate === null ? 'null' : `'${rate}'`},
            billing_cycle, '${at.toISOString()}'
     from plan_versions
     where plan_id = (select id from plans where app_id = '${world.app.id}' and is_starter_default)
     order by version desc
     limit 1
     returning id, plan_id, version`,
  )
  if (!row) throw new Error('the app has no Starter plan')
  for (const [position, [pipeline, model, price]] of bundles.entries())
    await world.pool.query(
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
       values ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [world.app.id, row.plan_id, row.version, randomUUID(), position, pipeline, model, price],
    )
  return row.id
}

/** Returns the prices of the tickets, in order of their sequence numbers. */
const sold = () =>
  rows(
    `select pipeline, model_id, cost_attos, retail_attos, terms_id
     from tickets order by sequence_number`,
  )

/** Checks that retail is equal on tickets, in the sums and in the users' charges. */
async function expectExact(): Promise<void> {
  expect(await differences(world.pool)).toEqual(noDifferences)
  const [of] = await rows<{ tickets: string; hours: string; sessions: string; charged: string }>(
    `select (select coalesce(sum(coalesce(retail_attos, cost_attos)), 0) from tickets) as tickets,
            (select coalesce(sum(cost_attos + markup_attos), 0) from usage_hourly) as hours,
            (select coalesce(sum(cost_attos + markup_attos), 0) from ticket_sessions) as sessions,
            (select coalesce(sum(consumed_attos), 0) from balances) as charged`,
  )
  expect(of).toEqual({
    tickets: of?.tickets,
    hours: of?.tickets,
    sessions: of?.tickets,
    charged: of?.tickets,
  })
  const total = await one(
    `select coalesce(sum(coalesce(retail_attos, cost_attos)), 0) as retail, coalesce(sum(platform_fee_attos), 0) as fee,
            coalesce(sum(platform_fee_wei), 0) as wei
     from tickets`,
  )
  for (const grouping of groupings) {
    const answer = await sums(world.pool, everything(), { grouping, limit: 3 })
    const sum = (value: (row: (typeof answer)[number]) => bigint): string =>
      String(answer.reduce((all, row) => all + value(row), 0n))
    expect({
      retail: sum(({ retail }) => retail),
      fee: sum(({ platformFee }) => platformFee),
      wei: sum(({ platformWei }) => platformWei),
    }).toEqual(total)
  }
}

const everything = () => ({
  appId: world.app.id,
  userId: null,
  range: { start: new Date('2026-01-01T00:30:00Z'), end: new Date('2027-01-01T00:30:00Z') },
  requestId: null,
})

const one = async (text: string): Promise<Record<string, unknown> | undefined> =>
  (await rows(text))[0]

describe('ticket price', () => {
  it('uses the rate of its model, else its pipeline, else the plan, else network price; zero is a price', async () => {
    const id = await sell({
      rate: '0.0000015',
      bundles: [
        ['live', 'sdxl', '0.000002'],
        ['live', '*', '0.0000005'],
        ['free', '*', '0'],
        ['bare', 'm', null],
      ],
    })
    const metering = world.metering()
    await metering.ingestEvents([
      ticket({ pipeline: 'live', model_id: 'sdxl' }),
      ticket({ pipeline: 'live', model_id: 'other' }),
      ticket({ pipeline: 'free', model_id: 'm' }),
      ticket({ pipeline: 'bare', model_id: 'm' }),
      ticket({ pipeline: 'else', model_id: 'm' }),
    ])
    const cost = '3000000000000000'
    expect(await sold()).toEqual([
      {
        pipeline: 'live',
        model_id: 'sdxl',
        cost_attos: cost,
        retail_attos: '6000000000000000',
        terms_id: id,
      },
      {
        pipeline: 'live',
        model_id: 'other',
        cost_attos: cost,
        retail_attos: '1500000000000000',
        terms_id: id,
      },
      { pipeline: 'free', model_id: 'm', cost_attos: cost, retail_attos: '0', terms_id: id },
      {
        pipeline: 'bare',
        model_id: 'm',
        cost_attos: cost,
        retail_attos: '4500000000000000',
        terms_id: id,
      },
      {
        pipeline: 'else',
        model_id: 'm',
        cost_attos: cost,
        retail_attos: '4500000000000000',
        terms_id: id,
      },
    ])
    await expectExact()
  })

  it('is the network price on a plan without rates, and stores nothing', async () => {
    await world.metering().ingestEvents([ticket()])
    const [of] = await rows(
      `select t.retail_attos, t.platform_fee_attos, t.platform_fee_wei, t.terms_id = v.id as is_first
       from tickets t join plan_versions v on v.app_id = t.app_id and v.version = 1
       join plans p on p.app_id = v.app_id and p.id = v.plan_id and p.is_starter_default`,
    )
    expect(of).toEqual({
      retail_attos: null,
      platform_fee_attos: null,
      platform_fee_wei: null,
      is_first: true,
    })
    await expectExact()
  })

  it('is rounded down once, from the exact product', async () => {
    await sell({ rate: '0.0000013' })
    // At 3,000 USD one wei costs 3,000 atto-dollars, without a fraction. At this rate the network
    // cost has one.
    await recordRate(world.pool, '2026-09-14T10:15:00Z')
    await world.pool.query(
      `insert into rates (usd_attos_per_eth, source, observed_at) values (1500000000000000001, 'test', '2026-09-14T10:15:01Z')`,
    )
    await world.metering({ fixed: false }).ingestEvents([ticket({ computed_fee: '7' })])
    // 9 × 1.5… × 1.3 is 17.55…: from the rounded cost it would be 16.
    await world.metering({ fixed: false }).ingestEvents([ticket({ computed_fee: '9' })])
    expect(await rows(`select cost_attos, retail_attos from tickets order by fee_wei`)).toEqual([
      { cost_attos: '10', retail_attos: '13' },
      { cost_attos: '13', retail_attos: '17' },
    ])
    await expectExact()
  })

  it('includes the cut of its signing time, in USD and in wei', async () => {
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at)
       values ($1, '2026-09-14T10:15:00Z', 10, '2026-09-14T10:00:00Z'), ($1, '2026-09-14T10:16:00Z', null, '2026-09-14T10:00:00Z'),
              ($1, '2026-09-14T10:17:00Z', 15, '2026-09-14T10:00:00Z')`,
      [world.app.id],
    )
    const at = (time: string, fee: string) =>
      ticket({ current_time: `2026-09-14T${time}Z`, computed_fee: fee })
    await world
      .metering()
      .ingestEvents([
        at('10:14:59.999999', '1000'),
        at('10:15:00.000', '8420000000000000'),
        at('10:16:00.000', '1000'),
        at('10:17:00.000', '7'),
      ])
    expect(
      await rows(
        `select fee_wei, platform_fee_attos, platform_fee_wei from tickets order by sequence_number`,
      ),
    ).toEqual([
      { fee_wei: '1000', platform_fee_attos: null, platform_fee_wei: null },
      {
        fee_wei: '8420000000000000',
        platform_fee_attos: '2526000000000000000',
        platform_fee_wei: '842000000000000',
      },
      { fee_wei: '1000', platform_fee_attos: null, platform_fee_wei: null },
      { fee_wei: '7', platform_fee_attos: '3150', platform_fee_wei: '1' },
    ])
    const [sums] = await rows(
      `select sum(platform_fee_attos) as attos, sum(platform_fee_wei) as wei from usage_hourly`,
    )
    expect(sums).toEqual({ attos: '2526000000000003150', wei: '842000000000001' })
    await expectExact()
  })

  it("excludes a cut that begins after booking, even if the signer's clock is past it", async () => {
    const after = (minutes: number) => new Date(world.clock.at.getTime() + minutes * 60_000)
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at)
       select $1, since, percent, since - interval '1 hour' from (values ($2::timestamptz, 10), ($3, 50)) c (since, percent)`,
      [world.app.id, after(-60), after(5)],
    )
    const ahead = { current_time: after(5).toISOString(), computed_fee: '1000' }
    await world.metering().ingestEvents([ticket(ahead)])
    const fees = () => rows(`select platform_fee_wei from tickets order by sequence_number`)
    expect(await fees()).toEqual([{ platform_fee_wei: '100' }])
    world.clock.at = after(6)
    await world.metering().ingestEvents([ticket(ahead)])
    expect(await fees()).toEqual([{ platform_fee_wei: '100' }, { platform_fee_wei: '500' }])
    await expectExact()
  })
})

const month = (months: number, more = ''): string =>
  new Date(Date.UTC(2026, 8 + months, 14, 10, 20)).toISOString().replace('Z', more || 'Z')

describe('plan version of a ticket', () => {
  it('is that of the period of signing, even for a late ticket', async () => {
    const first = (await rows<{ id: bigint }>(`select id from plan_versions where version = 1`))[0]
      ?.id
    const metering = world.metering()
    await metering.ingestEvents([ticket({ current_time: month(0) })])
    // A new version applies from the next period.
    const second = await sell({ rate: '0.000002' })
    world.clock.at = new Date(month(0.5))
    await metering.ingestEvents([ticket({ current_time: world.clock.at.toISOString() })])
    world.clock.at = new Date(Date.parse(month(1)) + 60_000)
    await metering.ingestEvents([
      ticket({ current_time: new Date(Date.parse(month(1)) - 1).toISOString() }),
      ticket({ current_time: month(1) }),
    ])
    expect((await sold()).map(({ terms_id }) => terms_id)).toEqual([first, first, first, second])
    await expectExact()
  })

  it('follows a period that another process entered, even for a planned batch', async () => {
    const metering = world.metering()
    await metering.ingestEvents([ticket({ current_time: month(0) })])
    const id = await sell({ rate: '0.000003' })
    // Like an immediate plan change: the account is in another period, unknown to this process.
    const changed = new Date(world.clock.at.getTime() + 1_000).toISOString()
    await world.pool.query(
      `insert into periods (app_id, user_id, starts_at, ends_at, counts_from, entered_at, after_seq, plan_id, plan_version,
                            included_attos, withheld_attos)
       select p.app_id, p.user_id, $1, p.ends_at, $1, $1, (select max(seq) from ledger_entries l where l.user_id = p.user_id), v.plan_id, v.version, 0, 0
       from periods p join plan_versions v on v.id = $2`,
      [changed, id],
    )
    await world.pool.query(`update balances set period_start = $1`, [changed])
    world.clock.at = new Date(world.clock.at.getTime() + 60_000)
    await metering.ingestEvents([
      ticket({ current_time: changed }),
      ticket({ current_time: new Date(Date.parse(changed) - 1).toISOString() }),
    ])
    const [, after, before] = await sold()
    expect([after, before]).toMatchObject([
      { terms_id: id, retail_attos: '9000000000000000' },
      { retail_attos: null },
    ])
    await expectExact()
  })

  it('is chosen by signing time when a waiting ticket gets its price', async () => {
    const unpriced = world.metering({ fixed: false })
    await unpriced.ingestEvents([ticket({ current_time: month(0) })])
    expect(await sold()).toMatchObject([{ cost_attos: null, retail_attos: null, terms_id: null }])
    await sell({ rate: '0.000002' })
    world.clock.at = new Date(Date.parse(month(1)) + 60_000)
    const metering = world.metering()
    await metering.start()
    try {
      await metering.ingestEvents([ticket({ current_time: month(1) })])
      await expect.poll(sold).toMatchObject([
        { cost_attos: '3000000000000000', retail_attos: null },
        { cost_attos: '3000000000000000', retail_attos: '6000000000000000' },
      ])
    } finally {
      await metering.stop()
    }
    await expectExact()
  })

  it('is stored together with retail, cut and sums once the rate is known', async () => {
    const id = await sell({ rate: '0.0000013' })
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at)
       values ($1, '2026-09-14T10:00:00Z', 12.5, '2026-09-14T09:00:00Z')`,
      [world.app.id],
    )
    const waiting = ticket({ current_time: month(0), computed_fee: '7777777777777' })
    await world.metering({ fixed: false }).ingestEvents([waiting])
    const all = `select cost_attos, retail_attos, platform_fee_attos, platform_fee_wei, terms_id from tickets`
    const summed = `select cost_attos, markup_attos, platform_fee_attos, platform_fee_wei, unpriced_count from usage_hourly`
    expect([await rows(all), await rows(summed)]).toEqual([
      [
        {
          cost_attos: null,
          retail_attos: null,
          platform_fee_attos: null,
          platform_fee_wei: null,
          terms_id: null,
        },
      ],
      [
        {
          cost_attos: '0',
          markup_attos: '0',
          platform_fee_attos: '0',
          platform_fee_wei: '0',
          unpriced_count: 1n,
        },
      ],
    ])
    const metering = world.metering()
    await metering.start()
    try {
      const fee = { platform_fee_attos: '2916666666666375', platform_fee_wei: '972222222222' }
      await expect
        .poll(() => rows(all), { timeout: 20_000 })
        .toEqual([
          {
            cost_attos: '23333333333331000',
            retail_attos: '30333333333330300',
            ...fee,
            terms_id: id,
          },
        ])
      expect(await rows(summed)).toEqual([
        {
          cost_attos: '23333333333331000',
          markup_attos: '6999999999999300',
          ...fee,
          unpriced_count: 0n,
        },
      ])
    } finally {
      await metering.stop()
    }
    await expectExact()
  })

  it('never changes after a new version, rate, cut or time', async () => {
    await sell({ rate: '0.0000015' })
    const metering = world.metering()
    await metering.ingestEvents([ticket({ current_time: month(0) })])
    const all = `select md5(string_agg(t::text, ';' order by event_id)) as digest from tickets t`
    const before = await rows(all)
    await sell({ rate: '0.5' })
    await recordRate(world.pool, month(0), 9000)
    await world.pool.query(
      `insert into platform_cuts (app_id, since, percent, created_at) values ($1, '2026-09-14T10:19:59Z', 50, '2026-09-14T10:00:00Z')`,
      [world.app.id],
    )
    world.clock.at = new Date(month(3))
    await metering.start()
    await metering.stop()
    expect(await rows(all)).toEqual(before)
  })
})

describe('retail', () => {
  it('equals the sum of its rows to the atto', async () => {
    let users = 0
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            rate: fc.option(fc.bigInt(0n, 10n ** 13n)),
            tickets: fc.array(
              fc.record({
                fee: fc.bigInt(0n, 10n ** 18n),
                pipeline: fc.constantFrom('live', 'other', ''),
              }),
              { minLength: 1, maxLength: 5 },
            ),
          }),
          { minLength: 1, maxLength: 4 },
        ),
        async (plans) => {
          const metering = world.metering()
          for (const { rate, tickets } of plans) {
            const text = rate === null ? null : `0.${rate.toString().padStart(18, '0')}`
            // New users begin with the newest version.
            await sell({ rate: text, bundles: [['other', '*', '0.0000011']] })
            const user = `user-${users++}`
            await metering.ingestEvents(
              tickets.map(({ fee, pipeline }) =>
                ticket({ computed_fee: String(fee), pipeline, session_id: user }, user),
              ),
            )
            const ratio = rate === null ? 10n ** 18n : rate * 10n ** 6n
            const expected = tickets.reduce(
              (sum, { fee, pipeline }) =>
                sum +
                (fee * 3000n * (pipeline === 'other' ? 11n * 10n ** 17n : ratio)) / 10n ** 18n,
              0n,
            )
            const [of] = await rows<{ consumed_attos: string }>(
              `select consumed_attos from balances join end_users u on u.id = user_id where external_user_id = '${user}'`,
            )
            expect(of?.consumed_attos).toBe(String(expected))
          }
          await expectExact()
        },
      ),
      { numRuns: 12 },
    )
  })
})
