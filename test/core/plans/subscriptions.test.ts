import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/allowances/ledger.ts'
import { type PlanTerms, freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan, insertVersion } from '../../../core/plans/offers/store.ts'
import { followDue } from '../../../core/plans/subscriptions/follow.ts'
import { createRaises } from '../../../core/plans/subscriptions/raises.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type Pool, createPool } from '../../../core/lib/sql.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { createClocks, later } from '../../../core/platform/clocks/clocks.ts'
import { type AppId, appId } from '../../../core/platform/ids.ts'
import { startSidecar } from '../allowances/escrow/granting.ts'
import { type BooksWorld, startBooks, tollgate } from '../books/support.ts'
import { type TestApp, begin, day, outcome, serviceToken, until } from '../support.ts'

/**
 * Changes of plan with a real ledger: no sequence of actions loses money or enters a period twice.
 */

const usd = 10n ** 18n
const clocks = createClocks()
const ledger = createLedger({ clocks })

/** An app with plans to change between. */
interface Shop {
  readonly app: TestApp
  readonly id: AppId
  readonly starter: string
  readonly plans: { readonly id: string; version: number }[]
}

let world: BooksWorld
let operator: ReturnType<typeof connectCore>
let shop: Shop
let starter: string
let plans: Shop['plans']
beforeAll(async () => {
  world = await startBooks()
  operator = connectCore({ target: world.core.target, token: serviceToken })
  shop = await newShop(world.app)
  ;({ starter, plans } = shop)
})
afterAll(async () => {
  operator.close()
  await world.stop()
})

async function newShop(app: TestApp): Promise<Shop> {
  const [row] = await world.rows(
    'select c.app_id, p.id from clients c join plans p using (app_id) where client_id = $1 and p.is_starter_default',
    [app.clientId],
  )
  const id = appId(row?.['app_id'] ?? '')
  const offers = [
    await newPlan({ billingCycle: 'daily', included: usdAttos(3n * usd) }, id),
    await newPlan({ billingCycle: 'weekly', included: usdAttos(11n * usd) }, id),
    await newPlan({ billingCycle: 'monthly', included: usdAttos(0n) }, id),
  ]
  return { app, id, starter: row?.['id'] ?? '', plans: offers }
}

async function newPlan(terms: Partial<PlanTerms>, app = shop.id) {
  const id = randomUUID()
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  const all = { ...freeTerms, ...terms }
  await insertPlan(world.sql, { appId: app, id, name: id, ...kind }, { terms: all, at: begin })
  return { id, version: 1 }
}

const newUser = async (): Promise<string> => newUserOf(world.app)

async function newUserOf({ basic, clientId }: TestApp): Promise<string> {
  const externalUserId = randomUUID()
  await world.as(basic).upsertUser({ clientId, externalUserId })
  return externalUserId
}

const balance = (externalUserId: string, { basic, clientId } = world.app) =>
  world.as(basic).getBalance({ clientId, externalUserId })

const ticket = (authId: string, micros: bigint, signedAt: Date) =>
  world.ingest({
    auth_id: authId,
    // 3000 USD per ETH.
    computed_fee: String((micros * 10n ** 12n) / 3_000n),
    current_time: signedAt.toISOString(),
  })

/** Finds users with grants other than the sum of consumed, expired and remaining amounts. */
const wrongSums = () =>
  world.rows(`
    select b.user_id
    from balances b
    left join lateral (
      select coalesce(sum(amount_attos), 0) as granted, coalesce(sum(remaining_attos), 0) as remaining
      from grants
      where app_id = b.app_id and user_id = b.user_id) g on true
    where b.granted_attos <> g.granted or b.balance_attos <> g.remaining
      or b.granted_attos <> b.consumed_attos - b.overage_attos + b.expired_attos + b.balance_attos`)

/** Finds included usage that an app's users got twice, and periods entered after a later one. */
const repeats = ({ id }: Shop) =>
  world.rows(
    `select user_id, effective_at
     from grants
     where app_id = $1 and kind = 'included'
     group by user_id, effective_at
     having count(*) > 1
     union all
     select a.user_id, a.starts_at
     from periods a join periods b using (app_id, user_id)
     where app_id = $1 and a.starts_at < b.starts_at and a.entered_at > b.entered_at`,
    [id],
  )

const expectSums = async (): Promise<void> => expect(await wrongSums()).toEqual([])

