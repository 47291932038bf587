import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { sumStartedFees } from '../../../../core/billing/collection/attempt-store.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import { expectRightBooks } from '../../balances/ledger/owner-world.ts'
import { day, second } from '../../support.ts'
import {
  type CollectionWorld,
  type Payer,
  startCollections,
  usd,
  states,
  subscription,
  untilStates,
} from './world.ts'

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())
afterEach(() => {
  world.stripe.faults = () => undefined
})

/** Voids the newest invoice of a payer. */
async function voidInvoice({ merchant: { clientId }, user }: Payer) {
  const [row] = await world.rows(
    'select id from invoices where user_id = $1 order by number desc limit 1',
    [user.userId],
  )
  return world.operator.invoices.voidInvoice({
    clientId,
    invoiceId: row?.['id'] ?? '',
    reason: 'a mistake',
  })
}

const collect = ({ merchant, name }: Payer) =>
  world.operator.collections.collectDebt({ clientId: merchant.clientId, externalUserId: name })

describe('a user with a card', () => {
  it('has a credit line, which the card gives and takes', async () => {
    const ada = await world.payer(await world.merchant(), { card: null })
    expect(await world.account(ada.user)).toMatchObject({ ceiling: 0n })
    const card = await world.giveCard(ada)
    const ceiling = async () => (await world.account(ada.user)).ceiling
    await expect.poll(ceiling, { timeout: 10_000 }).toBe(usd(200))
    world.stripe.removeCard(ada.at, card)
    await expect.poll(ceiling, { timeout: 10_000 }).toBe(0n)
  })
})

describe('a threshold', () => {
  it('is collected once when 50 parallel batches cross it, with two cores', async () => {
    await world.startAnother(world.stripe.env)
    const ada = await world.payer(await world.merchant(), { threshold: usd(4_000) })
    await world.spendInBatches(ada, 50)
    await world.settled(ada.user)
    const { overage, collected, invoiced } = await world.account(ada.user)
    // Tickets of this instant still burn the 5 USD of the Starter plan.
    expect(overage).toBe(usd(50 * 300 - 500))
    const taken = world.taken(ada)
    expect(usd(taken.reduce((total, cents) => total + cents, 0))).toBe(collected)
    // What is left is below the threshold: each crossing was collected once.
    expect(overage - collected).toBeLessThan(usd(4_000))
    for (const cents of taken) expect(cents).toBeGreaterThanOrEqual(4_000)
    expect(await states(world, ada)).toEqual(taken.map(() => 'paid'))
    expect(invoiced).toBe(0n)
    await expectRightBooks()
  }, 60_000)
})

describe('the price of a period', () => {
  it('below the smallest charge waits on a plan with a threshold', async () => {
    const ada = await world.payer(await world.merchant(), { threshold: usd(400), price: '0.30' })
    world.clock.advance(32 * day)
    // Any change of the account enters the running period.
    await world.operator.allowances.createGrant({
      clientId: ada.merchant.clientId,
      externalUserId: ada.name,
      amountUsdMicros: '1',
      source: 'manual',
    })
    expect(
      await world.rows('select 1 from periods where user_id = $1 and price_attos > 0', [
        ada.user.userId,
      ]),
    ).toHaveLength(1)
    world.clock.advance(2 * 3_600 * second)
    await untilStates(world, ada, ['carried'])
    expect(world.taken(ada)).toEqual([])
  }, 60_000)
})

