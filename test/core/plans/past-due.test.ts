import { beforeEach, describe, expect, it } from 'vitest'
import { createMoves } from '../../../core/plans/subscriptions/moves.ts'
import { createPastDue } from '../../../core/plans/subscriptions/past-due.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type Db, tx } from '../../../core/lib/sql.ts'
import { userId } from '../../../core/shared/ids.ts'
import {
  balance,
  expectProof,
  ledger,
  newPlan,
  newUser,
  operator,
  plans,
  setUpShop,
  shop,
  starter,
  usd,
  world,
} from './subscriptions-world.ts'

setUpShop()

const pastDue = () => {
  const parts = { ledger, log: silentLog(), now: world.clock.now }
  const invalidations = { publish: async () => {} }
  const payments = { findPaidPrice: async () => usdAttos(0n) }
  return createPastDue({ ...createMoves({ ...parts, payments, invalidations }), ...parts })
}

let externalUserId: string
let planId: string
beforeEach(async () => {
  externalUserId = await newUser()
  planId = (await newPlan({ type: 'usage', included: usdAttos(7n * usd) })).id
  world.clock.advance(1_000)
  await change(planId, 'immediate')
  world.clock.advance(1_000)
})

const of = () => ({ clientId: world.app.clientId, externalUserId })

const change = (plan: string, timing: string) =>
  operator.subscriptions.updateSubscription({ ...of(), planId: plan, timing })

const read = async () => {
  const { state } = await operator.subscriptions.getSubscription(of())
  return state?.subscription
}

const findUser = async () => {
  const [row] = await world.rows('select id from end_users where external_user_id = $1', [
    externalUserId,
  ])
  return { appId: shop.id, userId: userId(row?.['id'] ?? '') }
}

async function setPastDue(isPastDue: boolean) {
  const user = await findUser()
  return tx(world.sql, (db: Db) => pastDue().setPastDue(db, user, isPastDue))
}

async function fallBack(subscriptionId: string) {
  const user = await findUser()
  return tx(world.sql, (db: Db) => pastDue().fallBack(db, user, subscriptionId))
}

const actions = () =>
  world.rows(
    `select action, actor, details ->> 'reason' as reason from audit_log
     where details ->> 'userId' = (select id::text from end_users where external_user_id = $1)
       and action like 'subscription%' order by created_at`,
    [externalUserId],
  )

describe('a subscription that is past due', () => {
  it('is shown as past_due until it is paid, and keeps its plan', async () => {
    const before = await read()
    expect(await setPastDue(true)).toEqual({ subscriptionId: before?.id, planId })
    expect(await read()).toEqual({ ...before, status: 'past_due' })
    const { items } = await operator.subscriptions.listSubscriptions({ ...of(), limit: 1 })
    expect(items[0]).toMatchObject({ status: 'past_due', planId })
    // A second failed invoice concerns the same subscription.
    expect(await setPastDue(true)).toEqual({ subscriptionId: before?.id, planId })
    expect(await setPastDue(false)).toEqual({ subscriptionId: before?.id, planId })
    expect(await read()).toEqual(before)
  })

  it('is still shown as past_due when it is scheduled to end', async () => {
    await operator.subscriptions.cancelSubscription({ ...of(), confirm: true })
    await setPastDue(true)
    expect(await read()).toMatchObject({ status: 'past_due', cancelledAt: expect.any(String) })
  })

  it('ends when another subscription takes the slot', async () => {
    await setPastDue(true)
    await change(plans[0]?.id ?? '', 'immediate')
    expect(await read()).toMatchObject({ status: 'active', plan: { id: plans[0]?.id } })
  })

  it('is never a subscription to Starter', async () => {
    await change(starter, 'immediate')
    expect(await setPastDue(true)).toBe(null)
    expect(await read()).toMatchObject({ status: 'active' })
  })
})

describe('falling back to Starter', () => {
  it('moves the user at once, ends the included usage and what was scheduled, and records it', async () => {
    const before = await read()
    await change(plans[1]?.id ?? '', 'next_billing_cycle')
    await setPastDue(true)
    const answer = await fallBack(before?.id ?? '')
    expect(answer).toMatchObject({ planId: starter, timing: 'immediate' })
    expect(await read()).toMatchObject({ status: 'active', plan: { id: starter } })
    const { state } = await operator.subscriptions.getSubscription(of())
    expect(state?.pending).toBe(undefined)
    expect((await balance(externalUserId)).balance?.balanceUsdMicros).not.toBe('7000000')
    const [ended] = await world.rows(
      'select reason, plan_id from subscription_history where id = $1',
      [before?.id],
    )
    expect(ended).toEqual({ reason: 'unpaid', plan_id: planId })
    expect((await actions()).at(-1)).toEqual({
      action: 'subscription_fell_back',
      actor: 'collection',
      reason: 'unpaid',
    })
    await expectProof()
  })

  it('happens once for simultaneous calls', async () => {
    const { id = '' } = (await read()) ?? {}
    const answers = await Promise.all([1, 2, 3, 4].map(() => fallBack(id)))
    expect(answers.filter((answer) => answer !== null)).toHaveLength(1)
    expect((await actions()).filter(({ reason }) => reason === 'unpaid')).toHaveLength(1)
  })

  it('changes nothing for a subscription that has ended', async () => {
    const { id = '' } = (await read()) ?? {}
    await change(plans[0]?.id ?? '', 'immediate')
    expect(await fallBack(id)).toBe(null)
    expect(await read()).toMatchObject({ plan: { id: plans[0]?.id } })
  })
})
