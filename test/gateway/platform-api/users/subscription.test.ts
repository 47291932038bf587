import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { insertPlan, insertVersion } from '../../../../core/plans/offers/store.ts'
import { type PlanTerms, freeTerms } from '../../../../core/plans/offers/plan.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId } from '../../../../core/shared/ids.ts'
import { begin, day } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'

const usd = 10n ** 18n

let real: Real
let app: RealApp
let user: string
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('sub')
})
afterAll(() => real.stop())
beforeEach(async () => {
  real.core.clock.set(begin)
  user = `u-${randomUUID()}`
  await real.core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: user })
  real.core.clock.advance(day)
})

async function idOf(clientId = app.clientId) {
  const { rows } = await real.core.sql.query<{ app_id: string }>(
    'select app_id from clients where client_id = $1',
    [clientId],
  )
  return appId(rows[0]?.app_id ?? '')
}

interface PlanOptions extends Partial<PlanTerms> {
  readonly status?: 'active' | 'inactive'
  readonly clientId?: string
}

async function newPlan(options: PlanOptions = {}): Promise<string> {
  const { status = 'active', clientId, ...terms } = options
  const id = randomUUID()
  const plan = { id, name: `Plan ${id}`, status, isNetworkDefault: false, isStarterDefault: false }
  const all = { ...freeTerms, included: usdAttos(7n * usd), ...terms }
  await insertPlan(
    real.core.sql,
    { ...plan, appId: await idOf(clientId) },
    { terms: all, at: begin },
  )
  return id
}

/** The members of an answer that tests read. */
interface Answer {
  readonly detail: string
  readonly subscriptionId: string
  readonly subscription: { readonly id: string; readonly planId: string }
  readonly pendingPlan: { readonly subscriptionId: string }
  readonly externalUserId: string
  readonly items: readonly { readonly current: boolean }[]
  readonly nextCursor: string
}

type Headers = Readonly<Record<string, string>>