const expectProof = async (): Promise<void> => {
  const { text } = await tollgate('verify')
  expect(text).toContain('the books are right')
}

/**
 * Sets the included usage of Starter as an owner does. The request starts to grant the difference.
 */
async function setStarter(micros: string): Promise<void> {
  const planJson = JSON.stringify({ includedUsdMicros: micros })
  await operator.changePlan({ clientId: world.app.clientId, planId: starter, planJson })
}

/** Four pools, which look like four cores to the database. */
const renewingPools = (connectionString: string): Pool[] =>
  Array.from({ length: 4 }, () => {
    const pool = createPool({
      url: connectionString,
      name: 'renewing',
      max: 1,
      statementTimeoutMs: 30_000,
    })
    pool.on('error', () => {})
    return pool
  })

/**
 * Terminates connections of `renewingPools` during transactions until the work is done. Returns
 * their number.
 */
async function whileKilling(work: () => Promise<unknown>): Promise<number> {
  let kills = 0
  const over = new AbortController()
  async function kill(): Promise<void> {
    while (!over.signal.aborted && kills <= 12) {
      const { rowCount } = await world.sql.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'renewing' and state <> 'idle' limit 1`,
      )
      kills += rowCount ?? 0
      await new Promise((resolve) => setTimeout(resolve, 3))
    }
  }
  const killing = kill()
  await work()
  over.abort()
  await killing
  return kills
}

const raisesBy = (pool: Pool): Promise<number> =>
  createRaises({
    pool,
    ledger,
    stopping: new AbortController().signal,
    log: silentLog(),
    clocks,
    now: world.clock.now,
  }).raiseStarters()

describe('random plan changes, tickets, sweeps and waits', () => {
  const action = fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant('wait' as const), hours: fc.nat(900) }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('spend' as const),
        micros: fc.bigInt({ min: 1n, max: 4_000_000n }),
        hoursAgo: fc.nat(30),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('change' as const),
        plan: fc.nat(2),
        timing: fc.constantFrom('immediate', 'next_billing_cycle'),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('cancel' as const),
        timing: fc.constantFrom('immediate', 'next_billing_cycle'),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('resume' as const) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant('version' as const),
        plan: fc.nat(2),
        cycle: fc.constantFrom('daily' as const, 'weekly' as const, 'monthly' as const),
        included: fc.nat(9),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant('starter' as const), included: fc.nat(9) }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('raise' as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('read' as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('renew' as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('follow' as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('expire' as const) }) },
  )
  type Action = typeof action extends fc.Arbitrary<infer T> ? T : never
  const move = fc.record({
    do: fc.constant('move' as const),
    hours: fc.integer({ min: 1, max: 900 }),
  })
  type Move = typeof move extends fc.Arbitrary<infer T> ? T : never

  /** Moves the clock of a test app. All due work is done when the call returns. */
  async function moveClock({ clientId }: TestApp, { hours }: Move): Promise<void> {
    const advance = { to: undefined, advanceSeconds: hours * 3_600 }
    const { advanced } = await operator.moveTestClock({ clientId, move: advance })
    expect(advanced?.pending).toBe(false)
  }

  async function act(
    step: Action,
    user: string,
    { app, id, plans, starter } = shop,
  ): Promise<void> {
    const of = { clientId: app.clientId, externalUserId: user }
    const at = world.clock.now()
    if (step.do === 'wait') world.clock.advance(step.hours * 3_600_000 + 1)
    if (step.do === 'spend')
      await ticket(`${app.clientId}:${user}`, step.micros, later(at, -step.hoursAgo * 3_600_000))
    if (step.do === 'read') await balance(user, app)
    if (step.do === 'renew') await ledger.renew(world.sql, at)
    if (step.do === 'follow') {
      await followDue(world.sql, at)
      await followDue(world.sql, await clocks.timeOf(world.sql, id, at), { app: id })
    }
    if (step.do === 'raise') await raisesBy(world.sql)
    if (step.do === 'starter') {
      const planJson = JSON.stringify({ includedUsdMicros: String(step.included * 1e6) })
      await operator.changePlan({ clientId: app.clientId, planId: starter, planJson })
    }
    if (step.do === 'expire') await ledger.sweep(world.sql, at)
    if (step.do === 'resume') await outcome(operator.keepSubscription(of))
    if (step.do === 'cancel')
      await outcome(operator.endSubscription({ ...of, timing: step.timing }))
    if (step.do === 'change') {
      const planId = plans[step.plan]?.id ?? ''
      const request = { ...of, planId, timing: step.timing, idempotencyKey: undefined }
      await outcome(operator.switchSubscription(request))
    }
    if (step.do === 'version') {
      const plan = plans[step.plan]
      if (!plan) return
      plan.version++
      const included = usdAttos(BigInt(step.included) * usd)
      const terms = { ...freeTerms, billingCycle: step.cycle, included }
      // For a version made in the same millisecond as a period, verify and the ledger choose
      // differently.
      world.clock.advance(1)
      const since = await clocks.timeOf(world.sql, id, world.clock.now())
      await insertVersion(
        world.sql,
        { appId: id, id: plan.id },
        { version: plan.version, terms, at: since },
      )
    }
  }

  it('keep correct sums at every step, and pass verify', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 25 }), async (steps) => {
        const user = await newUser()
        world.clock.advance(1_000)
        for (const step of steps) {
          await act(step, user)
          expect(await wrongSums()).toEqual([])
        }
        await expectProof()
      }),
      { numRuns: 12 },
    )
  }, 240_000)

  it('keep correct sums and enter each period once while a test clock moves', async () => {
    const steps = fc.array(
      fc.oneof({ weight: 3, arbitrary: action }, { weight: 2, arbitrary: move }),
      {
        minLength: 6,
        maxLength: 12,
      },
    )
    await fc.assert(
      fc.asyncProperty(steps, async (history) => {
        const ahead = await newShop(await world.newApp({ isTest: true }))
        const user = await newUserOf(ahead.app)
        world.clock.advance(1_000)
        for (const step of history) {
          if (step.do === 'move') await moveClock(ahead.app, step)
          else await act(step, user, ahead)
          expect(await wrongSums()).toEqual([])
        }
        expect(await repeats(ahead)).toEqual([])
        await expectProof()
      }),
      { numRuns: 4 },
    )
  }, 120_000)

  it('end in the same periods regardless of reads in between', async () => {
    const [plan] = [await newPlan({ billingCycle: 'monthly', included: usdAttos(2n * usd) })]
    const users = await Promise.all([newUser(), newUser(), newUser()])
    const start = world.clock.now()
    for (const externalUserId of users)
      await operator.switchSubscription({
        clientId: world.app.clientId,
        externalUserId,
        planId: plan?.id ?? '',
        timing: 'next_billing_cycle',
        idempotencyKey: undefined,
      })
    const [reader, swept, idle] = users
    for (let days = 0; days < 95; days += 19) {
      world.clock.set(new Date(start.getTime() + days * day))
      await balance(reader ?? '')
      if (days > 40) await followDue(world.sql, world.clock.now())
      if (days === 76) await ledger.renew(world.sql, world.clock.now())
    }
    world.clock.set(new Date(start.getTime() + 100 * day))
    for (const user of [idle, swept, reader]) await balance(user ?? '')
    const periods = await world.rows(
      `select distinct period_start, period_end from balances b join end_users u on u.id = b.user_id
       where u.external_user_id = any($1)`,
      [users],
    )
    expect(periods).toHaveLength(1)
    await expectSums()
    await expectProof()
  })
})

describe('included usage of free plans', () => {
  beforeAll(() => setStarter('5000000'))
  const left = async (user: string) => (await balance(user)).balance?.remainingUsdMicros
  const change = async (externalUserId: string, planId: string): Promise<string | undefined> => {
    world.clock.advance(1_000)
    const to = { clientId: world.app.clientId, externalUserId, planId }
    const now = { timing: 'immediate', idempotencyKey: undefined }
    await operator.switchSubscription({ ...to, ...now })
    return left(externalUserId)
  }
  const inMonth = (months: number, dayOfMonth: number): void => {
    const at = world.clock.now()
    world.clock.set(new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + months, dayOfMonth)))
  }

  it('is granted once per calendar month, across any plan changes', async () => {
    inMonth(1, 3)
    const user = await newUser()
    const given = BigInt((await left(user)) ?? '0')
    const less = await newPlan({ included: usdAttos(usd) })
    const more = await newPlan({ included: usdAttos((given + 3_000_000n) * 10n ** 12n) })
    const priced = await newPlan({ type: 'usage', included: usdAttos(2n * usd) })
    for (let rounds = 0; rounds < 5; rounds++) {
      expect(await change(user, less.id)).toBe('0')
      expect(await change(user, starter)).toBe('0')
    }
    expect(await change(user, priced.id)).toBe('2000000')
    expect(await change(user, more.id)).toBe('3000000')
    expect(await change(user, starter)).toBe('0')
    inMonth(1, 1)
    expect(await change(user, priced.id)).toBe('2000000')
    expect(await change(user, starter)).toBe(String(given))
    expect(await change(user, less.id)).toBe('0')
    inMonth(1, 5)
    expect(await left(user)).toBe('1000000')
    await expectSums()
    await expectProof()
  })

  it('is granted once per calendar day or week of the cycle, also after a scheduled change', async () => {
    inMonth(1, 10)
    const user = await newUser()
    const daily = await newPlan({ included: usdAttos(usd), billingCycle: 'daily' })
    expect(await change(user, daily.id)).toBe('0')
    world.clock.advance(day)
    expect(await left(user)).toBe('1000000')
    const to = { clientId: world.app.clientId, externalUserId: user, planId: starter }
    const later = { timing: 'next_billing_cycle', idempotencyKey: undefined }
    await operator.switchSubscription({ ...to, ...later })
    world.clock.advance(day)
    expect(await left(user)).toBe('0')
    await expectProof()
  })
})

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
    await operator.switchSubscription({
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
      operator.switchSubscription({
        clientId,
        externalUserId,
        planId,
        timing: 'immediate',
        idempotencyKey: undefined,
      })
    world.clock.advance(day)
    await switchTo(returning, empty.id)
    await operator.endSubscription({ clientId, externalUserId: returning, timing: 'immediate' })
    await setStarter('6000000')
    await until(async () => (await left(leaving)) === '6000000')
    await until(async () => (await left(returning)) === '1000000')
    await switchTo(leaving, paid.id)
    expect(await left(leaving)).toBe('0')
    await expectProof()
  })
})

describe('lease of a sidecar', () => {
  it('is recalled when the plan changes immediately', async () => {
    const user = await newUser()
    const of = { clientId: world.app.clientId, externalUserId: user }
    const change = { ...of, idempotencyKey: undefined }
    const sidecar = await startSidecar(world.as())
    const { lease, userId } = await sidecar.lend(world.app, user)
    expect(lease).toBeDefined()
    await operator.switchSubscription({
      ...change,
      planId: plans[0]?.id ?? '',
      timing: 'next_billing_cycle',
    })
    expect((await sidecar.heartbeat()).recalled).toEqual([])
    await operator.switchSubscription({
      ...change,
      planId: plans[2]?.id ?? '',
      timing: 'immediate',
    })
    expect((await sidecar.heartbeat()).recalled).toEqual([userId])
    const again = { leaseId: lease?.id ?? '' }
    expect((await sidecar.lend(world.app, user, again)).lease).toBeUndefined()
    await sidecar.report(world.app, user, { returned: [{ ...again, usedUsdAttos: '0' }] })
    // A user without a lease needs no recall: the next call gets a lease immediately.
    const other = await newUser()
    await operator.switchSubscription({
      ...change,
      externalUserId: other,
      planId: (await newPlan({ type: 'usage', included: usdAttos(usd) })).id,
      timing: 'immediate',
    })
    world.clock.advance(1_000)
    expect((await sidecar.lend(world.app, other)).lease).toBeDefined()
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

describe('tollgate subscription', () => {
  it('changes, cancels, resumes and shows a subscription', async () => {
    const user = await newUser()
    const plan = (await newPlan({ included: usdAttos(usd) })).id
    const of = ['--app', world.app.clientId, '--user', user]
    const run = async (action: string, ...more: string[]) =>
      (await tollgate('subscription', action, ...of, ...more)).text
    world.clock.advance(1_000)
    expect(await run('change', '--plan', plan, '--timing', 'immediate')).toContain(
      `on plan ${plan}`,
    )
    expect(await run('cancel')).toMatch(`stays on plan ${plan} until`)
    expect(await run('show')).toMatch(/canceled; period .*\nfrom .* on Starter\n/)
    expect(await run('resume')).toContain(`on plan ${plan}`)
    expect(await run('resume')).toContain('no change of plan is scheduled')
    expect(await run('change', '--plan', randomUUID())).toContain('the app has no such plan')
    const entries = await world.rows(
      `select action from audit_log where details ->> 'planId' = $1
         and action like 'subscription%' order by action`,
      [plan],
    )
    expect(entries.map(({ action }) => action)).toEqual([
      'subscription_changed',
      'subscription_resumed',
    ])
  })
})
