import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import {
  type PaymentProcessor,
  type ProcessorAccount,
  usdCents,
} from '../../../core/billing/processor/port.ts'
import { createComparison } from '../../../core/billing/reconciliation/comparison.ts'
import { createReconciliation } from '../../../core/billing/reconciliation/reconciliation.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createStripeProcessor } from '../../../core/billing/processor/stripe/adapter.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import type {
  ProcessorDifference,
  ReconcileProcessorRequest,
} from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { type FakeStripe, startStripe } from '../../fakes/stripe/stripe.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, serviceToken, startTestCore } from '../support.ts'

/** Payments of connected accounts, and what the processor moves, recorded by tests. */

export let stripe: FakeStripe
export let core: TestCore
export let operator: CoreClient
export let processor: PaymentProcessor

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpReconciliation(): void {
  beforeAll(async () => {
    stripe = await startStripe({ now: () => core.clock.now() })
    core = await startTestCore(stripe.env)
    processor = createStripeProcessor(stripe.config, core.clock.now)
    operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
  })
  afterAll(async () => {
    operator.close()
    await core.stop()
    await stripe.stop()
  })
  /** Differences of earlier tests are closed. */
  beforeEach(async () => {
    for (const { id } of await listOpen())
      await operator.processorReconciliation.resolveProcessorDifference({
        id,
        resolution: 'earlier test',
      })
  })
}

export const platform: ProcessorAccount = { plane: 'live', account: null }
export const hourMs = 3_600_000

export interface Merchant {
  readonly clientId: string
  readonly appId: string
  readonly userId: string
  readonly at: ProcessorAccount
  readonly customer: string
  readonly card: string
}

/** Creates an app with a connected account, and a user with a card. */
export async function newMerchant(): Promise<Merchant> {
  const { clientId } = await operator.apps.createApp({
    name: 'Shop',
    ownerEmail: `${randomUUID()}@example.com`,
    ownerPassword: registerSecret('a long enough password'),
    isCustomer: true,
    starterUsdMicros: undefined,
  })
  await operator.users.upsertUser({
    clientId,
    externalUserId: 'ada',
    email: undefined,
    status: undefined,
    clearEmail: false,
  })
  await operator.billing.connectProcessor({ clientId })
  const { rows } = await core.sql.query<{ account: string; app_id: string; user_id: string }>(
    `select a.account, a.app_id, u.id as user_id
     from processor_accounts a
     join clients c on c.app_id = a.app_id and c.client_id = $1
     join end_users u on u.app_id = a.app_id and u.external_user_id = 'ada'`,
    [clientId],
  )
  const [row] = rows
  if (!row) throw new Error('the app has no account')
  stripe.onboard(row.account)
  const at: ProcessorAccount = { plane: 'live', account: row.account }
  const payer = { reference: `${row.app_id}/${row.user_id}`, description: 'ada' }
  const { id: customer } = await processor.createCustomer(at, payer, randomUUID())
  await core.sql.query(
    `insert into processor_customers (app_id, user_id, processor, plane, account_id, customer_id, created_at)
     values ($1, $2, 'stripe', 'live', $3, $4, $5)`,
    [row.app_id, row.user_id, row.account, customer, core.clock.now()],
  )
  const card = stripe.addCard(at, customer).id
  return { clientId, appId: row.app_id, userId: row.user_id, at, customer, card }
}

export interface Terms {
  readonly amount?: bigint
  readonly fee?: bigint
  /** Default is a reference of ours. */
  readonly reference?: string
}

/** Takes a payment at the processor. Returns its id there. */
export async function charge(
  { appId, at, customer, card }: Merchant,
  { amount = 500n, fee = 0n, reference = `${appId}/${randomUUID()}` }: Terms = {},
): Promise<string> {
  const payment = { customer, card, amount: usdCents(amount), fee: usdCents(fee), reference }
  const paid = await processor.pay(at, { ...payment, description: 'usage' }, randomUUID())
  return paid.id
}

