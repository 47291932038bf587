import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readBooksConfig } from '../../../core/books/config.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, day, observedRate, serviceToken } from '../support.ts'
import { type BooksWorld, buildRoots, startBooks, tollgate } from './support.ts'

// The current month is March 2026; February and March stay.
let world: BooksWorld
let core: ReturnType<typeof connectCore>
let folder: string
let files: string[] = []
const tables = [
  'usage_hourly',
  'ticket_sessions',
  'ledger_entries',
  'grants',
  'envelopes',
  'rates',
] as const

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-archive-'))
  world = await startBooks({ ...observedRate, RETENTION_MONTHS: '1', ARCHIVE_DIR: folder })
  core = connectCore({ target: world.core.target, token: serviceToken })
  for (const month of ['12', '01', '02']) {
    const year = month === '12' ? 2025 : 2026
    for (const day of ['03', '28'])
      await core.metering.recordRate({
        usdPerEth: `3${month}1`,
        source: 'desk',
        observedAt: `${year}-${month}-${day}T10:00:00Z`,
      })
  }
  const signed = [
    '2025-12-03T10:00:01Z',
    '2025-12-28T10:05:00Z',
    '2026-01-03T10:00:00Z',
    '2026-01-28T10:09:00.5Z',
    '2026-02-28T10:01:00Z',
    begin.toISOString(),
  ]
  // One batch makes one charge per user, so charges span months.
  await world.ingest(
    ...signed.flatMap((current_time, sequence_number) =>
      ['ada', 'bob'].map((user) => ({
        auth_id: `${world.app.clientId}:${user}`,
        session_id: user,
        sequence_number,
        current_time,
        computed_fee: String(10n ** 14n + BigInt(sequence_number)),
      })),
    ),
  )
  await world.ingest(
    ...signed.map((current_time, i) => ({
      session_id: `own-${i}`,
      current_time,
      computed_fee: '7',
    })),
  )
  await tollgate('rebuild')
})
afterAll(async () => {
  core.close()
  await world.stop()
  await rm(folder, { recursive: true })
})

const archive = (...more: string[]) => tollgate('archive', ...more)
const verified = async () => (await tollgate('verify')).text
const kept = async () =>
  Object.fromEntries(
    await Promise.all(
      tables.map(async (table) => [
        table,
        await world.rows(`select * from ${table} t order by t::text`),
      ]),
    ),
  )
const tickets = () => world.rows('select * from tickets order by event_id')
const months = () =>
  world.rows(
    `select to_char(signed_at at time zone 'UTC', 'YYYY-MM') as month, count(*) from tickets group by 1 order by 1`,
  )

/** Builds the roots of today's tickets, as after midnight. */
async function nextDay(): Promise<void> {
  world.clock.advance(day)
  await buildRoots(world)
}

