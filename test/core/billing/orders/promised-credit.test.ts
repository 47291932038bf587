import { afterAll, beforeAll, expect, it } from 'vitest'
import { expectRightBooks } from '../../balances/ledger/owner-world.ts'
import { type CollectionWorld, startCollections, states } from '../collection/world.ts'

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())

it('makes a payment prepaid credit if an invoice has used the credit of its page', async () => {
  const shop = await world.merchant({ isOwned: false })
  const ada = await world.payer(shop)
  const [small, large] = [await world.plan(shop, '30.00'), await world.plan(shop, '60.00')]
  for (const planId of [small, large, small]) await world.changePlan(ada, planId)
  // 59.99 USD of the large plan are unused, of which the small one takes 30.
  await world.operator.payments.createPlanCheckout({
    clientId: shop.clientId,
    externalUserId: ada.name,
    planId: await world.plan(shop, '100.00'),
    successUrl: undefined,
    cancelUrl: undefined,
    idempotencyKey: undefined,
  })
  const orders = () =>
    world.rows(
      `select o.state, o.amount_cents, o.credit_attos / 10::numeric ^ 16 as credit, c.processor_id
       from plan_orders o join checkouts c on c.app_id = o.app_id and c.id = o.id where o.user_id = $1`,
      [ada.user.userId],
    )
  const [order] = await orders()
  expect([order?.['amount_cents'], Number(order?.['credit'])]).toEqual(['4001', 2_999])
  await world.spend(ada, 12)
  await expect.poll(() => states(world, ada), { timeout: 15_000 }).toContain('paid')
  world.stripe.payCheckout(ada.at, order?.['processor_id'] ?? '')
  const state = async () => (await orders())[0]?.['state']
  await expect.poll(state, { timeout: 10_000 }).toBe('credited')
  const paid = await world.rows(
    `select amount_cents from payments where user_id = $1 and purpose = 'top_up'`,
    [ada.user.userId],
  )
  expect(paid).toEqual([{ amount_cents: '4001' }])
  await expectRightBooks()
}, 60_000)
