import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, day, observedRate, outcome, refusal, serviceToken } from '../support.ts'
import { type BooksWorld, buildRoots, startBooks, tollgate } from './support.ts'

/** Tickets sold at 1.3 times the network price, and one feature for free, with a cut of 12.5 %. */

let world: BooksWorld
let core: ReturnType<typeof connectCore>
let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-sold-'))
  world = await startBooks({ ...observedRate, RETENTION_MONTHS: '1', ARCHIVE_DIR: folder })
  core = connectCore({ target: world.core.target, token: serviceToken })
  await sell(world)
  await core.metering.recordRate({
    usdPerEth: '2987.654321098765432109',
    source: 'desk',
    observedAt: '2026-01-03T10:00:00Z',
  })
  await world.ingest(
    ...[
      ['january', '2026-01-03T10:00:01Z', 'live'],
      ['free', '2026-01-03T10:00:02Z', 'gift'],
      ['now', begin.toISOString(), 'live'],
    ].map(([id, current_time, pipeline], sequence_number) => ({
      id,
      session_id: 'sold',
      sequence_number,
      current_time,
      pipeline,
      computed_fee: '141414141414149',
    })),
  )
})
afterAll(async () => {
  core.close()
  await world.stop()
  await rm(folder, { recursive: true })
})

const sell = async ({ damage, chainPrices }: BooksWorld): Promise<void> => {
  await damage(
    `update plan_versions set retail_rate = 0.0000013 where plan_id in (select id from plans where is_starter_default);
    insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
    select app_id, plan_id, version, gen_random_uuid(), 0, 'gift', '*', 0
    from plan_versions
    where plan_id in (select id from plans where is_starter_default);
    insert into platform_cuts (app_id, since, percent, created_at)
    select id, '2025-12-01T00:00:00Z', 12.5, '2025-11-01T00:00:00Z' from apps`,
  )
  await chainPrices()
}

const tickets = () => world.rows('select * from tickets order by event_id')
const prices = (of: BooksWorld) =>
  of.rows(
    `select event_id, cost_attos, coalesce(retail_attos, cost_attos) as retail, coalesce(platform_fee_attos, 0) as fee,
            coalesce(platform_fee_wei, 0) as wei, terms_id is null as is_foreign
     from tickets order by event_id`,
  )
const verified = async () => (await tollgate('verify')).text

describe('sold tickets', () => {
  it('are archived and restored unchanged, including the plan version', async () => {
    const before = await tickets()
    expect(await prices(world)).toMatchObject([
      { event_id: 'free', retail: '0', wei: '17676767676768', is_foreign: 'false' },
      // 141414141414149 × 2987.654321098765432109 × 1.3, and × 0.125, rounded down.
      {
        event_id: 'january',
        cost_attos: '422496570660454139',
        retail: '549245541858590380',
        fee: '52812071332556767',
      },
      { event_id: 'now', cost_attos: '424242424242447000', retail: '551515151515181100' },
    ])
    world.clock.advance(day)
    await buildRoots(world)
    expect((await tollgate('archive')).text).toContain('2026-01')
    expect(await tickets()).toHaveLength(1)
    expect(await verified()).toContain('the books are right')
    const [file = ''] = (await readdir(folder)).filter((name) => name.includes('2026-01'))
    expect((await tollgate('import', join(folder, file))).text).toContain('2 restored')
    expect(await tickets()).toEqual(before)
    expect(await verified()).toContain('the books are right')
    expect((await tollgate('rebuild')).text).toContain('0 hours, 0 sessions, 0 balances repaired')
  })

  it('keep their prices in another deployment with other rates', async () => {
    const path = join(folder, 'sold.gz')
    await tollgate('export', '--app', world.app.clientId, '--out', path)
    const sold = await prices(world)
    await elsewhere(async (to) => {
      await tollgate('import', path, '--app', to.app.clientId)
      expect(await prices(to)).toEqual(sold.map((ticket) => ({ ...ticket, is_foreign: 'true' })))
      expect(await verified()).toContain('the books are right')
    })
  })
})

/**
 * Runs `work` with another deployment whose app sells at twice the network price. The command line
 * points there meanwhile.
 */
async function elsewhere(work: (to: BooksWorld) => Promise<void>): Promise<void> {
  const to = await startBooks(observedRate)
  try {
    await to.damage('update plan_versions set retail_rate = 0.000002')
    await to.chainPrices()
    await work(to)
  } finally {
    await to.stop()
    vi.stubEnv('CORE_TARGET', world.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
  }
}

describe('adjustment for a ticket', () => {
  const adjust = (amountUsdMicros: string, eventId: string) =>
    core.allowances.createAdjustment({
      clientId: world.app.clientId,
      externalUserId: 'ada',
      amountUsdMicros,
      reason: 'r',
      author: 'a',
      eventId,
      uncovered: undefined,
      idempotencyKey: undefined,
    })

  it('is limited to the retail price that the user was charged', async () => {
    // 551515.15 micros: the last one is partial.
    expect((await refusal(adjust('551517', 'now'))).message).toContain('551516')
    await adjust('551516', 'now')
    expect(
      await world.rows(`select sum(amount_attos) from adjustments where event_id = 'now'`),
    ).toEqual([{ sum: '551515151515181100' }])
    expect(await outcome(adjust('1', 'now'))).toBe('CONFLICT')
    expect(await outcome(adjust('1', 'free'))).toBe('CONFLICT')
    expect(await verified()).toContain('the books are right')
  })
})