describe('tollgate archive', () => {
  it("waits for the root of the day on which a month's tickets were booked", async () => {
    const { code, text } = await archive()
    expect(code).toBe(0)
    for (const month of ['2025-12', '2026-01'])
      expect(text).toContain(
        `${month}  ${world.app.clientId}  6        waits: 6 tickets of the month wait for the root of the day on which they were booked\n`,
      )
    expect(await readdir(folder)).toEqual([])
    expect(await months()).toHaveLength(4)
    await nextDay()
  })

  it('only reports what is due with --dry-run', async () => {
    expect((await archive('--dry-run')).text).toBe(
      `month    app                           tickets  outcome\n2025-12  ${world.app.clientId}  6        is due\n2026-01  ${world.app.clientId}  6        is due\n`,
    )
    expect(await readdir(folder)).toEqual([])
    expect(await months()).toHaveLength(4)
  })

  it('waits for tickets that will be on an invoice', async () => {
    const dollar = '1000000000000000000'
    const ada = `user_id = (select id from end_users where external_user_id = 'ada' limit 1)`
    const kept = await archive('--dry-run')
    await world.damage(`
      update ledger_entries set overage_attos = overage_attos + ${dollar} where kind = 'charge' and ${ada};
      update balances set collects_by = 'ceiling', collect_step_attos = 1, collected_attos = collected_attos - ${dollar}
      where ${ada}`)
    const { text } = await archive('--dry-run')
    expect(text).toMatch(/2025-12 .* waits: [1-9][0-9]* tickets of the month wait for an invoice/)
    await world.damage(`
      update ledger_entries set overage_attos = overage_attos - ${dollar} where kind = 'charge' and ${ada};
      update balances set collects_by = null, collect_step_attos = null, collected_attos = collected_attos + ${dollar}
      where ${ada}`)
    expect(await archive('--dry-run')).toEqual(kept)
  })

  it('waits for tickets without a rate', async () => {
    await world.ingest({
      id: 'unpriced',
      session_id: 'u',
      current_time: '2025-12-15T00:00:00Z',
      computed_fee: '1',
    })
    expect((await archive('--dry-run')).text).toContain(
      '2025-12  ' + world.app.clientId + '  7        waits: 1 tickets of the month wait for a rate',
    )
    const command = './tollgate rate set'
    expect((await tollgate('status')).text).toContain(
      `Tickets that wait for a rate: 1\n  the oldest was signed 2025-12-15T00:00:00.000Z; to price it and later ones, record the price of that time:\n  ${command} USD_PER_ETH --at 2025-12-15T00:00:00.000Z\n`,
    )
    expect((await tollgate('rate', 'set', '2999.5')).text).toMatch(
      `the oldest was signed at 2025-12-15T00:00:00.000Z. If this was the price then, too:\n  ${command} 2999.5 --at 2025-12-15T00:00:00.000Z\n`,
    )
    const set = await tollgate('rate', 'set', '3000', '--at', '2025-12-15T00:00:00.000Z')
    expect(set.text).toBe('1 ETH = 3000 USD from 2025-12-15T00:00:00.000Z on (manual:operator)\n')
    const dryRun = async () => (await archive('--dry-run')).text
    await expect.poll(dryRun).toContain('7        waits: 1 tickets of the month wait for the root')
    await nextDay()
    expect(await dryRun()).toContain('7        is due')
    await tollgate('rebuild')
  })

  it('writes old months to files, drops their tickets, and keeps the books right', async () => {
    const before = await kept()
    const balances = await world.rows('select * from balances order by user_id')
    const { code, text } = await archive()
    expect([code, text]).toEqual([
      0,
      expect.stringContaining(`2025-12  ${world.app.clientId}  7        ${folder}`),
    ])
    files = (await readdir(folder)).toSorted().map((name) => join(folder, name))
    expect(files.map((file) => file.slice(folder.length + 1))).toEqual([
      `${world.app.clientId}.2025-12.1.ndjson.zst`,
      `${world.app.clientId}.2026-01.1.ndjson.zst`,
    ])
    expect(await months()).toEqual([
      { month: '2026-02', count: '3' },
      { month: '2026-03', count: '3' },
    ])
    expect(await kept()).toEqual(before)
    expect(await world.rows('select * from balances order by user_id')).toEqual(balances)
    expect(await verified()).toContain('the books are right')
    expect((await archive()).text).toBe('Nothing is due.\n')
  })

  it('still lets verify find errors in an archived month and its charges', async () => {
    await world.damage(
      `update usage_hourly set fee_wei = fee_wei + 3 where hour = '2026-01-28T10:00:00Z'`,
    )
    expect(await verified()).toMatch(
      /DIFFERENCE archives app_\w+ month=2026-01: fee_wei is \d+, should be \d+, by \+\d+\n/,
    )
    await world.damage(
      `update usage_hourly set fee_wei = fee_wei - 3 where hour = '2026-01-28T10:00:00Z'`,
    )
    await world.damage(
      `update archived_charges set cost_attos = cost_attos + 1 where month = '2026-01-01'`,
    )
    expect(await verified()).toMatch(/DIFFERENCE charges .*by -\d\n/)
    await world.damage(
      `update archived_charges set cost_attos = cost_attos - 1 where month = '2026-01-01'`,
    )
    expect((await tollgate('rebuild')).text).toContain('0 hours, 0 sessions, 0 balances repaired')
    expect(await verified()).toContain('the books are right')
  })

  it('recognises duplicates of archived events, and archives late tickets again', async () => {
    const late = {
      id: 'late',
      session_id: 'late',
      current_time: '2026-01-28T10:04:00Z',
      computed_fee: '11',
    }
    expect(
      await world.ingest(
        {
          id: 'unpriced',
          session_id: 'u',
          current_time: '2025-12-15T00:00:00Z',
          computed_fee: '1',
        },
        late,
      ),
    ).toMatchObject({ duplicates: 1, tickets: 1 })
    await tollgate('rebuild')
    expect(await verified()).toContain('the books are right')
    await nextDay()
    expect((await archive()).text).toContain(
      `2026-01  ${world.app.clientId}  1        ${join(folder, `${world.app.clientId}.2026-01.2.ndjson.zst`)}`,
    )
    expect(await verified()).toContain('the books are right')
  })

  it('is undone by an import that restores the exact tickets without charging', async () => {
    const [december = '', january = ''] = files
    const balances = await world.rows('select * from balances order by user_id')
    expect((await tollgate('import', january)).text).toContain(
      '0 tickets imported, 0 already present, 6 restored',
    )
    expect(await verified()).toContain('the books are right')
    expect((await tollgate('import', january)).text).toContain(
      '0 tickets imported, 6 already present, 0 restored',
    )
    expect((await tollgate('import', december)).text).toContain('7 restored')
    expect(
      (await tollgate('import', join(folder, `${world.app.clientId}.2026-01.2.ndjson.zst`))).text,
    ).toContain('1 restored')
    expect(await world.rows('select * from balances order by user_id')).toEqual(balances)
    expect(
      await world.rows(
        'select sum(tickets) as tickets, sum(cost_attos) as cost, (select count(*) from archived_charges) as charges from ticket_archives',
      ),
    ).toEqual([{ tickets: '0', cost: '0', charges: '0' }])
    expect(await months()).toHaveLength(4)
    await tollgate('rebuild')
    expect(await verified()).toContain('the books are right')
    expect((await tollgate('rebuild')).text).toContain('0 hours, 0 sessions, 0 balances repaired')
    // The roots of their booking days still prove the tickets.
    const receipt = [join(folder, 'receipt.json'), '--jwks', join(folder, 'keys.json')]
    expect((await tollgate('receipt', 'get', 'unpriced', '--out', ...receipt)).code).toBe(0)
    const { text } = await tollgate('receipt', 'verify', ...receipt)
    expect(text).toContain('ok     Place in the day')
    await Promise.all(['receipt', 'keys'].map((name) => rm(join(folder, `${name}.json`))))
    // A restored month stays for thirty days. Then it is archived again, and can be restored again
    // unchanged.
    expect((await archive()).text).toBe('Nothing is due.\n')
    const all = await tickets()
    world.clock.advance(31 * 86_400_000)
    expect((await archive()).text.split('\n')).toHaveLength(5)
    for (const name of (await readdir(folder)).filter((file) =>
      /2025-12\.2|2026-01\.3|2026-02\.1/.test(file),
    )) {
      expect((await tollgate('import', join(folder, name))).text).toContain(' 0 already present')
    }
    expect(await tickets()).toEqual(all)
    expect(await verified()).toContain('the books are right')
    world.clock.set(begin)
  })

  it('keeps a month when a file cannot be written', async () => {
    world.clock.advance(200 * 86_400_000)
    const before = await months()
    await rm(folder, { recursive: true })
    await writeFile(folder, 'no folder')
    expect((await archive()).code).toBe(1)
    expect(await months()).toEqual(before)
    await rm(folder)
    expect((await archive()).code).toBe(0)
    expect(await readdir(folder)).toHaveLength(4)
    expect((await readFile(join(folder, (await readdir(folder))[0] ?? ''))).length).toBeGreaterThan(
      100,
    )
    expect(await months()).toEqual([])
    expect(await verified()).toContain('the books are right')
    world.clock.set(begin)
  })

  it('creates partitions for this month and the next, even on the last day of a long month', async () => {
    const parts = async () =>
      (
        await world.rows(`select relname from pg_class where relname ~ '^tickets_20' order by 1`)
      ).map((row) => row['relname'])
    world.clock.set(new Date('2027-01-31T23:00:00Z'))
    const another = await world.startAnother()
    expect(await parts()).toEqual(expect.arrayContaining(['tickets_2027_01', 'tickets_2027_02']))
    await another.core.stop()
    world.clock.set(begin)
  })

  it('requires a retention, and a folder with it', async () => {
    const reader = createEnvReader({ RETENTION_MONTHS: '6' })
    readBooksConfig(reader)
    expect(reader.problems).toEqual(['ARCHIVE_DIR must be set when RETENTION_MONTHS is not 0'])
    const other = await startBooks()
    expect(await archive()).toEqual({
      code: 1,
      text: 'tollgate: RETENTION_MONTHS is 0: every month is kept\n',
    })
    await other.stop()
    expect((await archive('now')).code).toBe(2)
    expect((await archive('--help')).text).toContain('tollgate archive [--dry-run]')
  })
})
