import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { UsdAttos } from '../../../core/lib/money.ts'
import { unary } from '../../../core/lib/grpc.ts'
import { PaymentServiceClient } from '../../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { until } from '../../support/waiting.ts'
import { expectRightBooks } from '../balances/ledger/owner-world.ts'
import {
  type CollectionWorld,
  type Merchant,
  type Payer,
  startCollections,
  untilStates,
  usd,
} from '../billing/collection/world.ts'
import { day, second, serviceToken } from '../support.ts'
import { tollgate } from './support.ts'

/** Changes every figure of every row of payments, plan orders and invoices; `verify` reports each. */

interface Table {
  /** By which `verify` names a row. */
  readonly key: string
  /** Columns with rows on which no figure of the books depends, and the condition for those rows. */
  readonly free?: Readonly<Record<string, string>>
}

const tables: Readonly<Record<string, Table>> = {
  payments: { key: 'id' },
  payment_returns: { key: 'id' },
  // A charge that took nothing has collected no fee.
  payment_attempts: { key: 'id', free: { fee_cents: `state <> 'succeeded'` } },
  plan_orders: { key: 'id' },
  prorations: { key: `to_jsonb(period_start) #>> '{}'` },
  invoices: { key: 'id' },
}

let world: CollectionWorld
let shop: Merchant
let payments: PaymentServiceClient
beforeAll(async () => {
  world = await startCollections()
  shop = await world.merchant({ isOwned: false })
  payments = new PaymentServiceClient(world.core.target, credentials.createInsecure())
  await world.damage(`
    insert into accounts (id, email, created_at)
    values ('00000000-0000-4000-8000-00000000000a', 'owner@example.com', '2026-01-01T00:00:00Z');
    insert into members (app_id, account_id, role, created_at)
    values ('${shop.appId}', '00000000-0000-4000-8000-00000000000a', 'owner', '2026-01-01T00:00:00Z')`)
})
afterAll(async () => {
  payments.close()
  await world.stop()
})

const count = async (text: string, ...values: unknown[]): Promise<number> =>
  (await world.rows(text, values)).length

/** An invoice is paid with a fee for the owner, refunded in part, disputed and won; another fails. */
async function payInvoice(): Promise<void> {
  const ada = await world.payer(shop, { threshold: usd(1_000) })
  await world.spend(ada, 5)
  await untilStates(world, ada, ['paid'])
  const [payment] = await world.rows('select processor_id, fee_cents from payments')
  expect(Number(payment?.['fee_cents'])).toBeGreaterThan(0)
  const id = payment?.['processor_id'] ?? ''
  world.stripe.refundPayment(ada.at, id, 400)
  await returns(1)
  const { id: dispute } = world.stripe.dispute(ada.at, id)
  await returns(2)
  world.stripe.closeDispute(ada.at, dispute, 'won')
  await returns(3)
  const bob = await world.payer(shop, { name: 'bob', card: 'card_declined' })
  await world.spend(bob, 3)
  await untilStates(world, bob, ['retrying'])
}

const returns = (number: number): Promise<void> =>
  until(
    async () => (await count('select from payment_returns where booked_at is not null')) === number,
  )

/** A top-up is refunded in part. */
async function topUp(): Promise<void> {
  const ben = await world.payer(shop, { name: 'ben' })
  await unary(payments.createTopUp.bind(payments))(
    {
      clientId: shop.clientId,
      externalUserId: ben.name,
      amountUsd: '20.00',
      successUrl: undefined,
      cancelUrl: undefined,
      idempotencyKey: undefined,
    },
    {
      deadlineMs: 15_000,
      headers: { [serviceTokenHeader]: serviceToken, authorization: shop.basic ?? '' },
    },
  )
  world.stripe.payCheckout(ben.at, await pageOf(ben))
  const paid = `select processor_id from payments where purpose = 'top_up'`
  await until(async () => (await count(paid)) === 1)
  const [payment] = await world.rows(paid)
  world.stripe.refundPayment(ben.at, payment?.['processor_id'] ?? '', 500)
  await returns(4)
}

/** Paid moves, one with the unused part of a period, one without a charge, one with its credit. */
async function orderPlans(): Promise<void> {
  const cas = await world.payer(shop, { name: 'cas' })
  const small = await plan('30.00')
  await world.changePlan(cas, small)
  world.clock.advance(10 * day)
  await world.changePlan(cas, await plan('60.00'))
  await world.changePlan(cas, small)
  await world.changePlan(cas, await plan('100.00'))
  const orders = await world.rows(
    'select amount_cents, credit_attos from plan_orders where user_id = $1 order by created_at',
    [cas.user.userId],
  )
  expect(
    orders.map((order) => [order['amount_cents'] !== null, order['credit_attos'] !== '0']),
  ).toEqual([
    [true, false],
    [true, false],
    [false, false],
    [true, true],
  ])
}

