import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  lockPayable,
  release,
  saveFault,
} from '../../../../core/billing/collection/collection-store.ts'
import { saveEnded } from '../../../../core/billing/orders/order-store.ts'
import { createOrderUpkeep } from '../../../../core/billing/orders/order-upkeep.ts'
import { findExpired } from '../../../../core/billing/payments/card-store.ts'
import type { UserKey } from '../../../../core/shared/ids.ts'
import { day, second } from '../../support.ts'
import { userOf } from '../invoices/world.ts'
import {
  type CollectionWorld,
  type Payer,
  startCollections,
  states,
  subscription,
  untilStates,
} from './world.ts'

/** What is left unpaid, undecided or undone. */

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())
afterEach(() => {
  world.stripe.faults = () => undefined
})

describe('a second unpaid invoice', () => {
  it('keeps the subscription past due, and has a fall-back of its own', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    world.clock.advance(2 * day)
    await world.spend(ada)
    await expect
      .poll(() => states(world, ada), { timeout: 15_000 })
      .toEqual(['retrying', 'retrying'])
    const [first] = await world.collections(ada.user)
    await world.operator.invoices.voidInvoice({
      clientId: ada.merchant.clientId,
      invoiceId: first?.invoiceId ?? '',
      reason: 'a mistake',
    })
    expect(await states(world, ada)).toEqual(['voided', 'retrying'])
    expect(await subscription(world, ada)).toEqual({ status: 'past_due', isStarter: false })
    // Seven days after the failure of the first one.
    world.clock.advance(5 * day)
    await expect
      .poll(async () => (await world.collections(ada.user))[1]?.failures, { timeout: 15_000 })
      .toBeGreaterThan(1)
    expect(await subscription(world, ada)).toEqual({ status: 'past_due', isStarter: false })
    world.clock.advance(2 * day)
    // A last collection of what is left follows the move to Starter.
    await expect
      .poll(async () => (await states(world, ada)).slice(0, 2), { timeout: 15_000 })
      .toEqual(['voided', 'uncollectible'])
    expect(await subscription(world, ada)).toEqual({ status: 'active', isStarter: true })
  }, 90_000)
})