describe('the ceiling', () => {
  it('raises the invoice also when one batch goes far beyond it; the fee pays the owner', async () => {
    const ada = await world.payer(await world.merchant())
    await world.spend(ada, 5)
    await world.settled(ada.user)
    const all = await world.collections(ada.user)
    expect(all.map(({ reason }) => reason)).toEqual(all.map(() => 'ceiling'))
    const { overage, collected } = await world.account(ada.user)
    expect({ overage, collected }).toEqual({ overage: usd(1_000), collected: usd(1_000) })
    const fees = await world.rows(
      'select coalesce(sum(fee_cents), 0) as fees, min(amount_cents - fee_cents) as kept from payments where user_id = $1',
      [ada.user.userId],
    )
    const [owner] = await world.rows(
      `select b.overage_attos, b.collected_attos from balances b
       join end_users u on u.app_id = b.app_id and u.id = b.user_id
       join accounts a on u.external_user_id = 'account:' || a.id where a.email = $1`,
      [ada.merchant.email],
    )
    const paid = BigInt(owner?.['collected_attos'] ?? '')
    // 5 tickets at 3.30 USD, less the 5 USD that the platform's Starter plan includes.
    expect(BigInt(owner?.['overage_attos'] ?? '')).toBe(usd(1_150))
    expect(paid).toBe(usd(Number(fees[0]?.['fees'])))
    expect(paid).toBeGreaterThan(0n)
    expect(paid).toBeLessThanOrEqual(usd(1_000))
    await expectRightBooks()
  }, 60_000)

  it('counts the fees of undecided charges, which a new charge does not take again', async () => {
    const shop = await world.merchant()
    const ada = await world.payer(shop)
    world.stripe.webhooks.plan = () => ({ copies: 0 })
    world.stripe.faults = ({ method, route }) =>
      method === 'POST' && route === '/v1/payment_intents' ? { kind: 'reset after' } : undefined
    const started = async () => {
      const rows = await world.rows(
        `select fee_cents from payment_attempts where app_id = $1 and state = 'started' order by created_at`,
        [shop.appId],
      )
      return rows.map((row) => Number(row['fee_cents']))
    }
    // 3 tickets at 3.30 USD, less the 5 USD that the platform's Starter plan includes.
    await world.spend(ada, 3)
    await expect.poll(started, { timeout: 15_000 }).toEqual([400])
    const [owner] = await world.rows(
      `select u.app_id, u.id from end_users u join accounts a on u.external_user_id = 'account:' || a.id where a.email = $1`,
      [shop.email],
    )
    const fees = (of: { appId: unknown; userId: unknown }) =>
      sumStartedFees(world.sql, {
        appId: appId(String(of.appId)),
        userId: userId(String(of.userId)),
      })
    expect(await fees({ appId: owner?.['app_id'], userId: owner?.['id'] })).toBe(400n)
    expect(await fees(ada.user)).toBe(0n)
    world.stripe.faults = () => undefined
    world.stripe.webhooks.plan = () => ({})
    world.clock.advance(130 * second)
    await untilStates(world, ada, ['paid'])
    expect(await fees({ appId: owner?.['app_id'], userId: owner?.['id'] })).toBe(0n)
  }, 60_000)

  it('takes the money of one app in its own account only', async () => {
    const [one, other] = [await world.merchant(), await world.merchant()]
    const payers = [await world.payer(one), await world.payer(other)]
    await Promise.all(payers.map((payer) => world.spend(payer, 3)))
    for (const payer of payers) {
      await world.settled(payer.user)
      const intents = [...world.stripe.world(payer.at).list('payment_intent')]
      expect(intents.length).toBeGreaterThan(0)
      for (const { metadata } of intents) expect(metadata['reference']).toContain(payer.user.appId)
    }
  }, 60_000)
})

