import { assert, asyncProperty, constantFrom, uniqueArray } from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { attos, startSidecar } from '../balances/escrow/granting.ts'
import { begin, serviceToken } from '../support.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

const seed = 20_260_310
let world: BooksWorld
const at = (seconds: number) => new Date(begin.getTime() + seconds * 1_000).toISOString()
const authId = (user: string) => `${world.app.clientId}:${user}`

beforeAll(async () => {
  world = await startBooks()
  const events = Array.from({ length: 60 }, (_, i) => ({
    auth_id: authId(['ada', 'bob', 'cy'][i % 3] ?? ''),
    session_id: `s${i % 5}`,
    sequence_number: Math.floor(i / 3),
    computed_fee: String(10n ** 14n + BigInt(i)),
    current_time: at(-i * 400),
    pipeline: ['live', 'fixed'][i % 2],
    billable_secs: `${i}.125`,
    pixels: i,
  }))
  await world.ingest(...events)
  await world
    .as(world.app.basic)
    .createGrant({ clientId: world.app.clientId, externalUserId: 'ada', amountUsdMicros: '77' })
  const sidecar = await startSidecar(world.as())
  await sidecar.lend(world.app, 'bob', { boundUsdAttos: attos(0.01) })
  await sidecar.reserve(world.app, 'ada', { bound: 0.02 })
})
afterAll(() => world.stop())

const rebuild = async (...more: string[]) =>
  JSON.parse((await tollgate('rebuild', '--json', '--app', world.app.clientId, ...more)).text)
    .apps[0]
const verified = async () => (await tollgate('verify')).code
const everything = async () => ({
  hours: await world.rows(`
    select (to_jsonb(u) || jsonb_build_object('billable_secs', trim_scale(billable_secs)))::text as row
    from usage_hourly u order by user_id, hour, pipeline, model_id`),
  // Omits the descriptive columns of a session: they come from the ticket that arrived first, and
  // tickets do not record their order.
  sessions: await world.rows(`
    select (to_jsonb(s) - array['manifest_id', 'app_name', 'pipeline', 'model_id']
            || jsonb_build_object('billable_secs', trim_scale(billable_secs)))::text as row
    from ticket_sessions s order by user_id, session_id`),
  balances: await world.rows(
    'select user_id, seq, balance_attos, granted_attos, topup_attos, adjusted_attos, consumed_attos, overage_attos, expired_attos, lent_attos, pending_attos, period_start, period_end, period_counts_from from balances order by user_id',
  ),
})

/** Statements that damage derived rows within the tables' constraints. */
const damages = [
  'delete from usage_hourly where pixels % 2 = 0',
  'update usage_hourly set ticket_count = ticket_count + 5, cost_attos = 0',
  `insert into usage_hourly select app_id, user_id, hour, 'ghost', model_id, 3, 0, 3, 3, 3, 3 from usage_hourly
     where pipeline = 'live' on conflict do nothing`,
  `update usage_hourly set billable_secs = billable_secs + 0.001 where pipeline = 'fixed'`,
  'delete from ticket_sessions',
  `delete from ticket_sessions where session_id = 's1'`,
  `update ticket_sessions set seen = '{[0,1)}', gapped = false, started_at = started_at + interval '1 minute', fee_wei = 1`,
  `insert into ticket_sessions select app_id, user_id, 'ghost', manifest_id, app_name, pipeline, model_id, started_at, last_at,
     2, 0, 1, 1, 1, 1, 0, 0, seen, gapped, suspected, suspected_at, lost_count from ticket_sessions where session_id = 's0' on conflict do nothing`,
  'update balances set granted_attos = granted_attos + 1, balance_attos = balance_attos + 1, seq = seq + 1',
  'update balances set consumed_attos = consumed_attos + 9, overage_attos = overage_attos + 9, topup_attos = 3',
  'update balances set lent_attos = lent_attos + 5, pending_attos = 0',
] as const