describe('an invoice of a user whose other invoice is being charged', () => {
  const twoUnpaid = async (): Promise<Payer> => {
    const ada = await world.payer(await world.merchant(), { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    await world.spend(ada)
    await untilStates(world, ada, ['retrying', 'retrying'])
    return ada
  }
  const setCards = ({ at }: Payer, behaviour: 'good' | 'processing'): void => {
    for (const { id } of world.stripe.world(at).list('payment_method'))
      world.stripe.setCard(at, id, behaviour)
  }

  it('follows as soon as the other charge is decided', async () => {
    await world.startAnother(world.stripe.env)
    const ada = await twoUnpaid()
    setCards(ada, 'processing')
    // Two cores claim one invoice each, and wait for the account.
    const db = await world.sql.connect()
    await db.query('begin')
    await db.query('select from balances where user_id = $1 for update', [ada.user.userId])
    for (const { id } of await world.collections(ada.user)) {
      const isClaimed = async () => {
        const [row] = await world.rows(
          'select due_at > $2 as claimed from collections where id = $1',
          [id, world.clock.now()],
        )
        return row?.['claimed']
      }
      await world.sql.query('update collections set due_at = $2 where id = $1', [
        id,
        world.clock.now(),
      ])
      await expect.poll(isClaimed, { timeout: 10_000 }).toBe('true')
    }
    await db.query('commit')
    db.release()
    await expect
      .poll(async () => (await states(world, ada)).toSorted(), { timeout: 10_000 })
      .toEqual(['charging', 'retrying'])
    setCards(ada, 'good')
    for (const { id, status } of world.stripe.world(ada.at).list('payment_intent'))
      if (status === 'processing') world.stripe.settlePayment(ada.at, id, 'paid')
    await untilStates(world, ada, ['paid', 'paid'])
    expect(world.taken(ada).toSorted()).toEqual([300, 400])
  }, 90_000)

  it('is paid before a move of the test clock is answered', async () => {
    const shop = await world.merchant({ isTest: true })
    const ada = await world.payer(shop, { price: '10.00' })
    world.stripe.latencyMs = 700
    onTestFinished(() => {
      world.stripe.latencyMs = 0
    })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['charging'])
    const { advanced } = await world.operator.testClocks.advanceTestClock({
      clientId: shop.clientId,
      move: { to: undefined, advanceSeconds: 33 * 86_400 },
    })
    expect(advanced?.pending).toBe(false)
    expect(await states(world, ada)).toEqual(['paid', 'paid'])
  }, 60_000)
})

describe('a charge that fails after its card was replaced', () => {
  const failUndecided = ({ at }: Payer): void => {
    for (const { id, status } of world.stripe.world(at).list('payment_intent'))
      if (status === 'processing') world.stripe.settlePayment(at, id, 'failed')
  }

  it('is followed at once by a charge of the new card', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'processing' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['charging'])
    await world.giveCard(ada)
    failUndecided(ada)
    await untilStates(world, ada, ['paid'])
    expect(await subscription(world, ada)).toEqual({ status: 'active', isStarter: false })
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)

  it('is not given up, although it was the last one', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    await world.giveCard(ada, 'processing')
    await untilStates(world, ada, ['charging'])
    world.clock.advance(7 * day)
    await world.giveCard(ada)
    failUndecided(ada)
    await untilStates(world, ada, ['paid'])
    expect(await subscription(world, ada)).toEqual({ status: 'active', isStarter: false })
  }, 60_000)

  it('is followed at once by a charge of the new card, of which core learns by the refusal', async () => {
    const ada = await world.payer(await world.merchant())
    const [customer] = await world.rows(
      'select customer_id, card_id from processor_customers where user_id = $1',
      [ada.user.userId],
    )
    world.stripe.webhooks.plan = () => ({ copies: 0 })
    onTestFinished(() => {
      world.stripe.webhooks.plan = () => ({})
    })
    world.stripe.addCard(ada.at, customer?.['customer_id'] ?? '')
    world.stripe.removeCard(ada.at, customer?.['card_id'] ?? '')
    await world.spend(ada, 3)
    await untilStates(world, ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)
})

describe('a fault', () => {
  it('does not reopen a collection whose charge is undecided', async () => {
    const ada = await world.payer(await world.merchant())
    world.stripe.faults = () => ({ kind: 'refuse', status: 500 })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['charging'])
    const [collection] = await world.collections(ada.user)
    const key = { appId: ada.user.appId, id: collection?.id ?? '' }
    const fault = { failure: 'internal', dueAt: world.clock.now() }
    await saveFault(world.sql, { ...key, state: 'issued' }, fault)
    expect(await world.collections(ada.user)).toEqual([collection])
    // The one that failed to charge notes it.
    await saveFault(world.sql, { ...key, state: 'charging' }, fault)
    expect(await world.collections(ada.user)).toMatchObject([{ state: 'issued', failures: 0 }])
  }, 60_000)
})

describe('release', () => {
  it('changes nothing if another core has claimed the collection since', async () => {
    const ada = await world.payer(await world.merchant(), { card: 'card_declined' })
    await world.spend(ada, 3)
    await untilStates(world, ada, ['retrying'])
    const [collection] = await world.collections(ada.user)
    const key = { appId: ada.user.appId, id: collection?.id ?? '' }
    const found = await lockPayable(world.sql, key)
    if (!found) throw new Error('the collection is missing')
    const until = new Date(found.dueAt.getTime() + second)
    const dueAt = async () => (await lockPayable(world.sql, key))?.dueAt
    await world.sql.query('update collections set due_at = $2 where id = $1', [found.id, until])
    await release(world.sql, found, new Date(until.getTime() - 1))
    expect(await dueAt()).toEqual(until)
    await release(world.sql, found, until)
    expect(await dueAt()).toEqual(found.dueAt)
  }, 60_000)
})

describe('cards that have expired', () => {
  it('are found page by page to the end, each user once', async () => {
    const shop = await world.merchant()
    const users: UserKey[] = []
    for (let i = 0; i < 5; i++) users.push((await world.payer(shop, { name: `user-${i}` })).user)
    const at = world.clock.now()
    const last = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - 1))
    const ids = users.map(({ userId }) => userId)
    await world.sql.query('update balances set ceiling_attos = 1 where user_id = any($1)', [ids])
    await world.sql.query(
      `update processor_customers set card_expires_year = $2, card_expires_month = $3 where user_id = any($1)`,
      [ids, last.getUTCFullYear(), last.getUTCMonth() + 1],
    )
    const found: string[] = []
    for (let after: UserKey | null = null, pages = 0; pages < 10; pages++) {
      const page: UserKey[] = await findExpired(world.sql, at, { after, limit: 2 })
      found.push(...page.map(({ userId }) => userId))
      after = page.at(-1) ?? null
      if (page.length < 2) break
    }
    expect(found.toSorted()).toEqual([...ids].toSorted())
  }, 60_000)
})

