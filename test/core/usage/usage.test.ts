import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseExternalUserId } from '../../../core/shared/ids.ts'
import { countAppUnpriced } from '../../../core/metering/rates/store.ts'
import { createUsage, type Usage, type UsageQuery } from '../../../core/usage/service.ts'
import { sums } from '../../../core/usage/store.ts'
import type { ChargedRow, UsageReport } from '../../../core/usage/types.ts'
import { createWorld, envelope, recordRate, type World } from '../metering/harness.ts'

let world: World
let usage: Usage
const users: Record<string, string> = {}

// Session by session; ann's second extends beyond the end of April.
const events: [user: string, at: string, fee: string, pipeline: string, session: string][] = [
  ['ann', '2026-04-01T00:00:00Z', '1000000000000001', 'live:a', 's1'],
  ['ann', '2026-04-30T23:59:59.999999Z', '1', 'live:a', 's2'],
  ['bob', '2026-04-15T10:29:59.999Z', '2000000000000000', 'live:b', 's3'],
  ['bob', '2026-04-15T10:30:00Z', '1', 'live', 's4'],
  ['bob', '2026-04-15T10:59:59.999Z', '1', '', 's5'],
  ['bob', '2026-05-01T00:00:00Z', '5', 'live:b', 's3'],
  // No rate is known for this one.
  ['ann', '2026-04-20T12:00:00Z', '7', 'live:a', 's2'],
]

beforeAll(async () => {
  world = await createWorld('2026-05-02T00:00:00Z')
  for (const at of [
    '2026-04-01T00:00:00Z',
    '2026-04-30T23:55:00Z',
    '2026-04-15T10:25:00Z',
    '2026-04-15T10:55:00Z',
  ])
    await recordRate(world.pool, at)
  const metering = world.metering({ fixed: false })
  await metering.ingestEvents(
    events.map(([user, current_time, computed_fee, pipeline, session_id], sequence_number) =>
      envelope({
        auth_id: `${world.app.clientId}:${user}`,
        current_time,
        computed_fee,
        pipeline,
        sequence_number,
        session_id,
        request_id: sequence_number < 2 ? 'twice' : `r${sequence_number}`,
        manifest_id:
          session_id === 's5' ? '' : session_id === 's4' ? 'm3' : `m${session_id.slice(1)}`,
        billable_secs: 1.25,
      }),
    ),
  )
  await world.users.upsert(
    world.app.id,
    { externalUserId: parseExternalUserId('idle') },
    { name: 'test' },
  )
  for (const name of ['ann', 'bob', 'idle'])
    users[name] = (await world.users.get(world.app.id, name)).id
  usage = createUsage({ pool: world.pool, users: world.users, now: () => world.clock.at })
})
afterAll(() => world.stop())

const nothing: UsageQuery = {
  startDate: undefined,
  endDate: undefined,
  groupBy: undefined,
  gatewayRequestId: undefined,
  includeRetail: false,
}
const ask = (query: Partial<UsageQuery> = {}, of?: string): Promise<UsageReport> =>
  usage.query(world.app.id, { ...nothing, ...query }, of)
const between = async (startDate?: string, endDate?: string) =>
  (await ask({ startDate, endDate })).totals

function expectToAddUp({ rows, totals }: UsageReport): void {
  const sum = (value: (row: ChargedRow) => bigint): bigint =>
    rows.reduce((all, row) => all + value(row), 0n)
  expect({
    requests: sum((r) => r.requests),
    unpriced: sum((r) => r.unpriced),
    fee: sum((r) => r.fee),
    micros: sum((r) => r.micros),
    ownerMicros: sum((r) => r.ownerMicros),
  }).toEqual({
    requests: totals.requests,
    unpriced: totals.unpriced,
    fee: totals.fee,
    micros: totals.micros,
    ownerMicros: totals.ownerMicros,
  })
}

let other: World | undefined
const createOther = async (): Promise<World> => (other ??= await createWorld())
afterAll(() => other?.stop())

