import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { createPlans } from '../../../core/plans/service.ts'
import type { Resubscribe } from '../../../core/plans/subscriptions/ports.ts'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../core/plans/offers/store.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { appId } from '../../../core/shared/ids.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { startSidecar } from '../balances/escrow/granting.ts'
import { type BooksWorld, startBooks, tollgate } from '../books/support.ts'
import { begin, day, outcome, serviceToken } from '../support.ts'

/** The service never deletes a subscription. If one is missing, the next access recreates it. */

let world: BooksWorld
let user: string
beforeAll(async () => {
  world = await startBooks()
})
afterAll(() => world.stop())
beforeEach(async () => {
  world.clock.set(begin)
  user = randomUUID()
  await upsert()
  world.clock.advance(40 * day)
})

const named = () => ({ clientId: world.app.clientId, externalUserId: user })
const upsert = () => world.as(world.app.basic).upsertUser(named())
const balance = async (): Promise<string | undefined> =>
  (await world.as(world.app.basic).getBalance(named())).balance?.balanceUsdMicros
const ticket = () =>
  world.ingest({
    auth_id: `${world.app.clientId}:${user}`,
    computed_fee: '1000000000000',
    current_time: world.clock.now().toISOString(),
  })
const slot = () =>
  world.rows(
    `select p.name, s.anchor_at, s.created_at from subscriptions s join plans p on p.id = s.plan_id
     join end_users u on u.id = s.user_id where u.external_user_id = $1`,
    [user],
  )
const lose = () =>
  world.rows(
    'delete from subscriptions s using end_users u where u.id = s.user_id and u.external_user_id = $1',
    [user],
  )
const verified = async (): Promise<void> =>
  expect((await tollgate('verify')).text).toContain('the books are right')

async function newPlan(billingCycle: 'weekly' | 'monthly'): Promise<string> {
  const [app] = await world.rows('select app_id from clients where client_id = $1', [
    world.app.clientId,
  ])
  const id = randomUUID()
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  const terms = { ...freeTerms, billingCycle, included: usdAttos(7n * 10n ** 18n) }
  const plan = { appId: appId(app?.['app_id'] ?? ''), id, name: id, ...kind }
  await insertPlan(world.sql, plan, { terms, at: begin })
  return id
}

function operate<Answer>(act: (core: CoreClient) => Promise<Answer>): Promise<Answer> {
  const operator = connectCore({ target: world.core.target, token: serviceToken })
  return act(operator).finally(() => operator.close())
}
const change = (planId: string, timing: string) =>
  operate((core) =>
    core.subscriptions.updateSubscription({
      ...named(),
      planId,
      timing,
      idempotencyKey: undefined,
    }),
  )

const doors: readonly (readonly [string, () => Promise<unknown>])[] = [
  ['the user is created again', upsert],
  [
    'the user is changed',
    () => world.as(world.app.basic).updateUser({ ...named(), email: 'a@b.example' }),
  ],
  ['a token is minted', () => world.as(world.app.basic).mintUserToken(named())],
  ['a signed ticket arrives', ticket],
  ['a call is authorised', async () => (await startSidecar(world.as())).lend(world.app, user)],
  ['the balance is read', balance],
  ['the allowance is read', () => world.as(world.app.basic).getAllowance(named())],
  [
    'the subscription is read',
    () => operate((core) => core.subscriptions.getSubscription(named())),
  ],
]
/** Requests that change a subscription. */
const changes: typeof doors = [
  [
    'its end is requested',
    async () => {
      const end = operate((core) =>
        core.subscriptions.cancelSubscription({ ...named(), confirm: true, timing: 'immediate' }),
      )
      expect(await outcome(end)).toBe('ALREADY_STARTER')
    },
  ],
  [
    'a scheduled change is cancelled',
    async () =>
      expect(
        await outcome(
          operate((core) => core.subscriptions.resumeSubscription({ ...named(), confirm: true })),
        ),
      ).toBe('NOTHING_TO_RESUME'),
  ],
  [
    'a change to Starter is requested',
    async () => {
      const starter = await world.rows(
        `select p.id from plans p join clients c using (app_id) where p.is_starter_default and c.client_id = $1`,
        [world.app.clientId],
      )
      expect(await outcome(change(starter[0]?.['id'] ?? '', 'immediate'))).toBe('REQUEST_INVALID')
    },
  ],
]

