import { beforeAll, describe, expect, it } from 'vitest'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertVersion } from '../../../core/plans/offers/store.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { day, until } from '../support.ts'
import {
  usd,
  ledger,
  world,
  operator,
  shop,
  starter,
  plans,
  newPlan,
  newUser,
  balance,
  expectSums,
  expectProof,
  setStarter,
  renewingPools,
  whileKilling,
  raisesBy,
  setUpShop,
} from './subscriptions-world.ts'

setUpShop()

describe('raised Starter plan', () => {
  const raises = () => raisesBy(world.sql)
  async function newestVersion(): Promise<number> {
    const [row] = await world.rows(
      'select max(version) as version from plan_versions where plan_id = $1',
      [starter],
    )
    return Number(row?.['version'])
  }
  /** Inserts a version like a core that dies right afterwards. */
  async function include(dollars: bigint): Promise<void> {
    const terms = { ...freeTerms, type: 'usage', included: usdAttos(dollars * usd) } as const
    const version = (await newestVersion()) + 1
    const plan = { appId: shop.id, id: starter }
    await insertVersion(world.sql, plan, { version, terms, at: world.clock.now() })
  }
  beforeAll(() => setStarter('5000000'))
  const left = async (user: string) => (await balance(user)).balance?.remainingUsdMicros

  it('grants the difference once per user under concurrent raises', async () => {
    const users = await Promise.all([newUser(), newUser(), newUser()])
    const other = await newUser()
    await operator.subscriptions.updateSubscription({
      clientId: world.app.clientId,
      externalUserId: other,
      planId: plans[2]?.id ?? '',
      timing: 'immediate',
      idempotencyKey: undefined,
    })
    world.clock.advance(day)
    await include(8n)
    world.clock.advance(1_000)
    await Promise.all([raises(), raises(), raises(), raises()])
    await raises()
    for (const user of users) expect(await left(user)).toBe('8000000')
    const gained = await world.rows(
      `select g.id from grants g join plan_versions v on v.created_at = g.effective_at and v.plan_id = $1
       join end_users u on u.id = g.user_id where u.external_user_id = any($2) and v.version = (select max(version) from plan_versions where plan_id = $1)`,
      [starter, users],
    )
    expect(gained).toHaveLength(users.length)
    await expectSums()
    await expectProof()
    // New users have the full amount from the start.
    const late = await newUser()
    expect(await left(late)).toBe('8000000')
    world.clock.advance(2 * 60_000)
    expect(await raises()).toBe(0)
    expect(await left(late)).toBe('8000000')
    expect(await world.rows('select 1 from starter_raises where finished_at is null')).toEqual([])
  })

  it('keeps the current amount until the next period when it includes less', async () => {
    const user = await newUser()
    world.clock.advance(1_000)
    const before = await left(user)
    await include(1n)
    await raises()
    expect(await left(user)).toBe(before)
    world.clock.advance(1_000)
    await include(9n)
    await raises()
    expect(await left(user)).toBe('9000000')
    world.clock.advance(32 * day)
    expect(await left(user)).toBe('9000000')
    await expectSums()
    await expectProof()
  })

  it('takes effect with the change', async () => {
    const users = await Promise.all(Array.from({ length: 130 }, newUser))
    world.clock.advance(1_000)
    const before = BigInt((await left(users[0] ?? '')) ?? '0')
    const more = String(before + 1_000_000n)
    await setStarter(more)
    const lacking = async (): Promise<number> => {
      const balances = await Promise.all(users.map(left))
      return balances.filter((each) => each !== more).length
    }
    // The request raises the first hundred users and a background task the others, before the next
    // upkeep.
    await until(async () => (await lacking()) === 0)
    await raises()
    expect(await lacking()).toBe(0)
    await expectSums()
    await expectProof()
  })

  it('grants the difference once per user when cores are killed', async () => {
    const users = await Promise.all(Array.from({ length: 300 }, newUser))
    world.clock.advance(1_000)
    const before = BigInt((await left(users[0] ?? '')) ?? '0')
    await include(before / 1_000_000n + 2n)
    world.clock.advance(1_000)
    const pools = renewingPools(world.databaseUrl)
    const raiseAll = async (pool: Pool): Promise<void> => {
      for (;;) {
        const count = await raisesBy(pool).catch(() => -1)
        if (count === 0) return
      }
    }
    const kills = await whileKilling(() => Promise.all(pools.map(raiseAll)))
    expect(kills).toBeGreaterThan(0)
    await raises()
    for (const user of users.filter((_, i) => i % 30 === 0))
      expect(await left(user)).toBe(String(before + 2_000_000n))
    const gained = await world.rows(
      `select count(*), count(distinct g.user_id) as users from grants g
       join plan_versions v on v.created_at = g.effective_at and v.plan_id = $1 and v.version = $3
       join end_users u on u.id = g.user_id where u.external_user_id = any($2)`,
      [starter, users, await newestVersion()],
    )
    expect(gained).toEqual([{ count: '300', users: '300' }])
    await Promise.all(pools.map((pool) => pool.end()))
    await expectSums()
    await expectProof()
  })

  it('is proved by verify when the user changes plans in the same millisecond', async () => {
    await setStarter('5000000')
    const [leaving, returning] = [await newUser(), await newUser()]
    const paid = await newPlan({ included: usdAttos(usd) })
    const empty = await newPlan({ included: usdAttos(0n) })
    const clientId = world.app.clientId
    const switchTo = (externalUserId: string, planId: string) =>
      operator.subscriptions.updateSubscription({
        clientId,
        externalUserId,
        planId,
        timing: 'immediate',
        idempotencyKey: undefined,
      })
    world.clock.advance(day)
    await switchTo(returning, empty.id)
    await operator.subscriptions.cancelSubscription({
      confirm: true,
      clientId,
      externalUserId: returning,
      timing: 'immediate',
    })
    await setStarter('6000000')
    await until(async () => (await left(leaving)) === '6000000')
    await until(async () => (await left(returning)) === '1000000')
    await switchTo(leaving, paid.id)
    expect(await left(leaving)).toBe('0')
    await expectProof()
  })
})

describe('periods that end at the same time', () => {
  it('are entered once while connections of four cores are killed', async () => {
    const users = await Promise.all(Array.from({ length: 400 }, newUser))
    const [{ ends } = { ends: '' }] = await world.rows(
      `select max(period_end) as ends from balances b join end_users u on u.id = b.user_id
       where u.external_user_id = any($1)`,
      [users],
    )
    world.clock.set(new Date(ends ?? ''))
    const pools = renewingPools(world.databaseUrl)
    async function renewAll(pool: Pool): Promise<void> {
      for (;;) {
        const count = await ledger.renew(pool, world.clock.now()).catch(() => -1)
        if (count === 0) return
      }
    }
    const kills = await whileKilling(() =>
      Promise.all([
        ...pools.map(renewAll),
        ...users.filter((_, i) => i % 7 === 0).map((user) => balance(user).catch(() => null)),
      ]),
    )
    expect(kills).toBeGreaterThan(0)
    const entered = await world.rows(
      `select distinct p.periods, g.included
       from end_users u
       cross join lateral (select count(*) as periods from periods where user_id = u.id) p
       cross join lateral (select count(*) as included from grants where user_id = u.id and kind = 'included') g
       where u.external_user_id = any($1)`,
      [users],
    )
    expect(entered).toEqual([{ periods: '2', included: '2' }])
    await Promise.all(pools.map((pool) => pool.end()))
    await expectSums()
    await expectProof()
  })
})
