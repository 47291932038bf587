import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as fc from 'fast-check'
import { parseExternalUserId } from '../../../core/ids.ts'
import { createUsage, type Usage, type UsageQuery } from '../../../core/usage/service.ts'
import { splitAtHours, sumByPipelineModel, sumByUser } from '../../../core/usage/store.ts'
import type { UsageReport } from '../../../core/usage/types.ts'
import { createWorld, envelope, recordRate, type World } from '../metering/harness.ts'

let world: World
let usage: Usage
const users: Record<string, string> = {}

const events: [user: string, at: string, fee: string, pipeline: string][] = [
  ['ann', '2026-04-01T00:00:00Z', '1000000000000001', 'live:a'],
  ['ann', '2026-04-30T23:59:59.999999Z', '1', 'live:a'],
  ['bob', '2026-04-15T10:29:59.999Z', '2000000000000000', 'live:b'],
  ['bob', '2026-04-15T10:30:00Z', '1', 'live'],
  ['bob', '2026-04-15T10:59:59.999Z', '1', ''],
  ['bob', '2026-05-01T00:00:00Z', '5', 'live:b'],
  // No rate is known for this one.
  ['ann', '2026-04-20T12:00:00Z', '7', 'live:a'],
]

beforeAll(async () => {
  world = await createWorld('2026-05-02T00:00:00Z')
  for (const at of ['2026-04-01T00:00:00Z', '2026-04-30T23:55:00Z', '2026-04-15T10:25:00Z', '2026-04-15T10:55:00Z']) await recordRate(world.pool, at)
  const metering = world.metering()
  await metering.ingestEvents(events.map(([user, current_time, computed_fee, pipeline], sequence_number) =>
    envelope({ auth_id: `${world.app.clientId}:${user}`, current_time, computed_fee, pipeline, sequence_number })))
  await world.users.upsert(world.app.id, { externalUserId: parseExternalUserId('idle') }, { name: 'test' })
  for (const name of ['ann', 'bob', 'idle']) users[name] = (await world.users.get(world.app.id, name)).id
  usage = createUsage({ pool: world.pool, users: world.users })
})
afterAll(() => world.stop())

const ask = (query: Partial<UsageQuery> = {}, of?: string): Promise<UsageReport> =>
  usage.query(world.app.id, { startDate: undefined, endDate: undefined, groupBy: undefined, ...query }, of)
const between = async (startDate?: string, endDate?: string) => (await ask({ startDate, endDate })).totals

