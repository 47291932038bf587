import { beforeAll, describe, expect, it, vi } from 'vitest'
import { createPriceWatch } from '../../../core/books/price-watch.ts'
import { chainInserted } from '../plans/chain-prices.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { priceReads } from '../../../core/plans/prices/chain.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { serviceToken } from '../support.ts'
import { startBooks } from './support.ts'
import { world, verify, lines, found, setUpBooks } from './verify-world.ts'

setUpBooks()

describe('tollgate verify on prices that have sold nothing', () => {
  beforeAll(async () => {
    const core = connectCore({ target: world.core.target, token: serviceToken })
    const { clientId } = world.app
    const terms = {
      name: 'Studio',
      type: 'usage',
      overageRateUsd: '0.000001',
      capabilities: [{ pipeline: 'live', modelId: '*', retailRateUsd: '0.000002' }],
    }
    const { plan } = await core.plans.createPlan({ clientId, planJson: JSON.stringify(terms) })
    for (const overageRateUsd of ['0.0000015', '0.0000016'])
      await core.plans.updatePlan({
        clientId,
        planId: plan?.id ?? '',
        planJson: JSON.stringify({ overageRateUsd }),
      })
    for (const platformCutPercent of ['10', '12.5']) {
      world.clock.advance(120_000)
      await core.billing.updateBillingSettings({
        clientId,
        billingMode: undefined,
        endUserCap: undefined,
        isPlatformOwned: undefined,
        servesEveryApp: undefined,
        platformCutPercent,
      })
    }
    core.close()
    await world.damage("create table studio as select id from plans where name = 'Studio'")
  })

  const priceTables = [
    'plan_versions',
    'plan_bundles',
    'platform_cuts',
    'price_chain',
    'price_heads',
  ]
  const ofStudio = 'plan_id = (select id from studio)'
  const itemOf = (version: number) =>
    `item = 'plan_version ' || (select id from studio) || ' ${version}'`

  /** Damages price tables, returns the reported differences, and restores the tables. */
  async function foundInPrices(damage: string): Promise<string[]> {
    const each = (text: (table: string) => string) => priceTables.map(text).join(';')
    const kept = each((table) => `create table kept_${table} as select * from ${table}`)
    const back = each(
      (table) =>
        `delete from ${table}; insert into ${table} ${table === 'plan_versions' ? 'overriding system value ' : ''}select * from kept_${table}; drop table kept_${table}`,
    )
    return found(`${kept};${damage}`, back)
  }

  it.each([
    [
      'the rate of a version',
      `update plan_versions set retail_rate = 0.000006 where ${ofStudio} and version = 3`,
      / price=\d+ item=plan_version [\w-]+ 3: retail_rate is 0\.000006, should be 0\.0000016, by \+0\.0000044$/,
    ],
    [
      'the included usage of a version',
      `update plan_versions set included_attos = 1 where ${ofStudio} and version = 1`,
      / item=plan_version [\w-]+ 1: included_attos is 1, should be missing/,
    ],
    [
      'the rate of a bundle',
      `update plan_bundles set retail_rate = 0.000012 where ${ofStudio} and version = 3`,
      / 3: bundle \["live", "\*"\] is .*"0\.000012".*, should be .*"0\.000002"/,
    ],
    [
      'a bundle that was inserted',
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
       select app_id, plan_id, version, gen_random_uuid(), 2, 'gift', '*', 0 from plan_versions where ${ofStudio} and version = 3`,
      / 3: bundle \["gift", "\*"\] is .*, should be missing/,
    ],
    [
      'a cut',
      `update platform_cuts set percent = 60 where percent = 10`,
      / item=cut [\d:TZ.-]+: percent is 60\.00, should be 10\.00, by \+50$/,
    ],
    [
      'a cut that begins earlier',
      `update platform_cuts set since = since - interval '1 day', created_at = created_at - interval '1 day' where percent = 10`,
      / item=cut [\d:TZ.-]+: percent is missing, should be 10\.00/,
    ],
    [
      'a version in the middle that was deleted',
      `delete from plan_bundles where ${ofStudio} and version = 2; delete from plan_versions where ${ofStudio} and version = 2`,
      / item=plan_version [\w-]+ 2: retail_rate is missing, should be 0\.0000015/,
    ],
    [
      'a version in the middle that was deleted with its item',
      `delete from plan_versions where ${ofStudio} and version = 2; delete from price_chain where ${itemOf(2)}`,
      / 3: hash is [0-9a-f]{64}, should be /,
    ],
    [
      'a version that was inserted',
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, retail_rate, billing_cycle, created_at)
       select app_id, plan_id, 4, type, '0', 'USD', 0.000006, billing_cycle, created_at from plan_versions where ${ofStudio} and version = 3`,
      / item=plan_version [\w-]+ 4: chained is false, should be true/,
    ],
    [
      'facts of the chain that were edited with the row',
      `update plan_versions set retail_rate = 0.000006 where ${ofStudio} and version = 3;
       update price_chain set facts = facts || '{"retail_rate": "0.000006"}' where ${itemOf(3)}`,
      / 3: hash is [0-9a-f]{64}, should be /,
    ],
    [
      'two items that were swapped',
      `update price_chain set number = -number where ${itemOf(2)};
       update price_chain set number = number - 1 where ${itemOf(3)};
       update price_chain set number = 1 - number where ${itemOf(2)}`,
      / 3: hash is [0-9a-f]{64}, should be /,
    ],
    [
      'the last cut, deleted with its item',
      `delete from platform_cuts where percent = 12.5;
       delete from price_chain where number = (select max(number) from price_chain)`,
      / price=last: number is \d+, should be \d+, by -1$/,
    ],
    [
      'a head that was deleted',
      'delete from price_heads',
      / price=last: number is \d+, should be 0/,
    ],
  ])('reports %s', async (_, damage, line) => {
    expect(await foundInPrices(damage)).toContainEqual(
      expect.stringMatching(new RegExp(`^DIFFERENCE price_chain app_\\w+.*${line.source}`)),
    )
    expect((await verify()).code).toBe(0)
  })

  it('counts edited prices in a metric, and logs the original values', async () => {
    const prices = world.metrics.getSingleMetric('tollgate_core_price_differences')
    expect((await prices?.get())?.values[0]?.value).toBe(0)
    await world.damage(
      `update plan_versions set retail_rate = 0.000006 where ${ofStudio} and version = 3`,
    )
    const logged = vi.fn()
    const watch = createPriceWatch({
      pool: world.sql,
      log: Object.assign(silentLog(), { error: logged }),
      prices: priceReads,
    })
    await watch.check(new AbortController().signal)
    expect(watch.differences()).toBe(1)
    expect(logged).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ column: 'retail_rate', stored: '0.000006', expected: '0.0000016' }),
      'a price was changed',
    )
    await world.damage(
      `update plan_versions set retail_rate = 0.0000016 where ${ofStudio} and version = 3`,
    )
    await watch.check(new AbortController().signal)
    expect(watch.differences()).toBe(0)
  })

  it('reports an unchained row', async () => {
    const cut = `insert into platform_cuts (app_id, since, percent, created_at)
      select app_id, '2030-01-01T00:00:00Z', 1, '2029-01-01T00:00:00Z' from clients where client_id = '${world.app.clientId}'`
    await world.damage(cut)
    expect(lines((await verify()).text)).toEqual([
      expect.stringMatching(
        /price_chain .*item=cut 2030-01-01T00:00:00\.000000Z: chained is false/,
      ),
    ])
    await chainInserted(world.sql)
    expect((await verify()).code).toBe(0)
  })
})

describe('cut of a ticket signed by a clock ahead of ours', () => {
  it('is the cut at booking time, regardless of later cuts', async () => {
    const ahead = await startBooks()
    try {
      const cut = (since: Date, percent: number) =>
        ahead.sql.query(
          `insert into platform_cuts (app_id, since, percent, created_at)
           select app_id, $2::timestamptz, $3, $2 - interval '1 hour' from clients where client_id = $1`,
          [ahead.app.clientId, since, percent],
        )
      const now = ahead.clock.now()
      const later = (minutes: number) => new Date(now.getTime() + minutes * 60_000)
      await cut(later(-60), 10)
      await ahead.ingest({ computed_fee: '1000', current_time: later(10).toISOString() })
      await cut(later(5), 50)
      await ahead.chainPrices()
      expect(await ahead.rows('select platform_fee_wei from tickets')).toEqual([
        { platform_fee_wei: '100' },
      ])
      expect((await verify()).text).toContain('the books are right')
    } finally {
      await ahead.stop()
    }
  })
})