describe('user without a subscription row', () => {
  it.each([...doors, ...changes])('gets the same subscription back when %s', async (_, open) => {
    const before = await slot()
    expect(before).toMatchObject([{ name: 'Starter', created_at: begin.toISOString() }])
    await lose()
    await open()
    expect(await slot()).toEqual(before)
    world.clock.advance(31 * day)
    expect(await balance()).toBe('5000000')
    await verified()
  })

  it('gets it back by reading the own balance', async () => {
    const { accessToken } = await world.as(world.app.basic).mintUserToken(named())
    const before = await slot()
    await lose()
    const { balance: own } = await world.as(`Bearer ${accessToken}`).getOwnBalance()
    expect(own).toMatchObject({ balanceUsdMicros: '5000000' })
    expect(await slot()).toEqual(before)
  })

  it.each([
    ['a key of the user is validated', (key: string) => world.as().validateKey({ key })],
    [
      'a key of the user is exchanged',
      (subjectToken: string) =>
        world.as().exchangeToken({
          clientId: world.app.clientId,
          grantType: GrantType.tokenExchange,
          subjectToken,
          subjectTokenType: TokenType.accessToken,
        }),
    ],
  ])('gets the same subscription back when %s', async (_, open) => {
    const { apiKey = '' } = await world.as(world.app.basic).createKey(named())
    const before = await slot()
    await lose()
    await open(apiKey)
    expect(await slot()).toEqual(before)
    await verified()
  })

  it('can change to another plan immediately', async () => {
    const plan = await newPlan('monthly')
    await lose()
    const answer = await change(plan, 'immediate')
    expect(answer.change).toMatchObject({ planId: plan, timing: 'immediate' })
    // Starter has already given 5 USD this month.
    expect(await balance()).toBe('2000000')
    await verified()
  })

  it('is on Starter in a what-if', async () => {
    await balance()
    await ticket()
    await lose()
    world.clock.advance(day)
    const to = world.clock.now()
    const request = {
      from: begin.toISOString(),
      to: to.toISOString(),
      plans: [{ name: 'Twice', overageRateUsd: '0.000002' }],
      assign: { default: null },
    }
    const { whatIf } = await operate((core) =>
      core.whatIf.simulatePlans({
        clientId: world.app.clientId,
        requestJson: JSON.stringify(request),
      }),
    )
    expect(whatIf?.plans.map(({ plan }) => plan)).toContain('Starter')
    await balance()
  })

  it('gets it back from the sweep of expired credits', async () => {
    await lose()
    const ledger = createLedger({ resubscribe: (db, users) => again(db, users) })
    const plans = createPlans({ ledger })
    const again: Resubscribe = (db, users) => plans.startOnStarter(db, users, world.clock.now())
    await ledger.sweep(world.sql, world.clock.now())
    expect(await slot()).toMatchObject([{ name: 'Starter' }])
    expect(await balance()).toBe('5000000')
    await verified()
  })

  it('gets it back when a test clock passes the end of a credit', async () => {
    const trial = await world.newApp({ isTest: true })
    const names = ['ada', 'bob'].map((externalUserId) => ({
      clientId: trial.clientId,
      externalUserId,
    }))
    for (const name of names) await world.as(trial.basic).upsertUser(name)
    await world.rows(
      `delete from subscriptions s using end_users u, clients c
       where u.id = s.user_id and u.external_user_id = 'ada' and c.app_id = s.app_id and c.client_id = $1`,
      [trial.clientId],
    )
    const move = { to: undefined, advanceSeconds: 40 * 86_400 }
    await operate((core) => core.testClocks.advanceTestClock({ clientId: trial.clientId, move }))
    for (const name of names)
      expect((await world.as(trial.basic).getBalance(name)).balance).toMatchObject({
        balanceUsdMicros: '5000000',
      })
    await verified()
  })

  it('gets exactly one under concurrent requests', async () => {
    await balance()
    await lose()
    await Promise.all(doors.map(([, open]) => open()))
    expect(await slot()).toHaveLength(1)
    expect(
      await world.rows(
        `select 1 from grants g join end_users u on u.id = g.user_id where u.external_user_id = $1`,
        [user],
      ),
    ).toHaveLength(2)
    await verified()
  })

  it.each(['ends with its period', 'has a successor'])(
    'keeps a subscription that %s',
    async (what) => {
      const [first, second] = [await newPlan('monthly'), await newPlan('monthly')]
      await change(first, 'immediate')
      if (what === 'has a successor') await change(second, 'next_billing_cycle')
      else
        await operate((core) =>
          core.subscriptions.cancelSubscription({ ...named(), confirm: true, timing: undefined }),
        )
      const before = await slot()
      await Promise.all(doors.map(([, open]) => open()))
      expect(await slot()).toEqual(before)
      expect(before).toMatchObject([{ name: first }])
      await verified()
    },
  )

  it('does not block the renewal of other users', async () => {
    await lose()
    const other = randomUUID()
    await world.as(world.app.basic).upsertUser({ ...named(), externalUserId: other })
    world.clock.advance(40 * day)
    const ledger = createLedger()
    let entered = 0
    for (let count = 1; count > 0; entered += count)
      count = await ledger.renew(world.sql, world.clock.now())
    expect(entered).toBeGreaterThan(0)
    const late = await world.rows(
      `select u.external_user_id from balances b join end_users u on u.id = b.user_id
       where b.period_end <= $1 and u.external_user_id = any($2)`,
      [world.clock.now(), [user, other]],
    )
    expect(late).toEqual([{ external_user_id: user }])
    await upsert()
    expect(await balance()).toBe('5000000')
  })

  it('keeps the running period of another plan, then moves to Starter', async () => {
    const id = await newPlan('weekly')
    await change(id, 'immediate')
    const ends = new Date(world.clock.now().getTime() + 7 * day).toISOString()
    world.clock.advance(day)
    await lose()
    await ticket()
    expect(await slot()).toEqual([
      { name: 'Starter', anchor_at: ends, created_at: world.clock.now().toISOString() },
    ])
    // The ticket took 0.003 USD from the current period's 7 USD.
    expect(await balance()).toBe('6997000')
    world.clock.set(new Date(ends))
    expect(await balance()).toBe('5000000')
    expect(
      await world.rows(
        `select 1 from periods a join periods b using (app_id, user_id)
         join end_users u on u.id = user_id
         where u.external_user_id = $1 and a.plan_id = $2 and a.starts_at < b.starts_at and a.ends_at > b.starts_at`,
        [user, id],
      ),
    ).toEqual([])
  })
})
