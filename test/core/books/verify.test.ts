import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createPriceWatch } from '../../../core/books/price-watch.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { priceReads } from '../../../core/plans/prices/chain.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { attos, startSidecar } from '../allowances/escrow/granting.ts'
import { begin, serviceToken } from '../support.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

let world: BooksWorld
beforeAll(async () => {
  world = await startBooks()
  const m2m = world.as(world.app.basic)
  await m2m.upsertUser({ clientId: world.app.clientId, externalUserId: 'idle' })
  const at = (seconds: number) => new Date(begin.getTime() + seconds * 1_000).toISOString()
  // 3000 USD per ETH: 10^15 wei are 3 USD.
  await world.ingest(
    {
      session_id: 'a',
      sequence_number: 0,
      computed_fee: '1000000000000000',
      billable_secs: 1.5,
      current_time: at(0),
    },
    {
      session_id: 'a',
      sequence_number: 1,
      computed_fee: '7',
      billable_secs: '0.25',
      current_time: at(1),
    },
    { session_id: 'a', sequence_number: 3, computed_fee: '1', current_time: at(2) },
    {
      session_id: 'b',
      sequence_number: 0,
      computed_fee: '5',
      current_time: at(3),
      auth_id: `${world.app.clientId}:bob`,
    },
  )
  await m2m.createGrant({
    clientId: world.app.clientId,
    externalUserId: 'ada',
    amountUsdMicros: '250000',
  })
  // Exceeds the remaining credit, so there is overage.
  await world.ingest({
    session_id: 'a',
    sequence_number: 4,
    computed_fee: '2000000000000000',
    current_time: at(4),
  })
  await tollgate('rebuild')
})
afterAll(() => world.stop())

const verify = (...more: string[]) => tollgate('verify', ...more)
const lines = (text: string) => text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))

/** Damages the books, returns the reported differences, and undoes the damage. */
async function found(damage: string, repair: string): Promise<string[]> {
  await world.damage(damage)
  try {
    const { code, text } = await verify()
    expect(code).toBe(1)
    return lines(text)
  } finally {
    await world.damage(repair)
  }
}

