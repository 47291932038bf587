import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ProcessorAccount } from '../../core/billing/processor/port.ts'
import {
  type MerchantApp,
  type Merchants,
  breakStripe,
  startMerchants,
} from '../support/deployment/merchants.ts'
import { createRandom } from '../support/random.ts'
import { readSize, testSeed } from '../support/run/sizes.ts'

const count = readSize('TEST_PLAN_ORDERS')
const isLarge = count > 1_000
const kills = isLarge ? 20 : 3
const pauseMs = isLarge ? 20_000 : 3_000
/** Core asks about 20 lost events a second on a busy machine. */
const settleMs = 180_000 + count * 50
const random = createRandom(testSeed + 11)
process.stdout.write(`plan orders: TEST_SEED=${testSeed}, ${count} orders\n`)

let merchants: Merchants
beforeAll(async () => {
  merchants = await startMerchants()
}, 240_000)
afterAll(() => merchants.stop(), 60_000)

const prices = [1_000, 2_500, 4_999]

it('moves every user who has paid once and no other, whatever fails', async () => {
  const { sql, stripe, core, operator } = merchants
  const { app, at } = await merchants.newMerchant(count)
  const plans = await Promise.all(
    prices.map(async (cents) => {
      const terms = { includedUsdMicros: '1000000', includedUnits: '1', overageRateWei: '1' }
      const fields = { name: `Plan ${cents}`, type: 'subscription', status: 'active', ...terms }
      const planJson = JSON.stringify({ ...fields, priceAmount: (cents / 100).toFixed(2) })
      const { id } = await operator.plans.createPlan({ clientId: app.clientId, planJson })
      return { id, cents }
    }),
  )
  const paid = new Map<string, { readonly id: string; readonly cents: number }>()
  const queue = Array.from({ length: count }, (_, i) => `user-${i}`)
  breakStripe(merchants, random)
  const working = { isDone: false }
  const killing = merchants.killCore(working, { kills, random, pauseMs })
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let user = queue.shift(); user; user = queue.shift()) {
        const plan = random.pick(plans)
        await requestPlan(app, { user, planId: plan.id })
        if (await leave(at, user)) paid.set(user, plan)
      }
    }),
  )
  working.isDone = true
  await killing
  await stripe.webhooks.idle()
  stripe.faults = () => undefined
  const booked = async () =>
    new Map(
      (
        await sql.query<{ user: string; plan_id: string }>(
          `select u.external_user_id as user, s.plan_id
           from subscriptions s join end_users u on u.app_id = s.app_id and u.id = s.user_id
           where s.plan_id = any($1)`,
          [plans.map(({ id }) => id)],
        )
      ).rows.map((row) => [row.user, row.plan_id]),
    )
  const expected = new Map([...paid].map(([user, { id }]) => [user, id]))
  await merchants.settleLate(async () => (await booked()).size >= expected.size, settleMs)
  await sleep(2_000)
  expect(await booked()).toEqual(expected)
  const cents = [...paid.values()].reduce((sum, plan) => sum + plan.cents, 0)
  const { rows } = await sql.query<{ payments: number; invoices: number; paid: number }>(
    `select (select sum(amount_cents)::int from payments where purpose = 'plan' and invoice_id is not null) as payments,
            (select sum(total_cents)::int from invoices where reason = 'plan') as invoices,
            (select count(*)::int from payments) as paid`,
  )
  expect(rows).toEqual([{ payments: cents, invoices: cents, paid: paid.size }])
  const taken = [...stripe.world(at).list('payment_intent')].filter(
    ({ status }) => status === 'succeeded',
  )
  expect(taken.reduce((sum, { amount }) => sum + Number(amount), 0)).toBe(cents)
  expect(core.crashes()).toBe(kills)
  expect(await merchants.differences()).toEqual([])
}, 5_400_000)

/** Requests a plan and repeats the request until a page is opened, as a careful client does. */
async function requestPlan(
  app: MerchantApp,
  { user, planId }: { readonly user: string; readonly planId: string },
): Promise<void> {
  const path = `apps/${app.clientId}/users/${user}/subscription/change`
  for (const end = Date.now() + 240_000; Date.now() < end;) {
    const response = await fetch(`${merchants.platformUrl}/api/v1/${path}`, {
      method: 'POST',
      headers: {
        authorization: app.authorization,
        'content-type': 'application/json',
        'idempotency-key': `plan-of-${user}`,
      },
      body: JSON.stringify({ planId }),
    }).catch(() => null)
    if (response?.status === 200) return
    if (response && ![409, 502, 503].includes(response.status))
      throw new Error(`plan: ${response.status} ${await response.text()}`)
    await sleep(100)
  }
  throw new Error(`the request of ${user} was never answered`)
}

/** The user pays, is declined, pays by a method that is decided later, or leaves. */
async function leave(at: ProcessorAccount, user: string): Promise<boolean> {
  const { sql, stripe } = merchants
  const { rows } = await sql.query<{ processor_id: string }>(
    `select c.processor_id from checkouts c join end_users u on u.app_id = c.app_id and u.id = c.user_id
     where u.external_user_id = $1`,
    [user],
  )
  expect(rows).toHaveLength(1)
  const id = rows[0]?.processor_id ?? ''
  const what = random.below(10)
  if (what < 7) stripe.payCheckout(at, id)
  else if (what === 7) {
    const outcome = random.pick(['paid', 'failed'] as const)
    stripe.payCheckout(at, id, { outcome: 'processing' })
    stripe.settleCheckout(at, id, outcome)
    return outcome === 'paid'
  } else if (what === 8) stripe.expireCheckout(at, id)
  return what < 7
}
