import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseExternalUserId } from '../../../core/platform/ids.ts'
import { createSealing } from '../../../core/platform/sealing/sealing.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { createHistory } from '../../../core/usage/history/history.ts'
import { createUsage } from '../../../core/usage/service.ts'
import { generateHistory, monthRange } from '../../support/history.ts'
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

interface Node {
  readonly [key: string]: unknown
}
interface Scan {
  readonly node: string
  readonly on: string
  readonly read: number
}

/** Returns the same pool, which also explains its queries, and the table scans in their plans. */
function explaining(pool: Pool): { pool: Pool; scans: Scan[] } {
  const scans: Scan[] = []
  const explain =
    (target: Pick<Pool, 'query'>) =>
    async (statement: string | { text: string; values: unknown[] }) => {
      const { text, values } =
        typeof statement === 'string' ? { text: statement, values: [] } : statement
      if (/^\s*(with|select)\b/.test(text)) {
        const { rows } = await target.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(
          `explain (analyze, format json) ${text}`,
          values,
        )
        collect(rows[0]?.['QUERY PLAN'][0].Plan, scans)
      }
      return target.query(text, values)
    }
  const proxied = <T extends object>(target: T, replaced: Record<string, unknown>): T =>
    new Proxy(target, {
      get: (of, name) =>
        typeof name === 'string' && name in replaced ? replaced[name] : bound(of, name),
    })
  const connect = async () => {
    const client = await pool.connect()
    return proxied(client, { query: explain(client) })
  }
  return { pool: proxied(pool, { query: explain(pool), connect }), scans }
}

function bound(of: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(of, name)
  return typeof value === 'function' ? value.bind(of) : value
}

const number = (value: unknown): number => (typeof value === 'number' ? value : 0)

function collect(node: Node | undefined, scans: Scan[]): void {
  if (!node) return
  const on = node['Relation Name']
  if (typeof on === 'string') {
    const each =
      number(node['Actual Rows']) +
      number(node['Rows Removed by Filter']) +
      number(node['Rows Removed by Index Recheck'])
    // A node that was planned but never run reads nothing.
    if (number(node['Actual Loops']) > 0)
      scans.push({ node: String(node['Node Type']), on, read: each * number(node['Actual Loops']) })
  }
  for (const child of Array.isArray(node['Plans']) ? node['Plans'] : []) collect(child, scans)
}

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
