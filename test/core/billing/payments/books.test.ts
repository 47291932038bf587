import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  listOpenReturns,
  openReturnsSince,
  saveTried,
} from '../../../../core/billing/payments/payment-store.ts'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { type TestApp, type TestCore, serviceToken, startTestCore } from '../../support.ts'

let core: TestCore
let operator: CoreClient
let app: TestApp
beforeAll(async () => {
  core = await startTestCore({ PAYMENT_PROCESSOR: 'simulated' })
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
  app = await core.newApp()
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})
afterAll(async () => {
  operator.close()
  await core.stop()
})

/** The checks that find a difference. */
async function checks(): Promise<string[]> {
  const seen: string[] = []
  for await (const { difference } of operator.books.verifyBooks({ clientId: app.clientId }))
    if (difference) seen.push(difference.check)
  return seen
}

/** Records a payment that the ledger does not have. */
async function recordPayment(): Promise<string> {
  const id = randomUUID()
  await core.sql.query(
    `insert into payments (app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, credit_id,
                           created_at)
     select u.app_id, u.id, $1::uuid, 'top_up', 500, 0, 'live', '', $1::text, $2, now()
     from end_users u join clients c on c.app_id = u.app_id and c.client_id = $3`,
    [id, randomUUID(), app.clientId],
  )
  return id
}

it('finds a payment and a return that the ledger does not have', async () => {
  expect(await checks()).toEqual([])
  const paymentId = await recordPayment()
  expect(new Set(await checks())).toEqual(new Set(['payments']))
  const before = (await checks()).length
  await core.sql.query(
    `insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at, booked_at)
     select app_id, user_id, $1, id, 'refund', 500, now(), now() from payments where id = $2`,
    [randomUUID(), paymentId],
  )
  expect((await checks()).length).toBeGreaterThan(before)
})

it('tries the returns first that were tried last a long time ago, and shows the oldest', async () => {
  const paymentId = await recordPayment()
  const insert = (id: string, createdAt: string) =>
    core.sql.query(
      `insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at)
       select app_id, user_id, $1, id, 'refund', 1, $2 from payments where id = $3`,
      [id, createdAt, paymentId],
    )
  const [first, second] = [randomUUID(), randomUUID()]
  await insert(first, '2026-01-01T00:00:00Z')
  await insert(second, '2026-01-02T00:00:00Z')
  const next = async () => (await listOpenReturns(core.sql, 1)).map(({ id }) => id)
  expect(await next()).toEqual([first])
  const [open] = await listOpenReturns(core.sql, 1)
  if (open) await saveTried(core.sql, open, core.clock.now())
  expect(await next()).toEqual([second])
  expect(await openReturnsSince(core.sql)).toEqual(new Date('2026-01-01T00:00:00Z'))
  expect(
    await core.metrics.getSingleMetricAsString('tollgate_billing_returns_age_seconds'),
  ).toMatch(/seconds\S* \d{6,}/)
})

describe('refund of a payment', () => {
  const refund = (client: CoreClient, paymentId: string, idempotencyKey = 'refund-1') =>
    client.payments.refundPayment({
      clientId: app.clientId,
      paymentId,
      idempotencyKey,
      amountUsd: undefined,
    })

  it('refuses an unknown payment, and a request without a key', async () => {
    const unknown = randomUUID()
    for (const [id, message] of [
      [unknown, `no payment ${unknown}`],
      ['pi_1', 'the id of a payment is a UUID'],
    ] as const)
      await expect(refund(operator, id)).rejects.toMatchObject({
        reason: 'NOT_FOUND',
        message: expect.stringContaining(message),
      })
    await expect(refund(operator, randomUUID(), '')).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })

  it('is refused without a payment processor', async () => {
    const { core: bare } = await core.startAnother({ PAYMENT_PROCESSOR: 'none' })
    const client = connectCore({ target: bare.target, token: serviceToken, tls: undefined })
    onTestFinished(() => client.close())
    await expect(refund(client, randomUUID())).rejects.toMatchObject({
      reason: 'PROCESSOR_NOT_CONFIGURED',
    })
  })
})