describe('an order that a crash left before its card step', () => {
  const late = '2099-01-01'

  /** Inserts an open order of a new user that is `ageSeconds` old. */
  async function abandon(payer: Payer, ageSeconds: number): Promise<UserKey & { id: string }> {
    const name = randomUUID()
    const { clientId } = payer.merchant
    await world.as().getAccess({ clientId, externalUserId: name })
    const user = await userOf(world, clientId, name)
    const id = randomUUID()
    const createdAt = new Date(world.clock.now().getTime() - ageSeconds * second)
    await world.sql.query(
      `insert into plan_orders (app_id, user_id, id, plan_id, timing, from_id, from_plan_id, price_attos, proration_attos,
                                amount_cents, state, author, created_at)
       values ($1, $2, $3, $4, 'immediate', $3, $4, 10::numeric ^ 18, 0, 100, 'open', 'test', $5)`,
      [user.appId, user.userId, id, payer.planId, createdAt],
    )
    return { ...user, id }
  }

  const attempt = (
    { appId, userId, id }: UserKey & { id: string },
    state: 'started' | 'succeeded' | 'failed',
  ) =>
    world.sql.query(
      `insert into payment_attempts (app_id, user_id, id, purpose, subject_id, amount_cents, fee_cents, description, plane,
                                     account_id, processor, customer_id, card_id, state, processor_id, failure, created_at, check_at,
                                     ended_at)
       values ($1, $2, gen_random_uuid(), 'plan', $3, 100, 0, '', 'live', '', 'stripe', 'cus', 'pm', $4,
               case when $4 = 'succeeded' then 'pi' end, case when $4 = 'failed' then 'no_card' end, $5, $6,
               case when $4 <> 'started' then $5::timestamptz end)`,
      [appId, userId, id, state, world.clock.now(), late],
    )

  const page = ({ appId, userId, id }: UserKey & { id: string }, endedAt: Date | null) =>
    world.sql.query(
      `insert into checkouts (app_id, user_id, id, opened_by, purpose, amount_cents, fee_cents, plan_id, plane, account_id, success_url,
                              cancel_url, state, created_at, check_at, ended_at)
       select $1, $2, $3, $1, 'plan', 100, 0, plan_id, 'live', '', '', '', case when $5::timestamptz is null then 'opening' else 'expired' end,
              $4, $6, $5
       from plan_orders where id = $3`,
      [appId, userId, id, world.clock.now(), endedAt, late],
    )

  it('expires after five minutes, unless something is under way', async () => {
    const payer = await world.payer(await world.merchant())
    const order = (ageSeconds = 301) => abandon(payer, ageSeconds)
    const [left, young, paying, started, paid, failed, closed] = [
      await order(),
      await order(290),
      await order(),
      await order(),
      await order(),
      await order(),
      await order(),
    ]
    await page(paying, null)
    await page(closed, world.clock.now())
    await attempt(started, 'started')
    await attempt(paid, 'succeeded')
    await attempt(failed, 'failed')
    const upkeep = createOrderUpkeep({
      pool: world.sql,
      booking: { end: (db, key, end) => saveEnded(db, key, { ...end, at: world.clock.now() }) },
      now: world.clock.now,
    })
    // Several cores at once.
    await Promise.all([upkeep(), upkeep()])
    const stateOf = async ({ id }: { readonly id: string }) => {
      const [row] = await world.rows('select state from plan_orders where id = $1', [id])
      return row?.['state']
    }
    expect(await Promise.all([left, failed, closed].map(stateOf))).toEqual(
      Array.from({ length: 3 }, () => 'expired'),
    )
    expect(await Promise.all([young, paying, started, paid].map(stateOf))).toEqual(
      Array.from({ length: 4 }, () => 'open'),
    )
  }, 60_000)
})