describe('tollgate verify', () => {
  it('accepts right books and reports how much it checked', async () => {
    const { code, text } = await verify()
    expect(text).toContain(`${world.app.clientId}  3 of 3 users, no difference`)
    expect(text).toContain('1 app and 3 users checked: the books are right.')
    expect(code).toBe(0)
    expect(JSON.parse((await verify('--app', world.app.clientId, '--json')).text)).toEqual({
      ok: true,
      apps: 1,
      users: 3,
      differences: [],
    })
  })

  it('reports the hour, the column and the amount of a difference', async () => {
    expect(
      await found(
        `update usage_hourly set fee_wei = fee_wei + 3, billable_secs = billable_secs - 0.25 where fee_wei > 5`,
        `update usage_hourly set fee_wei = fee_wei - 3, billable_secs = billable_secs + 0.25 where fee_wei > 5`,
      ),
    ).toEqual([
      expect.stringMatching(
        /^DIFFERENCE usage_hourly app_\w+ user=[\w-]+ \(ada\) hour=2026-03-10T12:00:00Z model_id=unknown pipeline=live: fee_wei is 3000000000000011, should be 3000000000000008, by \+3$/,
      ),
      expect.stringContaining('billable_secs is 21.5, should be 21.75, by -0.25'),
    ])
  })

  it('reports a missing row, and a row without tickets', async () => {
    const gone = await found(
      `create table kept as select * from usage_hourly; delete from usage_hourly where fee_wei = 5`,
      `insert into usage_hourly select * from kept where fee_wei = 5; drop table kept`,
    )
    expect(gone).toContainEqual(
      expect.stringContaining(
        '(bob) hour=2026-03-10T12:00:00Z model_id=unknown pipeline=live: fee_wei is missing, should be 5, by -5',
      ),
    )
    const extra = await found(
      `insert into usage_hourly select app_id, user_id, hour, 'ghost', model_id, 1, 0, 9, 9, 0, 0 from usage_hourly where fee_wei = 5`,
      `delete from usage_hourly where pipeline = 'ghost'`,
    )
    expect(extra).toContainEqual(
      expect.stringContaining('pipeline=ghost: fee_wei is 9, should be missing, by +9'),
    )
  })

  it('checks sessions with their sequence numbers', async () => {
    expect(
      await found(
        `update ticket_sessions set seen = '{[0,5)}', gapped = false where session_id = 'a'`,
        `update ticket_sessions set seen = '{[0,2),[3,5)}', gapped = true where session_id = 'a'`,
      ),
    ).toEqual([
      expect.stringContaining('session_id=a: seen is {[0,5)}, should be {[0,2),[3,5)}'),
      expect.stringContaining('gapped is false, should be true'),
      expect.stringContaining('seen_md5'),
    ])
  })

  it('checks charges against the tickets that name them', async () => {
    const differences = await found(
      `update tickets set charge_id = '00000000-0000-4000-8000-000000000001' where sequence_number = 4`,
      `update tickets t set charge_id = e.cause_id from ledger_entries e where t.sequence_number = 4 and e.kind = 'charge' and e.overage_attos > 0`,
    )
    expect(differences).toContainEqual(
      expect.stringMatching(
        /charges .*charge_id=00000000-0000-4000-8000-000000000001: cost_attos is missing, should be 6000000000000000000, by -6000000000000000000/,
      ),
    )
    expect(differences).toContainEqual(
      expect.stringMatching(
        /charges .*: cost_attos is 6000000000000000000, should be missing, by \+6000000000000000000/,
      ),
    )
  })

  it('checks each entry against the previous one, and balances against the fold', async () => {
    expect(
      await found(
        `update ledger_entries set balance_after_attos = balance_after_attos + 1 where seq = 1 and user_id = (select id from end_users where external_user_id = 'bob')`,
        `update ledger_entries set balance_after_attos = balance_after_attos - 1 where seq = 1 and user_id = (select id from end_users where external_user_id = 'bob')`,
      ),
    ).toEqual([
      expect.stringMatching(
        /ledger_entries .*\(bob\) seq=1: balance_after_attos is 5000000000000000001, should be 5000000000000000000, by \+1/,
      ),
      expect.stringMatching(/ledger_entries .*\(bob\) seq=2: balance_after_attos is .* by -1$/),
      expect.stringMatching(/ledger_entries .*\(bob\) seq=1: hash is [0-9a-f]{64}, should be /),
    ])
    expect(
      await found(
        `update balances set granted_attos = granted_attos + 7, balance_attos = balance_attos + 7 where consumed_attos = 0`,
        `update balances set granted_attos = granted_attos - 7, balance_attos = balance_attos - 7 where consumed_attos = 0`,
      ),
    ).toEqual([
      expect.stringMatching(
        /balances .*\(idle\): balance_attos is 5000000000000000007, should be 5000000000000000000, by \+7/,
      ),
      expect.stringContaining('granted_attos is 5000000000000000007'),
      expect.stringMatching(
        /grants .*remaining_attos is 5000000000000000000, should be 5000000000000000007, by -7/,
      ),
    ])
  })

  it('checks lent and pending amounts against leases and authorisations', async () => {
    const sidecar = await startSidecar(world.as())
    await sidecar.lend(world.app, 'idle', { boundUsdAttos: attos(0.1) })
    await sidecar.reserve(world.app, 'idle', { bound: 0.3 })
    expect(
      await found(
        `update balances set lent_attos = lent_attos + 2, pending_attos = pending_attos - 3 where lent_attos > 0`,
        `update balances set lent_attos = lent_attos - 2, pending_attos = pending_attos + 3 where lent_attos > 0`,
      ),
    ).toEqual([
      expect.stringMatching(
        /balances .*\(idle\): lent_attos is 400000000000000002, should be 400000000000000000, by \+2/,
      ),
      expect.stringMatching(/pending_attos is .* by -3$/),
    ])
    // The hold is deleted from both table and balance, but the session's totals still have the
    // call.
    expect(
      await found(
        `create table kept as select * from authorisations; create table kept_balances as select * from balances;
         update balances b set pending_attos = pending_attos - a.bound_attos from authorisations a where a.user_id = b.user_id;
         delete from authorisations`,
        `insert into authorisations overriding system value select * from kept;
         delete from balances; insert into balances select * from kept_balances; drop table kept, kept_balances`,
      ),
    ).toEqual([
      expect.stringMatching(
        /authorisations .*\(idle\) session_id=[\w-]+: held_calls is 0, should be 1, by -1$/,
      ),
    ])
    expect((await verify()).code).toBe(0)
  })

  it('checks that granted amounts are consumed, remaining, expired or adjusted', async () => {
    expect(
      await found(
        `update grants set remaining_attos = remaining_attos - 9 where remaining_attos = 5000000000000000000`,
        `update grants set remaining_attos = remaining_attos + 9 where remaining_attos = 4999999999999999991`,
      ),
    ).toEqual([
      expect.stringMatching(
        /grants .*remaining_attos is 4999999999999999991, should be 5000000000000000000, by -9/,
      ),
      expect.stringMatching(
        /grants .* id=[\w-]+: remaining_attos is 4999999999999999991, should be 5000000000000000000, by -9/,
      ),
    ])
    expect(
      await found(
        `update grants set amount_attos = amount_attos + 1 where kind = 'grant'`,
        `update grants set amount_attos = amount_attos - 1 where kind = 'grant'`,
      ),
    ).toContainEqual(
      expect.stringMatching(
        /grants .*cause_id=[\w-]+: booked_attos is 250000000000000000, should be 250000000000000001, by -1/,
      ),
    )
  })

  it('checks the price of every ticket by its fee and its rate', async () => {
    const differences = await found(
      `update tickets set cost_attos = cost_attos + 1 where sequence_number = 3`,
      `update tickets set cost_attos = cost_attos - 1 where sequence_number = 3`,
    )
    expect(differences).toContainEqual(
      expect.stringMatching(/prices .*event_id=[\w-]+: cost_attos is 3001, should be 3000, by \+1/),
    )
    expect(
      await found(
        `update rates set observed_at = observed_at + interval '1 year'`,
        `update rates set observed_at = observed_at - interval '1 year'`,
      ),
    ).toContainEqual(expect.stringContaining('rate_not_later_than_ticket is false, should be true'))
  })

  it('checks that tickets and envelopes match', async () => {
    expect(
      await found(
        `create table kept as select * from envelopes; delete from envelopes where key = (select event_id::uuid from tickets where sequence_number = 3)`,
        `insert into envelopes select * from kept on conflict do nothing; drop table kept`,
      ),
    ).toEqual([
      expect.stringMatching(/envelopes .*event_id=[\w-]+: entered is missing, should be true/),
      expect.stringMatching(/ledger_entries .* seq=\d: tickets_hash is [0-9a-f]{64}, should be /),
      expect.stringContaining('DIFFERENCE envelopes: count is 4, should be 5, by -1'),
    ])
    expect(
      await found(
        `insert into envelopes values ('00000000-0000-4000-8000-00000000000f', '00000000-0000-4000-8000-000000000000')`,
        `delete from envelopes where key = '00000000-0000-4000-8000-00000000000f'`,
      ),
    ).toEqual(['DIFFERENCE envelopes: count is 6, should be 5, by +1'])
  })

  it('stays right with parallel apps and concurrent ingest', async () => {
    const others = await Promise.all(Array.from({ length: 6 }, () => world.newApp()))
    const stop = new AbortController()
    const ingesting = (async () => {
      for (let turn = 0; !stop.signal.aborted; turn++) {
        await world.ingest(
          ...others.map(({ clientId }, i) => ({
            auth_id: `${clientId}:user-${turn % 3}`,
            session_id: `live-${i}`,
            sequence_number: turn,
            computed_fee: String(10n ** 15n),
          })),
        )
      }
    })()
    const core = connectCore({ target: world.core.target, token: serviceToken })
    const found: string[] = []
    let apps = 0
    for (let round = 0; round < 6; round++) {
      for await (const { kind, clientId, difference } of core.verifyBooks({
        clientId: undefined,
      })) {
        if (kind === 'done' && clientId !== '') apps += 1
        if (difference) found.push(difference.check)
      }
    }
    stop.abort()
    await ingesting
    core.close()
    expect(apps).toBe(6 * 7)
    expect(found.filter((check) => check !== 'ticket_sessions')).toEqual([])
    await tollgate('rebuild')
    expect((await verify()).text).toContain('7 apps and')
    expect((await verify()).code).toBe(0)
  })

  it('rejects an unknown app and unknown options', async () => {
    expect(await verify('--app', `app_${'0'.repeat(24)}`)).toEqual({
      code: 1,
      text: 'tollgate: no app has this client id\n',
    })
    expect((await verify('--all')).code).toBe(2)
    expect((await verify('now')).code).toBe(2)
    expect((await verify('--help')).text).toContain('tollgate verify [--app ID]')
  })

  it('stops reporting after a thousand differences per app', async () => {
    const { text } = await (async () => {
      await world.damage(`insert into usage_hourly select app_id, user_id, hour - make_interval(hours => n), pipeline, model_id, 1, 0, 1, 1, 1, 0
        from usage_hourly, generate_series(1, 1500) n where fee_wei = 5`)
      try {
        return await verify('--json')
      } finally {
        await world.damage(`delete from usage_hourly where fee_wei = 1`)
      }
    })()
    expect(JSON.parse(text).differences).toHaveLength(1_000)
  })
})

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
    const { plan } = await core.addPlan({ clientId, planJson: JSON.stringify(terms) })
    for (const overageRateUsd of ['0.0000015', '0.0000016'])
      await core.changePlan({
        clientId,
        planId: plan?.id ?? '',
        planJson: JSON.stringify({ overageRateUsd }),
      })
    for (const platformCutPercent of ['10', '12.5']) {
      world.clock.advance(120_000)
      await core.replaceBillingSettings({
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

  it('reports an unchained row until a core starts', async () => {
    const cut = `insert into platform_cuts (app_id, since, percent, created_at)
      select app_id, '2030-01-01T00:00:00Z', 1, '2029-01-01T00:00:00Z' from clients where client_id = '${world.app.clientId}'`
    await world.damage(cut)
    expect(lines((await verify()).text)).toEqual([
      expect.stringMatching(
        /price_chain .*item=cut 2030-01-01T00:00:00\.000000Z: chained is false/,
      ),
    ])
    const { core } = await world.startAnother()
    await core.stop()
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