async function ask(
  [method, path]: readonly [string, string],
  body?: unknown,
  headers: Headers = { authorization: app.basic },
): Promise<{ status: number; body: Answer }> {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}/users/${user}/${path}`, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  return { status: response.status, body: (await response.json()) as Answer }
}

const read = async () => (await ask(['GET', 'subscription'])).body
const change = (body: unknown, headers?: Headers) =>
  ask(['POST', 'subscription/change'], body, headers)
const end = (body: unknown) => ask(['DELETE', 'subscription'], body)
const resume = (body: unknown) => ask(['DELETE', 'subscription/pending-change'], body)

async function balance(): Promise<string> {
  const request = { clientId: app.clientId, externalUserId: user }
  const { balance: of } = await real.core.as(app.basic).getBalance(request)
  return of?.remainingUsdMicros ?? ''
}

const refused = (status: number, code: string) => ({ status, body: { code, status } })
const periodEnd = '2026-04-10T12:00:00.250Z'

describe('GET …/subscription', () => {
  it("returns a user's plan, with the running period to its last millisecond", async () => {
    const starter = await real.core.sql.query<{ id: string }>(
      'select id from plans where app_id = $1 and is_starter_default',
      [await idOf()],
    )
    const planId = starter.rows[0]?.id
    const expected = {
      externalUserId: user,
      source: 'ledger',
      subscription: {
        id: expect.any(String),
        status: 'active',
        planId,
        planName: 'Starter',
        planType: 'usage',
        openmeterPlanKey: null,
        currentPeriodStart: begin.toISOString(),
        currentPeriodEnd: '2026-04-10T12:00:00.249Z',
        openmeterSubscriptionId: null,
        stripeCheckoutSessionId: null,
        createdAt: begin.toISOString(),
        cancelledAt: null,
      },
      actionRequired: null,
      plan: { id: planId, status: 'active', phaseOutAt: null, replacementPlanId: null },
      pendingCancel: null,
      livePlan: {
        id: planId,
        name: 'Starter',
        type: 'usage',
        includedUsage: { usdMicros: '5000000', usd: '5.00' },
        effectiveAt: null,
      },
      pendingPlan: null,
    }
    expect(await read()).toEqual(expected)
    expect((await ask(['GET', 'subscription'], undefined, app.session)).body).toEqual(expected)
  })

  it('returns 404 for an unknown user, and without a credential', async () => {
    user = 'nobody'
    expect(await ask(['GET', 'subscription'])).toMatchObject(refused(404, 'not_found'))
    expect(await ask(['GET', 'subscription'], undefined, {})).toMatchObject(
      refused(404, 'not_found'),
    )
  })

  it('requires another plan when the plan was deleted', async () => {
    const plan = await newPlan()
    await change({ planId: plan, timing: 'immediate' })
    await real.core.sql.query('update plans set deleted_at = $2 where id = $1', [plan, begin])
    expect(await read()).toMatchObject({
      actionRequired: 'choose_new_plan',
      plan: { status: 'missing' },
    })
  })
})

describe('POST …/subscription/change', () => {
  it('refuses invalid input in this order', async () => {
    expect(await change('{')).toMatchObject(refused(400, 'request_invalid'))
    expect(await change({})).toMatchObject(refused(400, 'request_invalid'))
    expect((await change({ planId: ' ' })).body.detail).toContain('planId')
    const unknown = randomUUID()
    expect(await change({ planId: unknown, timing: 'later' })).toMatchObject(
      refused(400, 'request_invalid'),
    )
    const mine = user
    user = 'nobody'
    expect(await change({ planId: unknown })).toMatchObject(refused(404, 'not_found'))
    user = mine
    expect(await change({ planId: unknown })).toMatchObject(refused(404, 'not_found'))
    expect(await change({ planId: 'no-uuid' })).toMatchObject(refused(404, 'not_found'))
    const foreign = await real.newApp(`foreign-${randomUUID()}`)
    const theirs = await newPlan({ clientId: foreign.clientId })
    expect(await change({ planId: theirs })).toMatchObject(refused(404, 'not_found'))
    const deleted = await newPlan()
    await real.core.sql.query('update plans set deleted_at = $2 where id = $1', [deleted, begin])
    expect(await change({ planId: deleted })).toMatchObject(refused(404, 'not_found'))
    const inactive = await newPlan({ status: 'inactive' })
    expect(await change({ planId: inactive })).toMatchObject(refused(409, 'conflict'))
    const { subscription } = await read()
    const same = await change({ planId: subscription.planId })
    expect(same).toMatchObject(refused(400, 'request_invalid'))
    expect(same.body.detail).toBe('User is already on this plan')
    // Users of this app pay nothing, because its billing mode is owner_rollup.
    const priced = await newPlan({ priceAmount: '9.50' })
    expect(await change({ planId: priced })).toMatchObject(refused(403, 'stripe_connect_required'))
    expect(await read()).toMatchObject({ subscription, pendingPlan: null })
  })

  it('refuses the plan that shows network costs', async () => {
    const { rows } = await real.core.sql.query<{ id: string }>(
      'select id from plans where app_id = $1 and is_network_default',
      [await idOf()],
    )
    expect(await change({ planId: rows[0]?.id })).toMatchObject(refused(409, 'conflict'))
  })

  it("rejects the app's owner as a user", async () => {
    const { rows } = await real.core.sql.query<{ id: string }>(
      'update end_users set external_user_id = $2 where external_user_id = $1 returning id',
      [user, `owner:${randomUUID()}`],
    )
    const owner = await real.core.sql.query<{ name: string }>(
      'select external_user_id as name from end_users where id = $1',
      [rows[0]?.id],
    )
    user = owner.rows[0]?.name ?? ''
    expect(await change({ planId: randomUUID() })).toMatchObject(
      refused(400, 'owner_wallet_not_app_user'),
    )
    expect(await end({ confirm: true })).toMatchObject(refused(400, 'owner_wallet_not_app_user'))
  })

  it('requires the scope of a client, or the rights of a member', async () => {
    const plan = await newPlan()
    expect(await change({ planId: plan }, {})).toMatchObject(refused(404, 'not_found'))
    const unsafe = { ...app.session, 'x-csrf-token': 'wrong' }
    expect(await change({ planId: plan }, unsafe)).toMatchObject(refused(403, 'edit_forbidden'))
    expect(await change({ planId: plan }, app.session)).toMatchObject({ status: 200 })
  })

  it('takes effect at the end of the period by default', async () => {
    const before = await read()
    const plan = await newPlan()
    const { status, body } = await change({ planId: plan })
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        subscriptionId: before.subscription.id,
        planId: before.subscription.planId,
        effectiveAt: periodEnd,
        timing: 'next_billing_cycle',
        pendingPlan: {
          planId: plan,
          subscriptionId: expect.any(String),
          openmeterSubscriptionId: null,
          effectiveAt: periodEnd,
        },
      },
    })
    expect(await read()).toMatchObject({
      subscription: { status: 'active', planName: 'Starter' },
      pendingPlan: { id: plan, effectiveAt: periodEnd },
      pendingCancel: null,
    })
    expect(await balance()).toBe('5000000')
    real.core.clock.set(new Date(periodEnd))
    expect(await balance()).toBe('7000000')
    expect(await read()).toMatchObject({
      subscription: { id: body.pendingPlan.subscriptionId, planId: plan, createdAt: periodEnd },
      pendingPlan: null,
    })
  })

  it('takes effect immediately when requested, with its own period and the rest that Starter has not given', async () => {
    const plan = await newPlan({ billingCycle: 'weekly' })
    const at = real.core.clock.now().toISOString()
    expect((await change({ planId: plan, timing: 'immediate' })).body).toMatchObject({
      planId: plan,
      effectiveAt: at,
      timing: 'immediate',
    })
    expect(await balance()).toBe('2000000')
    expect(await read()).toMatchObject({
      subscription: {
        currentPeriodStart: at,
        currentPeriodEnd: '2026-03-18T12:00:00.249Z',
        createdAt: at,
      },
    })
  })

  it('replays the answer to the same Idempotency-Key, and changes once', async () => {
    const plan = await newPlan()
    const headers = { authorization: app.basic, 'idempotency-key': randomUUID() }
    const first = await change({ planId: plan, timing: 'immediate' }, headers)
    real.core.clock.advance(1_000)
    expect(await change({ planId: plan, timing: 'immediate' }, headers)).toEqual(first)
    expect(await change({ planId: plan }, headers)).toMatchObject(
      refused(409, 'idempotency_conflict'),
    )
    expect((await ask(['GET', 'subscriptions'])).body.items).toHaveLength(2)
  })

  it('keeps one subscription when two changes are concurrent', async () => {
    const [a, b] = [await newPlan(), await newPlan()]
    const answers = await Promise.all(
      [a, b, a, b].map((planId) => change({ planId, timing: 'immediate' })),
    )
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(1)
    const { items } = (await ask(['GET', 'subscriptions'])).body
    expect(items.filter(({ current }) => current)).toHaveLength(1)
    expect(await balance()).toBe('2000000')
  })
})

describe('DELETE …/subscription', () => {
  it('refuses invalid input in this order', async () => {
    expect(await end({ confirm: true, timing: 'later' })).toMatchObject(
      refused(400, 'request_invalid'),
    )
    expect(await end({})).toMatchObject(refused(400, 'confirm_required'))
    expect(await end({ confirm: false })).toMatchObject(refused(400, 'confirm_required'))
    expect(await end({ confirm: true })).toMatchObject(refused(404, 'already_starter'))
    await change({ planId: await newPlan(), timing: 'immediate' })
    expect(await end({ confirm: true })).toMatchObject({ status: 200 })
    expect(await end({ confirm: true })).toMatchObject(refused(400, 'already_scheduled'))
    await real.core.sql.query(
      'delete from subscriptions s using end_users u where u.id = s.user_id and u.external_user_id = $1',
      [user],
    )
    // A user without a subscription is put on Starter by the next request.
    expect(await end({ confirm: true })).toMatchObject(refused(404, 'already_starter'))
    expect(await read()).toMatchObject({ subscription: { planName: 'Starter' } })
  })

  it('refuses a user when there is no Starter plan', async () => {
    const marked = 'update plans set is_starter_default = $1 where name = $2 and app_id = $3'
    const lose =
      'delete from subscriptions s using end_users u where u.id = s.user_id and u.external_user_id = $1'
    await real.core.sql.query(marked, [false, 'Starter', await idOf()])
    await real.core.sql.query(lose, [user])
    try {
      expect(await end({ confirm: true })).toMatchObject(refused(404, 'no_subscription'))
      expect(await read()).toMatchObject({ subscription: null, source: 'ledger' })
    } finally {
      await real.core.sql.query(marked, [true, 'Starter', await idOf()])
    }
  })

  it('takes effect at the end of the period, and then the user is on Starter', async () => {
    const plan = await newPlan()
    const changed = await change({ planId: plan, timing: 'immediate' })
    const endsAt = '2026-04-11T12:00:00.250Z'
    expect((await end({ confirm: true })).body).toMatchObject({
      subscriptionId: changed.body.subscriptionId,
      planId: plan,
      effectiveAt: endsAt,
      timing: 'next_billing_cycle',
    })
    expect(await read()).toMatchObject({
      subscription: { status: 'canceled', cancelledAt: real.core.clock.now().toISOString() },
      pendingCancel: {
        subscriptionId: changed.body.subscriptionId,
        planId: plan,
        effectiveAt: endsAt,
      },
      pendingPlan: null,
    })
    expect(await balance()).toBe('2000000')
    real.core.clock.set(new Date(endsAt))
    expect(await balance()).toBe('5000000')
    expect(await read()).toMatchObject({
      subscription: { status: 'active', planName: 'Starter', createdAt: endsAt },
      pendingCancel: null,
    })
  })

  it('moves the user immediately when requested', async () => {
    await change({ planId: await newPlan(), timing: 'immediate' })
    real.core.clock.advance(1_000)
    expect(await end({ confirm: true, timing: 'immediate' })).toMatchObject({
      status: 200,
      body: { timing: 'immediate' },
    })
    expect(await balance()).toBe('0')
    expect(await read()).toMatchObject({ subscription: { planName: 'Starter', status: 'active' } })
  })
})

describe('DELETE …/subscription/pending-change', () => {
  it('refuses without confirmation, and when nothing is scheduled', async () => {
    expect(await resume({})).toMatchObject(refused(400, 'confirm_required'))
    expect(await resume({ confirm: true })).toMatchObject(refused(404, 'nothing_to_resume'))
  })

  it('cancels a scheduled end, and a scheduled change', async () => {
    await change({ planId: await newPlan(), timing: 'immediate' })
    await end({ confirm: true })
    expect(await resume({ confirm: true })).toMatchObject({ status: 200 })
    expect(await read()).toMatchObject({ subscription: { status: 'active' }, pendingCancel: null })
    await change({ planId: await newPlan() })
    expect(await resume({ confirm: true })).toMatchObject({ status: 200 })
    expect(await read()).toMatchObject({ pendingPlan: null })
    real.core.clock.advance(40 * day)
    expect(await balance()).toBe('7000000')
  })

  it('fails after the period has ended', async () => {
    await change({ planId: await newPlan() })
    real.core.clock.set(new Date(periodEnd))
    expect(await resume({ confirm: true })).toMatchObject(refused(404, 'nothing_to_resume'))
  })
})

describe('GET …/subscriptions', () => {
  it('lists past, current and future subscriptions, latest first, in pages', async () => {
    const [second, third] = [await newPlan(), await newPlan()]
    const at = real.core.clock.now().toISOString()
    await change({ planId: second, timing: 'immediate' })
    await change({ planId: third })
    const { body } = await ask(['GET', 'subscriptions'])
    expect(body.externalUserId).toBe(user)
    expect(body.items).toMatchObject([
      { status: 'scheduled', current: false, planId: third, activeTo: null },
      { status: 'active', current: true, planId: second, activeFrom: at },
      { status: 'inactive', current: false, planName: 'Starter', activeTo: at },
    ])
    const page = (await ask(['GET', 'subscriptions?limit=2'])).body
    expect(page.items).toEqual(body.items.slice(0, 2))
    const rest = await ask(['GET', `subscriptions?limit=2&cursor=${page.nextCursor}`])
    expect(rest.body.items).toEqual(body.items.slice(2))
  })
})

describe('new version of a plan', () => {
  it('applies from the next period, for users who enter it', async () => {
    const plan = await newPlan()
    await change({ planId: plan, timing: 'immediate' })
    real.core.clock.advance(1_000)
    const at = real.core.clock.now()
    const terms = { ...freeTerms, included: usdAttos(3n * usd) }
    await insertVersion(real.core.sql, { appId: await idOf(), id: plan }, { version: 2, terms, at })
    expect(await balance()).toBe('2000000')
    real.core.clock.advance(31 * day)
    expect(await balance()).toBe('3000000')
  })
})