describe('a failed payment', () => {
  it('is tried again on days 1, 3 and 7, then the user falls back to Starter', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    expect(await subscription(world, ada)).toEqual({ status: 'past_due', isStarter: false })
    const failures = async () => (await world.collections(ada.user))[0]?.failures
    for (const [days, count] of [
      [1, 2],
      [2, 3],
    ] as const) {
      world.clock.advance(days * day - second)
      await new Promise((resolve) => setTimeout(resolve, 1_500))
      expect(await failures()).toBe(count - 1)
      world.clock.advance(second)
      await expect.poll(failures, { timeout: 10_000 }).toBe(count)
      expect(await states(world, ada)).toEqual(['retrying'])
    }
    world.clock.advance(4 * day)
    await expect
      .poll(async () => (await states(world, ada))[0], { timeout: 10_000 })
      .toBe('uncollectible')
    expect(await subscription(world, ada)).toEqual({ status: 'active', isStarter: true })
    expect(world.taken(ada)).toEqual([])
    expect(await world.account(ada.user)).toMatchObject({ collected: 0n, ceiling: 0n })
    // The debt stays, and can still be paid.
    await world.giveCard(ada)
    const { outcome, invoiceIds } = await collect(ada)
    expect({ outcome, count: invoiceIds.length }).toEqual({ outcome: 'queued', count: 1 })
    await expect.poll(async () => (await states(world, ada))[0], { timeout: 10_000 }).toBe('paid')
    expect((await world.account(ada.user)).collected).toBe(usd(400))
    await expectRightBooks()
  }, 90_000)

  it('is tried at once with a new card', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'authentication_required' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    expect((await world.collections(ada.user))[0]?.failure).toBe('action_required')
    await world.giveCard(ada)
    await untilStates(world, ada, ['paid'])
    expect(await subscription(world, ada)).toMatchObject({ status: 'active' })
  }, 60_000)

  it('is past due no more when its invoice becomes void', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'authentication_required' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    expect(await subscription(world, ada)).toMatchObject({ status: 'past_due' })
    await voidInvoice(ada)
    expect(await states(world, ada)).toEqual(['voided'])
    expect(await subscription(world, ada)).toMatchObject({ status: 'active' })
    await expectRightBooks()
  }, 60_000)

  it('counts nothing while the processor does not answer or the app is not connected', async () => {
    const ada = await world.payer(await world.merchant())
    world.stripe.faults = () => ({ kind: 'refuse', status: 500 })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['charging'])
    world.clock.advance(700 * second)
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    expect(await states(world, ada)).toEqual(['charging'])
    await expect(voidInvoice(ada)).rejects.toMatchObject({
      reason: 'CONFLICT',
      message: expect.stringContaining('is not decided'),
    })
    world.stripe.faults = () => undefined
    await world.sql.query(
      'update processor_accounts set charges_enabled = false where app_id = $1',
      [ada.merchant.appId],
    )
    // The processor has no such payment, so the next charge is due minutes later.
    world.clock.advance(700 * second)
    await untilStates(world, ada, ['issued'])
    world.clock.advance(700 * second)
    const failure = async () => (await world.collections(ada.user))[0]?.failure
    await expect.poll(failure, { timeout: 10_000 }).toBe('stripe_connect_pending')
    expect(await subscription(world, ada)).toMatchObject({ status: 'active' })
    await expect(collect(ada)).rejects.toMatchObject({ reason: 'PROCESSOR_NOT_CONNECTED' })
    await world.sql.query(
      'update processor_accounts set charges_enabled = true where app_id = $1',
      [ada.merchant.appId],
    )
    world.clock.advance(3_600 * second)
    await untilStates(world, ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
  }, 90_000)
})