describe('usage', () => {
  it('sums everything, and says how many wait for a rate', async () => {
    expect(await ask()).toEqual({
      totals: { requests: 7n, unpriced: 1n, fee: 3000000000000016n, cost: 9000000000000027000n, micros: 9000001n }, byUser: [], byPipelineModel: [],
    })
  })

  it('takes days whole, instants to their millisecond, and parts of hours from the tickets', async () => {
    expect(await between('2026-04-01', '2026-04-30')).toMatchObject({ requests: 6n })
    expect(await between('2026-04-02', '2026-04-29')).toMatchObject({ requests: 4n, unpriced: 1n })
    expect(await between('2026-05-01')).toMatchObject({ requests: 1n, fee: 5n })
    expect(await between(undefined, '2026-04-30T23:59:59.999Z')).toMatchObject({ requests: 6n })
    expect(await between(undefined, '2026-05-01T00:00:00Z')).toMatchObject({ requests: 7n })
    expect(await between('2026-04-15T10:30:00Z', '2026-04-15T10:59:59.998Z')).toMatchObject({ requests: 1n, fee: 1n })
    expect(await between('2026-04-15T10:29:59.999Z', '2026-04-15T10:29:59.999Z')).toMatchObject({ requests: 1n, fee: 2000000000000000n })
    expect(await between('2026-04-15T12:30:00+02:00', '2026-04-15T11:15:00Z')).toMatchObject({ requests: 2n, fee: 2n })
    expect(await between('2026-04-15T10:30:00.001Z', '2026-04-15T10:30:00.002Z')).toMatchObject({ requests: 0n, fee: 0n })
    expect(await between('2020-01-01', '2020-01-31')).toEqual({ requests: 0n, unpriced: 0n, fee: 0n, cost: 0n, micros: 0n })
  })

  it('shows users, the dearest first, in micros that add up to the total', async () => {
    const { totals, byUser } = await ask({ groupBy: 'user' })
    expect(byUser).toEqual([
      { userId: users['bob'], externalUserId: 'bob', requests: 4n, unpriced: 0n, fee: 2000000000000007n, cost: 6000000000000021000n, micros: 6000001n },
      { userId: users['ann'], externalUserId: 'ann', requests: 3n, unpriced: 1n, fee: 1000000000000009n, cost: 3000000000000006000n, micros: 3000000n },
    ])
    expect(totals.micros).toBe(9000001n)
  })

  it('shows pipelines with their models, unknown ones under unknown', async () => {
    const { totals, byPipelineModel } = await ask({ groupBy: 'pipeline_model' })
    expect(byPipelineModel.map((row) => [row.pipeline, row.modelId, row.requests, row.micros])).toEqual([
      ['live', 'b', 2n, 6000001n], ['live', 'a', 3n, 3000000n], ['live', 'unknown', 1n, 0n], ['unknown', 'unknown', 1n, 0n]])
    expect(byPipelineModel.reduce((sum, row) => sum + row.micros, 0n)).toBe(totals.micros)
    expect(totals).toMatchObject({ requests: 7n, unpriced: 1n })
  })

  it('narrows to a user by endUserId, in either case, or externalUserId', async () => {
    const id = users['ann'] ?? ''
    for (const of of [id, id.toUpperCase(), 'ann']) expect((await ask({}, of)).totals).toMatchObject({ requests: 3n })
    expect((await ask({ groupBy: 'user', startDate: '2026-04-30T23:30:00Z' }, 'ann')).byUser).toMatchObject([{ externalUserId: 'ann', requests: 1n, fee: 1n }])
  })

  it('bounds the rows: what is beyond them comes together in one, and all still add up', async () => {
    const selection = { appId: world.app.id, userId: null, range: { start: null, end: null } }
    expect(await sumByUser(world.pool, selection, 1)).toMatchObject([{ externalUserId: 'bob', requests: 4n }, { userId: null, externalUserId: null, requests: 3n, unpriced: 1n }])
    expect(await sumByPipelineModel(world.pool, selection, 1)).toMatchObject([{ modelId: 'b', requests: 2n }, { pipeline: 'other', modelId: 'other', requests: 5n }])
  })

  it('shows a known user without usage as one row of zeros', async () => {
    expect((await ask({ groupBy: 'user' }, 'idle')).byUser).toEqual([
      { userId: users['idle'], externalUserId: 'idle', requests: 0n, unpriced: 0n, fee: 0n, cost: 0n, micros: 0n }])
    expect((await ask({ groupBy: 'pipeline_model' }, 'idle')).byPipelineModel).toEqual([])
  })

  it('answers not found for a user of nobody or of another app', async () => {
    const unknown = ['nobody', '00000000-0000-4000-8000-000000000000', '', 'a\u0000b', 'x'.repeat(300), 'user:1']
    for (const of of unknown) await expect(ask({}, of)).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    const other = await createWorld()
    try {
      const ask = () => usage.query(other.app.id, { startDate: undefined, endDate: undefined, groupBy: undefined }, users['ann'])
      await expect(ask()).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    } finally {
      await other.stop()
    }
  })

  it.each([
    [{ startDate: '2026-04-31' }], [{ startDate: '04/01/2026' }], [{ endDate: 'yesterday' }], [{ endDate: '' }], [{ startDate: '2026-04-01T00:00:00' }],
    [{ startDate: '1775001600' }], [{ startDate: '2026-05-01', endDate: '2026-04-30' }], [{ startDate: '2026-05-01T00:00:00.001Z', endDate: '2026-05-01T00:00:00Z' }],
    [{ groupBy: 'manifest' }], [{ groupBy: '' }], [{ groupBy: 'USER' }],
  ])('refuses %j', async (query) => {
    await expect(ask(query)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })

  it('shows a user their own', async () => {
    const own = await world.users.get(world.app.id, 'bob')
    const report = await usage.queryOwn(own, { startDate: '2026-04-15', endDate: '2026-04-15', groupBy: 'user' })
    expect(report.byUser).toMatchObject([{ externalUserId: 'bob', requests: 3n }])
  })

  it('counts what of a user waits for a rate', async () => {
    const ann = await world.users.get(world.app.id, 'ann')
    const bob = await world.users.get(world.app.id, 'bob')
    expect([await usage.countUnpriced(ann.appId, ann.id), await usage.countUnpriced(bob.appId, bob.id)]).toEqual([1n, 0n])
  })
})

describe('a range', () => {
  it('falls apart into whole hours and edges that together are the range', () => {
    const instant = fc.option(fc.integer({ min: 0, max: 20_000_000 }).map((ms) => new Date(ms)))
    const holds = (start: Date | null, end: Date | null): boolean => {
      const { from, to, edges } = splitAtHours({ start, end })
      const inside = (at: number) => (start === null || at >= start.getTime()) && (end === null || at < end.getTime())
      const covered = (at: number) => {
        const hour = Math.floor(at / 3_600_000) * 3_600_000
        const whole = (from === null || hour >= from.getTime()) && (to === null || hour < to.getTime())
        return Number(whole) + edges.filter((edge) => at >= edge.start.getTime() && at < edge.end.getTime()).length
      }
      const probes = [start, end, from, to].flatMap((at) => (at ? [at.getTime() - 1, at.getTime(), at.getTime() + 1] : []))
      return [...probes, 5_000_000].every((at) => covered(at) === Number(inside(at)))
    }
    expect(() => fc.assert(fc.property(instant, instant, (a, b) =>
      a !== null && b !== null && a >= b ? true : holds(a, b)))).not.toThrow()
  })
})
