import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseExternalUserId } from '../../../core/shared/ids.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { createHistory } from '../../../core/usage/history/history.ts'
import { createUsage } from '../../../core/usage/service.ts'
import { explaining } from '../../support/usage/explaining.ts'
import { generateHistory, monthRange } from '../../support/usage/history.ts'
import { createWorld, type World } from '../metering/harness.ts'

let world: World
let total = 0
beforeAll(async () => {
  world = await createWorld('2026-05-02T00:00:00Z')
  const habit = async (name: string, hours: number, perHour: number) => {
    const { user } = await world.users.upsert(
      world.app.id,
      { externalUserId: parseExternalUserId(name) },
      { name: 'test' },
    )
    return { appId: world.app.id, userId: user.id, hours, perHour }
  }
  // One user with most of the tickets, and enough others.
  const others = Array.from({ length: 50 }, (_, i) => habit(`user-${i}`, 100, 10))
  total = await generateHistory(world.pool, [
    await habit('ann', 720, 350),
    ...(await Promise.all(others)),
  ])
}, 120_000)
afterAll(() => world.stop())

const nothing = { startDate: undefined, endDate: undefined }
const page = { ...nothing, manifestId: undefined, limit: 50, cursor: undefined }
const sums = { ...nothing, groupBy: undefined, gatewayRequestId: undefined, includeRetail: false }
const deps = (pool: Pool) => ({
  pool,
  users: world.users,
  sealing: createSealing(['x'.repeat(32)]),
  now: () => world.clock.at,
})
const ofUser = { ...monthRange, groupBy: 'session' }

/** Returns the number of tickets that a call reads, and the kinds of scans. */
async function readOf(
  call: (pool: Pool) => Promise<unknown>,
): Promise<{ nodes: string[]; read: number }> {
  const { pool, scans } = explaining(world.pool)
  await call(pool)
  const tickets = scans.filter(({ on }) => on.startsWith('tickets_'))
  return {
    nodes: [...new Set(tickets.map(({ node }) => node))],
    read: tickets.reduce((sum, { read }) => sum + read, 0),
  }
}

describe('queries never scan all tickets', () => {
  const app = () => world.app.id
  it.each<[string, number, (pool: Pool) => Promise<unknown>]>([
    [
      'a page of a user',
      100,
      (pool) =>
        createHistory(deps(pool)).requests(app(), { ...page, startDate: '2026-01-01' }, 'ann'),
    ],
    [
      'a page of the app',
      5_000,
      (pool) => createHistory(deps(pool)).requests(app(), { ...page, startDate: '2026-01-01' }),
    ],
    [
      'a page in the middle',
      5_000,
      (pool) =>
        createHistory(deps(pool)).requests(app(), { ...page, endDate: '2026-04-15T12:30:00Z' }),
    ],
    [
      'a page of a manifest',
      500,
      (pool) =>
        createHistory(deps(pool)).requests(
          app(),
          { ...page, manifestId: '000186a0', startDate: '2026-01-01' },
          'ann',
        ),
    ],
    [
      'a page of sessions',
      0,
      (pool) => createHistory(deps(pool)).sessions(app(), { ...page, startDate: '2026-01-01' }),
    ],
    [
      "a user's page of sessions",
      0,
      (pool) =>
        createHistory(deps(pool)).sessions(app(), { ...page, startDate: '2026-01-01' }, 'ann'),
    ],
    [
      'a month by user',
      0,
      (pool) => createUsage(deps(pool)).query(app(), { ...sums, ...monthRange, groupBy: 'user' }),
    ],
    [
      'a month by day',
      0,
      (pool) => createUsage(deps(pool)).query(app(), { ...sums, ...monthRange, groupBy: 'day' }),
    ],
    [
      'a month by hour',
      0,
      (pool) => createUsage(deps(pool)).query(app(), { ...sums, ...monthRange, groupBy: 'hour' }),
    ],
    [
      "a month's costliest models by hour",
      0,
      (pool) =>
        createUsage(deps(pool)).query(app(), {
          ...sums,
          ...monthRange,
          groupBy: 'hourly_top_models',
        }),
    ],
    [
      'a month of one model',
      0,
      (pool) => createUsage(deps(pool)).query(app(), { ...sums, ...monthRange, modelId: 'sdxl' }),
    ],
    [
      'a month by manifest',
      0,
      (pool) =>
        createUsage(deps(pool)).query(app(), { ...sums, ...monthRange, groupBy: 'manifest' }),
    ],
    [
      'sessions that cross the ends of the range',
      3_000,
      (pool) =>
        createUsage(deps(pool)).query(
          app(),
          {
            ...sums,
            ...ofUser,
            startDate: '2026-04-10T00:20:00Z',
            endDate: '2026-04-12T00:20:00Z',
          },
          'ann',
        ),
    ],
    [
      'one gateway request',
      30_000,
      async (pool) => {
        const { items } = await createHistory(deps(world.pool)).requests(
          app(),
          { ...page, startDate: '2026-01-01' },
          'user-7',
        )
        return createUsage(deps(pool)).query(app(), {
          ...sums,
          gatewayRequestId: items[0]?.requestId,
        })
      },
    ],
  ])('%s reads at most %i tickets', async (_what, atMost, call) => {
    const { nodes, read } = await readOf(call)
    expect(nodes).not.toContain('Seq Scan')
    expect(read).toBeLessThanOrEqual(atMost)
    expect(total).toBeGreaterThan(300_000 - 1_000)
  })
})