describe('a core that stopped', () => {
  it('loses nothing and charges nothing twice, whatever step it was at', async () => {
    const ada = await world.payer(await world.merchant())
    let left = 1
    world.stripe.faults = ({ method, route }) =>
      method === 'POST' && route === '/v1/payment_intents' && left-- > 0
        ? { kind: 'reset after' }
        : undefined
    onTestFinished(() => {
      world.stripe.faults = () => undefined
    })
    await world.spend(ada, 3)
    // The event of the payment, or the question two minutes later, ends the charge.
    world.clock.advance(130 * second)
    await untilStates(world, ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
    // As if a core had claimed the next one and stopped.
    await world.spend(ada, 2)
    await world.sql.query(
      `update collections set due_at = due_at + interval '2 minutes' where user_id = $1 and ended_at is null`,
      [ada.user.userId],
    )
    world.clock.advance(130 * second)
    await world.settled(ada.user)
    expect((await world.account(ada.user)).collected).toBe(usd(1_000))
    await expectRightBooks()
  }, 60_000)
})

describe('collect now', () => {
  it('collects what is below the threshold, once a minute, and skips small amounts', async () => {
    const ada = await world.payer(await world.merchant(), { threshold: usd(10_000) })
    expect(await collect(ada)).toEqual({
      outcome: 'skipped',
      invoiceIds: [],
      reason: expect.stringMatching(/^0\.00 USD .* less than 0\.50 USD /),
    })
    await world.spend(ada, 3)
    const answers = await Promise.all([collect(ada), collect(ada), collect(ada)])
    expect(answers.map(({ outcome }) => outcome).toSorted()).toEqual([
      'queued',
      'rate_limited',
      'rate_limited',
    ])
    await untilStates(world, ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
    world.clock.advance(61 * second)
    expect((await collect(ada)).outcome).toBe('skipped')
    const { collections } = await world.operator.collections.listCollections({
      clientId: ada.merchant.clientId,
      externalUserId: undefined,
      open: false,
      limit: 0,
      cursor: undefined,
    })
    expect(collections).toMatchObject([
      { externalUserId: 'ada', reason: 'request', state: 'paid', totalUsd: '4.00', failures: 0 },
    ])
  }, 60_000)
})

describe('a card that was refused and could not be read', () => {
  it('is replaced by a new one, which is charged at once', async () => {
    const ada = await world.payer(await world.merchant())
    world.stripe.faults = ({ method, route }) =>
      method === 'GET' && route.startsWith('/v1/customers')
        ? { kind: 'refuse', status: 500 }
        : undefined
    for (const { id } of world.stripe.world(ada.at).list('payment_method'))
      world.stripe.removeCard(ada.at, id)
    await world.spend(ada, 3)
    const refused = { state: 'issued', failure: 'processor_refused' }
    await expect
      .poll(() => world.collections(ada.user), { timeout: 15_000 })
      .toMatchObject([refused])
    world.stripe.faults = () => undefined
    await world.giveCard(ada)
    await untilStates(world, ada, ['paid'])
  }, 60_000)
})

describe('a customer that was deleted at the processor', () => {
  it('loses the credit line with its card, and pays as a new customer', async () => {
    const ada = await world.payer(await world.merchant())
    const [former] = await world.rows(
      'select customer_id from processor_customers where user_id = $1',
      [ada.user.userId],
    )
    await world.stripe.webhooks.idle()
    world.stripe.webhooks.plan = () => ({ copies: 0 })
    onTestFinished(() => void (world.stripe.webhooks.plan = () => ({})))
    world.stripe.deleteCustomer(ada.at, former?.['customer_id'] ?? '')
    await world.spend(ada, 3)
    await expect
      .poll(() => world.collections(ada.user), { timeout: 15_000 })
      .toMatchObject([{ state: 'issued', failure: 'processor_refused' }])
    expect((await world.account(ada.user)).ceiling).toBe(0n)
    world.stripe.webhooks.plan = () => ({})
    await world.giveCard(ada)
    await untilStates(world, ada, ['paid'])
    expect((await world.account(ada.user)).ceiling).toBe(usd(200))
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)
})

describe('a test clock', () => {
  it('retries payments in the test plane and counts them in its effects', async () => {
    const shop = await world.merchant({ isTest: true })
    const ada = await world.payer(shop, { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    const advance = async (days: number) => {
      // The effects count what was charged since the real time of the move.
      world.clock.advance(second)
      const { advanced } = await world.operator.testClocks.advanceTestClock({
        clientId: shop.clientId,
        move: { to: undefined, advanceSeconds: days * 86_400 },
      })
      return advanced?.effects
    }
    expect(await advance(1)).toMatchObject({ paymentsSucceeded: 0, paymentsFailed: 1 })
    expect((await world.collections(ada.user))[0]).toMatchObject({ failures: 2, state: 'retrying' })
    for (const { id } of world.stripe.world(ada.at).list('payment_method'))
      world.stripe.setCard(ada.at, id, 'good')
    expect(await advance(2)).toMatchObject({ paymentsSucceeded: 1, paymentsFailed: 0 })
    expect(await states(world, ada)).toEqual(['paid'])
    expect(ada.at.plane).toBe('test')
    expect(world.taken(ada)).toEqual([400])
    const { invoice } = await world.operator.invoices.getInvoice({
      clientId: shop.clientId,
      invoiceId: (await world.collections(ada.user))[0]?.invoiceId ?? '',
    })
    const paidAfter = Date.parse(invoice?.paidAt ?? '') - Date.parse(invoice?.issuedAt ?? '')
    expect(Math.floor(paidAfter / day)).toBe(3)
  }, 60_000)
})

describe('a payment in the test plane', () => {
  it('carries no fee, because the owner owes real money', async () => {
    const shop = await world.merchant({ isTest: true, isOwned: true })
    const ada = await world.payer(shop)
    await world.spend(ada, 3)
    await world.settled(ada.user)
    expect(world.taken(ada)).toEqual([400])
    expect(
      await world.rows('select 1 from payments where fee_cents > 0 and plane = $1', ['test']),
    ).toEqual([])
    const account = await world.accountOf(shop)
    expect(account?.overage).toBeGreaterThan(0n)
    expect(
      await world.rows(
        `select b.collected_attos from balances b join end_users u on u.app_id = b.app_id and u.id = b.user_id
         join accounts a on u.external_user_id = 'account:' || a.id where a.email = $1`,
        [shop.email],
      ),
    ).toEqual([{ collected_attos: '0' }])
  }, 60_000)
})

describe('a deactivated user', () => {
  it('is invoiced for what is left an hour later', async () => {
    const ada = await world.payer(await world.merchant(), { threshold: usd(10_000) })
    await world.spend(ada, 3)
    await world.operator.users.updateUser({
      clientId: ada.merchant.clientId,
      externalUserId: ada.name,
      status: 'inactive',
      email: undefined,
      clearEmail: false,
    })
    expect(await world.collections(ada.user)).toMatchObject([
      { reason: 'final', state: 'requested' },
    ])
    world.clock.advance(3_600 * second)
    await untilStates(world, ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)
})