describe('usage', () => {
  it('sums everything, and reports how many tickets wait for a rate', async () => {
    expect((await ask()).totals).toEqual({
      requests: 7n,
      unpriced: 1n,
      fee: 3000000000000016n,
      cost: 9000000000000027000n,
      micros: 9000001n,
      ownerMicros: 9000001n,
      billableMicros: null,
      ownerWei: 3000000000000016n,
      platformFee: 0n,
      retail: 9_000_000_000_000_027_000n,
      platformWei: 0n,
      platformMicros: 0n,
      cutBasisPoints: null,
    })
  })

  it('includes whole days, instants to the millisecond, and partial hours from tickets', async () => {
    expect(await between('2026-04-01', '2026-04-30')).toMatchObject({ requests: 6n })
    expect(await between('2026-04-02', '2026-04-29')).toMatchObject({ requests: 4n, unpriced: 1n })
    expect(await between('2026-05-01')).toMatchObject({ requests: 1n, fee: 5n })
    expect(await between(undefined, '2026-04-30T23:59:59.999Z')).toMatchObject({ requests: 6n })
    expect(await between(undefined, '2026-05-01T00:00:00Z')).toMatchObject({ requests: 7n })
    expect(await between('2026-04-15T10:30:00Z', '2026-04-15T10:59:59.998Z')).toMatchObject({
      requests: 1n,
      fee: 1n,
    })
    expect(await between('2026-04-15T10:29:59.999Z', '2026-04-15T10:29:59.999Z')).toMatchObject({
      requests: 1n,
      fee: 2000000000000000n,
    })
    expect(await between('2026-04-15T12:30:00+02:00', '2026-04-15T11:15:00Z')).toMatchObject({
      requests: 2n,
      fee: 2n,
    })
    expect(await between('2026-04-15T10:30:00.001Z', '2026-04-15T10:30:00.002Z')).toMatchObject({
      requests: 0n,
      fee: 0n,
    })
    expect(await between('2020-01-01', '2020-01-31')).toMatchObject({
      requests: 0n,
      unpriced: 0n,
      fee: 0n,
      cost: 0n,
      micros: 0n,
    })
  })

  it('shows users, the most expensive first, in micros that add up to the total', async () => {
    const report = await ask({ groupBy: 'user' })
    expect(report.rows).toMatchObject([
      {
        userId: users['bob'],
        externalUserId: 'bob',
        requests: 4n,
        unpriced: 0n,
        fee: 2000000000000007n,
        cost: 6000000000000021000n,
        micros: 6000001n,
      },
      {
        userId: users['ann'],
        externalUserId: 'ann',
        requests: 3n,
        unpriced: 1n,
        fee: 1000000000000009n,
        cost: 3000000000000006000n,
        micros: 3000000n,
      },
    ])
    expectToAddUp(report)
  })

  it('shows pipelines with their models, missing ones as unknown', async () => {
    const report = await ask({ groupBy: 'pipeline_model' })
    expect(report.rows.map((row) => [row.pipeline, row.modelId, row.requests, row.micros])).toEqual(
      [
        ['live', 'b', 2n, 6000001n],
        ['live', 'a', 3n, 3000000n],
        ['live', 'unknown', 1n, 0n],
        ['unknown', 'unknown', 1n, 0n],
      ],
    )
    expectToAddUp(report)
  })

  it("shows a user's pipelines by day, in order of dates", async () => {
    const report = await ask({ groupBy: 'daily_pipeline' }, 'bob')
    expect(report.rows.map((row) => [row.day, row.pipeline, row.modelId, row.requests])).toEqual([
      ['2026-04-15', 'live', 'b', 1n],
      ['2026-04-15', 'live', 'unknown', 1n],
      ['2026-04-15', 'unknown', 'unknown', 1n],
      ['2026-05-01', 'live', 'b', 1n],
    ])
    expectToAddUp(report)
    await expect(ask({ groupBy: 'daily_pipeline' })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
      message: 'userId is required when groupBy=daily_pipeline',
    })
  })

  it('shows every day of the range, including those without usage', async () => {
    const april = await ask({ groupBy: 'day', startDate: '2026-04-01', endDate: '2026-04-30' })
    expect(april.rows.map(({ day }) => day)).toEqual(
      Array.from({ length: 30 }, (_, i) => `2026-04-${String(i + 1).padStart(2, '0')}`),
    )
    expect(
      april.rows
        .filter(({ requests }) => requests > 0n)
        .map(({ day, requests }) => [day, requests]),
    ).toEqual([
      ['2026-04-01', 1n],
      ['2026-04-15', 3n],
      ['2026-04-20', 1n],
      ['2026-04-30', 1n],
    ])
    expectToAddUp(april)
    const open = await ask({ groupBy: 'day' })
    expect([open.rows[0]?.day, open.rows.at(-1)?.day, open.rows.length]).toEqual([
      '2026-04-01',
      '2026-05-02',
      32,
    ])
    expect(
      (await ask({ groupBy: 'day', startDate: '2028-02-01', endDate: '2028-02-29' })).rows,
    ).toHaveLength(29)
    await expect(ask({ groupBy: 'day', startDate: '1970-01-01' })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })

  it('shows manifests, a session without one under its own id', async () => {
    const report = await ask({ groupBy: 'manifest' })
    expect(
      report.rows.map((row) => [
        row.manifestId,
        row.pipeline,
        row.modelId,
        row.requests,
        row.billableSecs,
      ]),
    ).toEqual([
      ['m3', 'live', 'b', 2n, '2.5'],
      ['m1', 'live', 'a', 1n, '1.25'],
      ['m2', 'live', 'a', 2n, '2.5'],
      ['m3', 'live', 'unknown', 1n, '1.25'],
      ['s5', 'unknown', 'unknown', 1n, '1.25'],
    ])
    expectToAddUp(report)
  })

  it('shows sessions, with only their usage in the range', async () => {
    const april = await ask({
      groupBy: 'session',
      startDate: '2026-04-15',
      endDate: '2026-04-30T23:00:00Z',
    })
    expect(
      april.rows.map((row) => [
        row.sessionId,
        row.externalUserId,
        row.requests,
        row.unpriced,
        row.firstAt?.toISOString(),
      ]),
    ).toEqual([
      ['s3', 'bob', 1n, 0n, '2026-04-15T10:29:59.999Z'],
      ['s4', 'bob', 1n, 0n, '2026-04-15T10:30:00.000Z'],
      ['s5', 'bob', 1n, 0n, '2026-04-15T10:59:59.999Z'],
      ['s2', 'ann', 1n, 1n, '2026-04-20T12:00:00.000Z'],
    ])
    expectToAddUp(april)
    const may = await ask({ groupBy: 'session', startDate: '2026-05-01' })
    expect(may.rows.map((row) => [row.sessionId, row.requests, row.fee])).toEqual([['s3', 1n, 5n]])
    const end = await ask({ groupBy: 'session', startDate: '2026-04-30T12:00:00Z' }, 'ann')
    expect(end.rows.map((row) => [row.sessionId, row.requests, row.fee])).toEqual([['s2', 1n, 1n]])
  })

  it('adds usage without a session row to the rest, so that all rows add up', async () => {
    const missing = await world.pool.query<{ row: string }>(
      `delete from ticket_sessions s where session_id = 's4' returning to_jsonb(s)::text as row`,
    )
    expect(missing.rowCount).toBe(1)
    const report = await ask({ groupBy: 'manifest' })
    expect(report.rows.at(-1)).toMatchObject({
      rest: true,
      manifestId: null,
      requests: 1n,
      fee: 1n,
      billableSecs: '1.25',
    })
    expectToAddUp(report)
    await world.pool.query(
      'insert into ticket_sessions select * from jsonb_populate_record(null::ticket_sessions, $1::jsonb)',
      [missing.rows[0]?.row],
    )
  })

  it('filters by user, by endUserId in either case or by externalUserId', async () => {
    const id = users['ann'] ?? ''
    for (const of of [id, id.toUpperCase(), 'ann'])
      expect((await ask({}, of)).totals).toMatchObject({ requests: 3n })
    expect(
      (await ask({ groupBy: 'user', startDate: '2026-04-30T23:30:00Z' }, 'ann')).rows,
    ).toMatchObject([{ externalUserId: 'ann', requests: 1n, fee: 1n }])
  })

  it('merges rows beyond the limit into one, so that all rows add up', async () => {
    const selection = {
      appId: world.app.id,
      userId: null,
      range: { start: null, end: null },
      requestId: null,
    }
    expect(await sums(world.pool, selection, { grouping: 'user', limit: 1 })).toMatchObject([
      { externalUserId: 'bob', requests: 4n, rest: false },
      { userId: null, externalUserId: null, requests: 3n, unpriced: 1n, rest: true },
    ])
    expect(
      await sums(world.pool, selection, { grouping: 'pipeline_model', limit: 1 }),
    ).toMatchObject([
      { modelId: 'b', requests: 2n },
      { pipeline: null, modelId: null, requests: 5n, rest: true },
    ])
    expect(await sums(world.pool, selection, { grouping: 'session', limit: 2 })).toMatchObject([
      { sessionId: 's3', requests: 2n },
      { sessionId: 's1', requests: 1n },
      { sessionId: null, requests: 4n, rest: true },
    ])
  })

  it('shows usage of deleted users as one unknown user', async () => {
    const values = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222']
    for (const user of values) {
      await world.pool.query(
        `insert into usage_hourly values ($1, $2, '2026-04-03T00:00:00Z', 'live', 'a', 2, 0, 3, 5, 1, 0)`,
        [world.app.id, user],
      )
    }
    const report = await ask({ groupBy: 'user', startDate: '2026-04-03', endDate: '2026-04-03' })
    await world.pool.query(`delete from usage_hourly where user_id = any($1)`, [values])
    expect(report.rows).toMatchObject([
      {
        userId: null,
        externalUserId: null,
        rest: false,
        requests: 4n,
        fee: 6n,
        cost: 10n,
        micros: 1n,
      },
    ])
    expectToAddUp(report)
  })

  it('shows a known user without usage as one row of zeros', async () => {
    expect((await ask({ groupBy: 'user' }, 'idle')).rows).toMatchObject([
      {
        userId: users['idle'],
        externalUserId: 'idle',
        requests: 0n,
        unpriced: 0n,
        fee: 0n,
        cost: 0n,
        micros: 0n,
      },
    ])
    expect((await ask({ groupBy: 'pipeline_model' }, 'idle')).rows).toEqual([])
  })

  it('shows the amount billed to each end user only on request', async () => {
    const report = await ask({ groupBy: 'user', includeRetail: true })
    expect(
      report.rows.map((row) => [row.externalUserId, row.billableMicros, row.retailRateUsd]),
    ).toEqual([
      ['bob', 6000001n, '0.000001'],
      ['ann', 3000000n, '0.000001'],
    ])
    expect(report.totals.billableMicros).toBe(9000001n)
    expect((await ask({ groupBy: 'user' })).rows.map((row) => row.billableMicros)).toEqual([
      null,
      null,
    ])
  })

  it('returns one gateway request with all of its tickets', async () => {
    const report = await ask({ gatewayRequestId: 'twice', groupBy: 'manifest' })
    expect(report.totals).toMatchObject({ requests: 2n, fee: 1000000000000002n })
    expect(report.rows.map((row) => [row.manifestId, row.requests])).toEqual([
      ['m1', 1n],
      ['m2', 1n],
    ])
    expect(
      report.events.map((event) => [
        event.signedAt,
        event.sessionId,
        event.requestId,
        event.usdAttosPerEth,
      ]),
    ).toEqual([
      ['2026-04-30T23:59:59.999999Z', 's2', 'twice', 3000n * 10n ** 18n],
      ['2026-04-01T00:00:00.000000Z', 's1', 'twice', 3000n * 10n ** 18n],
    ])
    expect((await ask({ gatewayRequestId: 'twice', endDate: '2026-04-29' })).totals).toMatchObject({
      requests: 1n,
    })
    expect((await ask({ gatewayRequestId: 'twice' }, 'bob')).totals).toMatchObject({ requests: 0n })
    expect(await ask({ gatewayRequestId: 'none' })).toMatchObject({
      totals: { requests: 0n },
      events: [],
    })
    expect((await ask()).events).toEqual([])
    expect(
      (await usage.query((await createOther()).app.id, { ...nothing, gatewayRequestId: 'twice' }))
        .events,
    ).toEqual([])
  })

  it("returns NOT_FOUND for an unknown user and for another app's user", async () => {
    const unknown = [
      'nobody',
      '00000000-0000-4000-8000-000000000000',
      '',
      'a\u0000b',
      'x'.repeat(300),
      'user:1',
    ]
    for (const of of unknown)
      await expect(ask({}, of)).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    const other = await createOther()
    await expect(usage.query(other.app.id, nothing, users['ann'])).rejects.toMatchObject({
      reason: 'NOT_FOUND',
    })
  })

  it.each([
    [{ startDate: '2026-04-31' }],
    [{ startDate: '04/01/2026' }],
    [{ endDate: 'yesterday' }],
    [{ endDate: '' }],
    [{ startDate: '2026-04-01T00:00:00' }],
    [{ startDate: '1775001600' }],
    [{ startDate: '2026-05-01', endDate: '2026-04-30' }],
    [{ startDate: '2026-05-01T00:00:00.001Z', endDate: '2026-05-01T00:00:00Z' }],
    [{ groupBy: 'manifests' }],
    [{ groupBy: '' }],
    [{ groupBy: 'USER' }],
    [{ gatewayRequestId: '' }],
  ])('rejects %j', async (query) => {
    await expect(ask(query)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })

  it('shows users their own usage, also by day and pipeline', async () => {
    const own = await world.users.get(world.app.id, 'bob')
    const query = { ...nothing, startDate: '2026-04-15', endDate: '2026-04-15' }
    expect((await usage.queryOwn(own, { ...query, groupBy: 'user' })).rows).toMatchObject([
      { externalUserId: 'bob', requests: 3n },
    ])
    expect((await usage.queryOwn(own, { ...query, groupBy: 'daily_pipeline' })).rows).toHaveLength(
      3,
    )
    expect((await usage.queryOwn(own, { ...query, gatewayRequestId: 'twice' })).events).toEqual([])
  })

  it("counts a user's tickets that wait for a rate", async () => {
    const ann = await world.users.get(world.app.id, 'ann')
    const bob = await world.users.get(world.app.id, 'bob')
    const keys = [ann, bob].map(({ appId, id }) => ({ appId, userId: id }))
    expect([...(await countAppUnpriced(world.pool, keys))]).toEqual([[ann.id, 1n]])
  })
})