/** Records a payment of ours. */
export async function record(
  { appId, userId, at }: Merchant,
  processorId: string,
  { amount = 500n, fee = 0n }: Terms = {},
): Promise<string> {
  const id = randomUUID()
  await core.sql.query(
    `insert into payments (app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, created_at)
     values ($1, $2, $3, 'plan', $4, $5, 'live', $6, $7, $8)`,
    [appId, userId, id, amount, fee, at.account ?? '', processorId, core.clock.now()],
  )
  return id
}

/** Takes a payment that both sides know. Returns the processor's id of it. */
export async function pay(merchant: Merchant, terms: Terms = {}): Promise<string> {
  const id = await charge(merchant, terms)
  await record(merchant, id, terms)
  return id
}

export async function recordReturn(
  { appId, userId }: Merchant,
  { paymentId, kind, amount }: { paymentId: string; kind: 'refund' | 'dispute'; amount: bigint },
): Promise<void> {
  await core.sql.query(
    `insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at, booked_at)
     values ($1, $2, gen_random_uuid(), $3, $4, $5, $6, $6)`,
    [appId, userId, paymentId, kind, amount, core.clock.now()],
  )
}

/** Takes a refund and a dispute that only the processor has, and a refund that only core has. */
export async function loseReturns(merchant: Merchant): Promise<void> {
  const [refunded, disputed] = [await pay(merchant), await pay(merchant)]
  const paymentId = await record(merchant, await charge(merchant))
  stripe.refundPayment(merchant.at, refunded, 100)
  stripe.dispute(merchant.at, disputed)
  await recordReturn(merchant, { paymentId, kind: 'refund', amount: 250n })
}

/** Takes a payment of 5 USD with a fee that nothing needs, and that was refunded. */
export async function surplus(merchant: Merchant): Promise<string> {
  const { appId, userId, at, customer, card } = merchant
  const id = await charge(merchant, { fee: 40n })
  await core.sql.query(
    `insert into payment_attempts (app_id, user_id, id, purpose, subject_id, amount_cents, fee_cents, description, plane,
       account_id, processor, customer_id, card_id, state, processor_id, failure, created_at, check_at, ended_at)
     values ($1, $2, gen_random_uuid(), 'invoice', gen_random_uuid(), 500, 40, 'usage', 'live', $3, 'stripe', $4, $5,
       'failed', $6, 'paid_twice', $7, $7, $7)`,
    [appId, userId, at.account, customer, card, id, core.clock.now()],
  )
  return id
}

/** Compares all accounts; returns the messages. */
export async function reconcile(request: ReconcileProcessorRequest = {}) {
  const accounts = []
  for await (const account of operator.processorReconciliation.reconcileProcessor(request))
    accounts.push(account)
  return accounts
}

/** Opens a comparison beside the core's own. */
export function openOwn(
  used: PaymentProcessor,
  reconcileReturns: () => Promise<unknown> = async () => {},
) {
  const parts = { pool: core.sql, log: silentLog(), now: () => core.clock.now(), processor: used }
  const settleCharge = async () => {}
  const comparison = createComparison({ ...parts, settleCharge, reconcileReturns })
  const { insertPlaces, reconcile: compareAll } = createReconciliation({ ...parts, comparison })
  async function compare(signal = new AbortController().signal) {
    const places = []
    for await (const place of compareAll({ range: null, isRecent: false }, signal))
      places.push(place)
    return places
  }
  return { insertPlaces, compare }
}

/** Lets movements settle, and compares them. Returns the new differences. */
export async function findNew(): Promise<ProcessorDifference[]> {
  core.clock.advance(2 * hourMs)
  return (await reconcile()).flatMap(({ differences }) => differences)
}

export const listOpen = async (): Promise<ProcessorDifference[]> =>
  (
    await operator.processorReconciliation.listProcessorDifferences({
      open: true,
      limit: 0,
      cursor: undefined,
    })
  ).differences

export const metric = async (name: string): Promise<string> =>
  (await core.metrics.metrics())
    .split('\n')
    .filter((line) => line.startsWith(name))
    .join('\n')