/** The unused part of a period is less than its time, because most of the included usage is used. */
async function orderByUsage(): Promise<void> {
  const dan = await world.payer(shop, { name: 'dan' })
  await world.changePlan(dan, await plan('30.00', usd(1_000)))
  world.clock.advance(day)
  await world.spend(dan, 3)
  await world.changePlan(dan, await plan('80.00'))
  expect(await count('select from prorations where unused_attos is not null')).toBe(1)
}

/** Orders that are left, declined, scheduled, and paid when the plan cannot be taken any more. */
async function leaveOrders(): Promise<void> {
  const eve = await world.payer(shop, { name: 'eve', card: null, type: 'subscription' })
  await world.changePlan(eve, await plan('20.00'))
  world.stripe.expireCheckout(eve.at, await pageOf(eve))
  const states = (state: string) => async () =>
    (await count('select from plan_orders where state = $1', state)) === 1
  await until(states('expired'))
  world.clock.advance(second)
  const planId = await plan('22.00')
  await world.changePlan(eve, planId)
  const planJson = JSON.stringify({ priceAmount: '25.00' })
  await world.operator.plans.updatePlan({ clientId: shop.clientId, planId, planJson })
  world.stripe.payCheckout(eve.at, await pageOf(eve))
  await until(states('credited'))
  const fay = await world.payer(shop, { name: 'fay', card: 'card_declined' })
  await expect(world.changePlan(fay, await plan('21.00'))).rejects.toMatchObject({
    reason: 'CARD_DECLINED',
  })
  const gil = await world.payer(shop, { name: 'gil' })
  await world.changePlan(gil, await plan('23.00'), 'next_billing_cycle')
}

const plan = (price: string, included?: UsdAttos) => world.plan(shop, price, included)

async function pageOf({ user }: Payer): Promise<string> {
  const [page] = await world.rows(
    'select processor_id from checkouts where user_id = $1 order by created_at desc limit 1',
    [user.userId],
  )
  return page?.['processor_id'] ?? ''
}

/** Adds the least to a column of all rows, runs `act`, and undoes the change. */
async function changed<T>(table: string, column: string, act: () => Promise<T>): Promise<T> {
  await world.damage(
    `create table kept as select * from ${table}; update ${table} set ${column} = coalesce(${column}, 0) + 1`,
  )
  try {
    return await act()
  } finally {
    await world.damage(
      `delete from ${table}; insert into ${table} select * from kept; drop table kept`,
    )
  }
}

/** Drops check constraints, because verify must find a change even without them. */
async function dropChecks(table: string): Promise<void> {
  const checks = await world.rows(
    `select conname from pg_constraint where conrelid = $1::regclass and contype = 'c'`,
    [table],
  )
  for (const { conname } of checks)
    await world.damage(`alter table ${table} drop constraint ${conname}`)
}

describe('a figure of a payment, an order or an invoice', () => {
  it('is in a table with cents that is checked, or of a page', async () => {
    const rows = await world.rows(
      `select distinct table_name from information_schema.columns
       where table_schema = current_schema() and column_name like '%\\_cents' order by 1`,
    )
    const known = [...Object.keys(tables), 'checkouts']
    expect(
      rows.map(({ table_name }) => table_name).filter((name) => !known.includes(name ?? '')),
    ).toEqual([])
  })

  it('has rows of each kind, which are right', async () => {
    await payInvoice()
    await topUp()
    await orderPlans()
    await orderByUsage()
    await leaveOrders()
    const kinds = async (table: string, column: string) =>
      (await world.rows(`select distinct ${column} as kind from ${table} order by 1`)).map(
        ({ kind }) => kind,
      )
    expect(await kinds('payments', 'purpose')).toEqual(['invoice', 'plan', 'top_up'])
    expect(await kinds('payment_returns', 'kind')).toEqual(['dispute', 'dispute_won', 'refund'])
    expect(await kinds('payment_attempts', 'state')).toEqual(['failed', 'succeeded'])
    expect(await kinds('plan_orders', 'state')).toEqual(['booked', 'credited', 'expired', 'failed'])
    expect(await kinds('invoices', 'kind')).toEqual(['credit_note', 'invoice'])
    await expectRightBooks()
  }, 60_000)

  it.each(Object.entries(tables))(
    'of %s is reported when it is changed',
    async (table, { key, free = {} }) => {
      await dropChecks(table)
      const columns = await world.rows(
        `select column_name from information_schema.columns
       where table_schema = current_schema() and table_name = $1 and column_name ~ '_(attos|cents)$'`,
        [table],
      )
      const missed: string[] = []
      for (const { column_name: column } of columns) {
        const rows = await world.rows(
          `select (${key})::text as key from ${table} where not (${free[column ?? ''] ?? 'false'})`,
        )
        expect(rows).not.toEqual([])
        const { text } = await changed(table, column ?? '', () => tollgate('verify'))
        for (const row of rows)
          if (!text.includes(row['key'] ?? '')) missed.push(`${table}.${column} ${row['key']}`)
      }
      expect(missed).toEqual([])
      await expectRightBooks()
    },
    60_000,
  )
})
