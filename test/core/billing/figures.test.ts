import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMoneyFigures } from '../../../core/billing/figures.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { type CollectionWorld, startCollections, untilStates, usd } from './collection/world.ts'

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())

/** Returns the sums above 0 of one payee, such as { 'live invoice': 9 }. */
async function sums(
  metric: 'owed' | 'collected' | 'returned',
  wanted: 'app' | 'platform' = 'app',
): Promise<Record<string, number>> {
  const metrics = createMetrics('test')
  await createMoneyFigures({ pool: world.sql, log: silentLog(), metrics }).round()
  const text = await metrics.getSingleMetricAsString(`tollgate_billing_${metric}_usd`)
  const lines = text.matchAll(/\{plane="(\w+)",payee="(\w+)",\w+="(\w+)"[^}]*\} ([\d.]+)/g)
  return Object.fromEntries(
    [...lines].flatMap(([, plane, payee, kind, value]) =>
      payee === wanted && Number(value) > 0 ? [[`${plane} ${kind}`, Number(value)]] : [],
    ),
  )
}

// Each user has 5 USD of included usage; a ticket costs 3 USD.
describe('the figures of money', () => {
  it('show debts, payments and returns by plane and kind', async () => {
    const shop = await world.merchant()
    const paying = await world.payer(shop, { name: 'ada' })
    const declined = await world.payer(shop, { name: 'bob', card: 'card_declined' })
    const small = await world.payer(shop, { name: 'eve', threshold: usd(10_000) })
    const testing = await world.payer(await world.merchant({ isTest: true }))
    expect(await sums('owed')).toEqual({})
    await world.spend(paying, 3)
    await untilStates(world, paying, ['paid'])
    await world.spend(declined, 3)
    await untilStates(world, declined, ['retrying'])
    await world.spend(small, 2)
    await world.spend(testing, 4)
    await untilStates(world, testing, ['paid'])
    expect(await sums('owed')).toEqual({ 'live uninvoiced': 1, 'live overdue': 4 })
    expect(await sums('collected')).toEqual({ 'live invoice': 4, 'test invoice': 7 })
    expect(await sums('returned')).toEqual({})
    // The owners' accounts are charged for what the apps' users spent.
    expect(Object.keys(await sums('owed', 'platform'))).toEqual(['live uninvoiced'])

    const [overdue] = await world.collections(declined.user)
    await world.operator.invoices.voidInvoice({
      clientId: shop.clientId,
      invoiceId: overdue?.invoiceId ?? '',
      reason: 'a mistake',
    })
    expect(await sums('owed')).toEqual({ 'live uninvoiced': 1 })
    const [payment] = [...world.stripe.world(paying.at).list('payment_intent')].filter(
      ({ status }) => status === 'succeeded',
    )
    world.stripe.refundPayment(paying.at, payment?.id ?? '', 300)
    await expect.poll(() => sums('returned'), { timeout: 10_000 }).toEqual({ 'live refund': 3 })
  }, 60_000)
})
