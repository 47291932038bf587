import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertVersion } from '../../../core/plans/offers/store.ts'
import { followDue } from '../../../core/plans/subscriptions/follow.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { later } from '../../../core/shared/clocks/clocks.ts'
import { startSidecar } from '../balances/escrow/granting.ts'
import { tollgate } from '../books/support.ts'
import { type TestApp, day, outcome } from '../support.ts'
import {
  usd,
  clocks,
  ledger,
  world,
  operator,
  shop,
  starter,
  plans,
  newShop,
  newPlan,
  newUser,
  newUserOf,
  balance,
  ticket,
  wrongSums,
  repeats,
  expectSums,
  expectProof,
  setStarter,
  raisesBy,
  setUpShop,
} from './subscriptions-world.ts'

setUpShop()

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
    const { advanced } = await operator.testClocks.advanceTestClock({ clientId, move: advance })
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
      await operator.plans.updatePlan({ clientId: app.clientId, planId: starter, planJson })
    }
    if (step.do === 'expire') await ledger.sweep(world.sql, at)
    if (step.do === 'resume')
      await outcome(operator.subscriptions.resumeSubscription({ ...of, confirm: true }))
    if (step.do === 'cancel')
      await outcome(
        operator.subscriptions.cancelSubscription({ ...of, confirm: true, timing: step.timing }),
      )
    if (step.do === 'change') {
      const planId = plans[step.plan]?.id ?? ''
      const request = { ...of, planId, timing: step.timing, idempotencyKey: undefined }
      await outcome(operator.subscriptions.updateSubscription(request))
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
      await operator.subscriptions.updateSubscription({
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
    await operator.subscriptions.updateSubscription({ ...to, ...now })
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
    await operator.subscriptions.updateSubscription({ ...to, ...later })
    world.clock.advance(day)
    expect(await left(user)).toBe('0')
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
    await operator.subscriptions.updateSubscription({
      ...change,
      planId: plans[0]?.id ?? '',
      timing: 'next_billing_cycle',
    })
    expect((await sidecar.heartbeat()).recalled).toEqual([])
    await operator.subscriptions.updateSubscription({
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
    await operator.subscriptions.updateSubscription({
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