describe('tollgate rebuild', () => {
  it('creates missing sessions of older tickets, then has nothing to do', async () => {
    await rebuild()
    expect(await verified()).toBe(0)
    expect(await rebuild()).toMatchObject({
      clientId: world.app.clientId,
      usersDone: 3,
      usersTotal: 3,
      usageHourly: 0,
      ticketSessions: 0,
      balances: 0,
    })
  })

  it('restores the exact rows after any damage', async () => {
    const before = await everything()
    await assert(
      asyncProperty(
        uniqueArray(constantFrom(...damages), { minLength: 1, maxLength: 4 }),
        async (chosen) => {
          for (const damage of chosen) await world.damage(damage)
          expect(await verified()).toBe(1)
          await rebuild()
          expect(await everything()).toEqual(before)
        },
      ),
      { numRuns: 12, seed },
    )
    expect(await verified()).toBe(0)
  })

  it('restores a missing balance, in its period', async () => {
    const before = await everything()
    await world.damage('delete from balances')
    expect((await rebuild()).balances).toBe(3)
    expect((await everything()).balances.map(({ period_start: _start, ...row }) => row)).toEqual(
      before.balances.map(({ period_start: _start, ...row }) => row),
    )
    expect(
      await world.ingest({
        session_id: 's0',
        sequence_number: 99,
        computed_fee: '1',
        current_time: at(1),
      }),
    ).toMatchObject({ tickets: 1 })
    await rebuild()
    expect(await verified()).toBe(0)
  })

  it('only counts with --dry-run', async () => {
    await world.damage('update usage_hourly set fee_wei = fee_wei + 1')
    const damaged = await everything()
    const hours = damaged.hours.length
    expect((await tollgate('rebuild', '--dry-run', '--app', world.app.clientId)).text).toBe(
      `${world.app.clientId}  3 users: ${hours} hours, 0 sessions, 0 balances differ\n`,
    )
    expect(await everything()).toEqual(damaged)
    expect((await tollgate('rebuild', '--app', world.app.clientId)).text).toContain(
      `${hours} hours, 0 sessions, 0 balances repaired`,
    )
    expect(await verified()).toBe(0)
  })

  it('loses no tickets ingested at the same time', async () => {
    let sequence = 1_000
    const ingesting = async (user: string): Promise<void> => {
      for (let round = 0; round < 25; round++) {
        await world.ingest(
          ...Array.from({ length: 20 }, (_, i) => ({
            auth_id: authId(user),
            session_id: `${user}-live`,
            sequence_number: sequence++,
            computed_fee: '3',
            current_time: at(-i * 1_800),
            pipeline: 'live',
          })),
        )
      }
    }
    const rebuilding = async (): Promise<void> => {
      for (let round = 0; round < 8; round++) {
        await world.damage(damages[round % 4] ?? '')
        for await (const message of core.books.rebuildBooks({ clientId: undefined, dryRun: false }))
          last = message.kind
      }
    }
    const core = connectCore({ target: world.core.target, token: serviceToken })
    let last = ''
    await Promise.all([
      ingesting('ada'),
      ingesting('bob'),
      ingesting('new'),
      rebuilding(),
      rebuilding(),
    ])
    core.close()
    expect(last).toBe('done')
    await world.damage(`delete from usage_hourly where pipeline = 'ghost'`)
    await rebuild()
    expect(await verified()).toBe(0)
    expect(await world.rows(`select count(*) from tickets where fee_wei = 3`)).toEqual([
      { count: '1500' },
    ])
  })

  it('skips a user with a damaged ledger', async () => {
    const entry = `seq = 2 and kind = 'charge' and user_id = (select id from end_users where external_user_id = 'ada')`
    await world.damage(
      `update ledger_entries set amount_attos = amount_attos - 1e30 where ${entry}`,
    )
    const { code, text } = await tollgate('rebuild')
    expect([code, text]).toEqual([
      1,
      expect.stringMatching(
        /the ledger or the tickets of 1 users of app_\w+ are damaged and were not rebuilt \([\w-]{36}\); tollgate verify shows the damage/,
      ),
    ])
    await world.damage(
      `update ledger_entries set amount_attos = amount_attos + 1e30 where ${entry}`,
    )
    expect(await verified()).toBe(0)
  })

  it('rejects an unknown app', async () => {
    expect(await tollgate('rebuild', '--app', 'app_x')).toEqual({
      code: 1,
      text: 'tollgate: no app has this client id\n',
    })
    expect((await tollgate('rebuild', 'all')).code).toBe(2)
  })
})
