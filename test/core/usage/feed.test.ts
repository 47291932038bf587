import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { parseExternalUserId, userId as asUserId } from '../../../core/shared/ids.ts'
import { createFeed } from '../../../core/usage/feed/feed.ts'
import {
  type ChargeEntry,
  type ChargeKey,
  chargesBetween,
  currentSnapshot,
} from '../../../core/usage/feed/store.ts'
import { until } from '../support.ts'
import { createWorld, type World } from '../metering/harness.ts'

let world: World
let user: string
beforeAll(async () => {
  world = await createWorld()
  user = (
    await world.users.upsert(
      world.app.id,
      { externalUserId: parseExternalUserId('ann') },
      { name: 'test' },
    )
  ).user.id
})
afterAll(() => world.stop())

const entry = (seq: number) => ({
  text: `insert into ledger_entries (app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at, ticket_count, hash)
    values ($1, $2, $3, 'charge', -5, 2, 0, gen_random_uuid(), now(), 3, '\\x00')`,
  values: [world.app.id, user, seq],
})

describe('feed of charges', () => {
  it('delivers an entry once if its transaction ends long after later ones', async () => {
    const feed = createFeed({
      pool: world.pool,
      log: silentLog(),
      metrics: createMetrics('test'),
      pollMs: 20,
    })
    const seen: string[] = []
    let arrived = 0
    const follower = {
      appId: world.app.id,
      userId: null,
      owner: 'an account',
      charge: ({ key }: { key: { seq: string } }) => void seen.push(key.seq),
      arrived: () => {
        arrived++
      },
    }
    await feed.join(follower)
    const slow = await world.pool.connect()
    await slow.query('begin')
    await slow.query(entry(101))
    await world.pool.query(entry(102))
    await until(() => seen.includes('102'))
    await world.pool.query(entry(103))
    await until(() => seen.includes('103') && arrived > 5)
    expect(seen).toEqual(['102', '103'])
    await slow.query('commit')
    slow.release()
    await until(() => seen.length === 3)
    await world.pool.query(entry(104))
    const before = arrived
    await until(() => arrived > before + 3)
    feed.leave(follower)
    expect(seen).toEqual(['102', '103', '101', '104'])
  })

  it('reads between two snapshots in pages, including charges with overage', async () => {
    const from = await currentSnapshot(world.pool)
    for (const seq of [201, 202, 203, 204, 205]) await world.pool.query(entry(seq))
    const to = await currentSnapshot(world.pool)
    await world.pool.query(entry(206))
    const between = { from, to, apps: [world.app.id], userId: null, limit: 2 }
    const pages: string[][] = []
    for (let after: ChargeKey | null = null; ;) {
      const page: ChargeEntry[] = await chargesBetween(world.pool, { ...between, after })
      pages.push(page.map(({ key }) => key.seq))
      if (page.length < 2) break
      after = page.at(-1)?.key ?? null
    }
    expect(pages).toEqual([['201', '202'], ['203', '204'], ['205']])
    const [first] = await chargesBetween(world.pool, {
      ...between,
      after: null,
      userId: asUserId(user),
    })
    expect(first).toMatchObject({
      externalUserId: 'ann',
      cost: 7n,
      overage: 2n,
      balanceAfter: 0n,
      ticketCount: 3,
    })
    expect(
      await chargesBetween(world.pool, {
        ...between,
        after: null,
        userId: asUserId('11111111-1111-4111-8111-111111111111'),
      }),
    ).toEqual([])
  })

  it('limits the number of followers', async () => {
    const feed = createFeed({ pool: world.pool, log: silentLog(), metrics: createMetrics('test') })
    const follower = () => ({
      appId: world.app.id,
      userId: null,
      owner: 'an account',
      charge: () => {},
      arrived: () => {},
    })
    const all = Array.from({ length: 100 }, follower)
    await Promise.all(all.map((each) => feed.join(each)))
    await expect(feed.join(follower())).rejects.toMatchObject({ reason: 'RATE_LIMITED' })
    for (const each of all.splice(0, 1)) feed.leave(each)
    all.push(follower())
    await feed.join(all.at(-1) ?? follower())
    for (const each of all) feed.leave(each)
  })
})
