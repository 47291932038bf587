import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type PaymentProcessor,
  type ProcessorAccount,
  usdCents,
} from '../../../core/billing/processor/port.ts'
import {
  claimPlaces,
  comparedThrough,
} from '../../../core/billing/reconciliation/progress-store.ts'
import { createComparison } from '../../../core/billing/reconciliation/comparison.ts'
import { createReconciliation } from '../../../core/billing/reconciliation/reconciliation.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createStripeProcessor } from '../../../core/billing/processor/stripe/adapter.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import type {
  ProcessorDifference,
  ReconcileProcessorRequest,
  ReconcileProcessorResponse,
} from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { type FakeStripe, startStripe } from '../../fakes/stripe/stripe.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, serviceToken, startTestCore, until } from '../support.ts'

let stripe: FakeStripe
let core: TestCore
let operator: CoreClient
let processor: PaymentProcessor
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

const platform: ProcessorAccount = { plane: 'live', account: null }
const hourMs = 3_600_000

interface Merchant {
  readonly clientId: string
  readonly appId: string
  readonly userId: string
  readonly at: ProcessorAccount
  readonly customer: string
  readonly card: string
}

/** Creates an app with a connected account, and a user with a card. */
async function newMerchant(): Promise<Merchant> {
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

interface Terms {
  readonly amount?: bigint
  readonly fee?: bigint
  /** Default is a reference of ours. */
  readonly reference?: string
}

/** Takes a payment at the processor. Returns its id there. */
async function charge(
  { appId, at, customer, card }: Merchant,
  { amount = 500n, fee = 0n, reference = `${appId}/${randomUUID()}` }: Terms = {},
): Promise<string> {
  const payment = { customer, card, amount: usdCents(amount), fee: usdCents(fee), reference }
  const paid = await processor.pay(at, { ...payment, description: 'usage' }, randomUUID())
  return paid.id
}

/** Records a payment of ours. */
async function record(
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
async function pay(merchant: Merchant, terms: Terms = {}): Promise<string> {
  const id = await charge(merchant, terms)
  await record(merchant, id, terms)
  return id
}

async function recordReturn(
  { appId, userId }: Merchant,
  { paymentId, kind, amount }: { paymentId: string; kind: 'refund' | 'dispute'; amount: bigint },
): Promise<void> {
  await core.sql.query(
    `insert into payment_returns (app_id, user_id, id, payment_id, kind, amount_cents, created_at, booked_at)
     values ($1, $2, gen_random_uuid(), $3, $4, $5, $6, $6)`,
    [appId, userId, paymentId, kind, amount, core.clock.now()],
  )
}

/** Compares all accounts; returns the messages. */
async function reconcile(request: ReconcileProcessorRequest = {}) {
  const accounts = []
  for await (const account of operator.processorReconciliation.reconcileProcessor(request))
    accounts.push(account)
  return accounts
}

/** Lets movements settle, and compares them. Returns the new differences. */
async function findNew(): Promise<ProcessorDifference[]> {
  core.clock.advance(2 * hourMs)
  return (await reconcile()).flatMap(({ differences }) => differences)
}

const listOpen = async (): Promise<ProcessorDifference[]> =>
  (
    await operator.processorReconciliation.listProcessorDifferences({
      open: true,
      limit: 0,
      cursor: undefined,
    })
  ).differences

const metric = async (name: string): Promise<string> =>
  (await core.metrics.metrics())
    .split('\n')
    .filter((line) => line.startsWith(name))
    .join('\n')

describe('reconcile with the processor', () => {
  it('finds no difference where both sides agree, and sums every kind of movement', async () => {
    const merchant = await newMerchant()
    await pay(merchant)
    const id = await charge(merchant, { amount: 2_000n, fee: 300n })
    const paymentId = await record(merchant, id, { amount: 2_000n, fee: 300n })
    stripe.refundPayment(merchant.at, id, 700)
    await recordReturn(merchant, { paymentId, kind: 'refund', amount: 700n })
    stripe.payOut(merchant.at, 900)
    core.clock.advance(2 * hourMs)
    const accounts = await reconcile()
    expect(accounts.flatMap(({ differences }) => differences)).toEqual([])
    const own = accounts.find(({ account }) => account === merchant.at.account)
    expect(own).toMatchObject({ plane: 'live', clientId: merchant.clientId })
    expect(own?.sums).toEqual([
      { kind: 'payment', currency: 'usd', count: 2, amount: '2500' },
      { kind: 'payout', currency: 'usd', count: 1, amount: '-900' },
      { kind: 'refund', currency: 'usd', count: 1, amount: '-700' },
    ])
    const ours = accounts.find(({ account, plane }) => account === undefined && plane === 'live')
    expect(ours?.sums).toEqual([{ kind: 'fee', currency: 'usd', count: 1, amount: '300' }])
  })

  it('waits an hour before it compares a movement', async () => {
    const merchant = await newMerchant()
    await charge(merchant)
    core.clock.advance(hourMs / 2)
    await reconcile()
    expect(await listOpen()).toEqual([])
    expect(await findNew()).toHaveLength(1)
  })

  it('compares the last hour when asked to, and again later', async () => {
    const merchant = await newMerchant()
    await charge(merchant)
    const own = (accounts: readonly ReconcileProcessorResponse[]) =>
      accounts.find(({ account }) => account === merchant.at.account)
    core.clock.advance(1_000)
    const recent = own(await reconcile({ recent: true }))
    expect(recent?.sums).toMatchObject([{ kind: 'payment', count: 1 }])
    expect(recent?.differences).toHaveLength(1)
    core.clock.advance(2 * hourMs)
    expect(own(await reconcile())).toMatchObject({
      sums: [{ kind: 'payment', count: 1 }],
      differences: [],
    })
    expect(await listOpen()).toHaveLength(1)
  })

  it('finds a payment that is missing on our side, and closes it when it is recorded', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant, { amount: 1_234n })
    expect(await findNew()).toMatchObject([
      {
        subject: 'payment',
        problem: 'missing_here',
        clientId: merchant.clientId,
        account: merchant.at.account,
        processorPaymentId: id,
        ours: undefined,
        theirs: '1234',
      },
    ])
    expect(await metric('tollgate_billing_processor_differences{')).toContain(
      'subject="payment",process="core"} 1',
    )
    await record(merchant, id, { amount: 1_234n })
    expect(await findNew()).toEqual([])
    expect(await listOpen()).toEqual([])
    const { differences } = await operator.processorReconciliation.listProcessorDifferences({
      open: false,
      limit: 1,
      cursor: undefined,
    })
    expect(differences).toMatchObject([
      { resolution: 'both sides agree now', resolvedBy: undefined },
    ])
  })

  it('ignores sales of the account that are not ours', async () => {
    const merchant = await newMerchant()
    const other = await newMerchant()
    await charge(merchant, { reference: 'order 17' })
    await charge(merchant, { reference: `${other.appId}/${randomUUID()}` })
    await charge(merchant, { reference: `${randomUUID()}/${randomUUID()}` })
    const foreign = await charge(merchant, { reference: '-'.repeat(36) + '/' + '-'.repeat(36) })
    stripe.refundPayment(merchant.at, foreign, 100)
    expect(await findNew()).toEqual([])
  })

  it('finds a payment that is missing at the processor', async () => {
    const merchant = await newMerchant()
    const paymentId = await record(merchant, 'pi_invented')
    expect(await findNew()).toMatchObject([
      { subject: 'payment', problem: 'missing_there', paymentId, ours: '500', theirs: undefined },
    ])
  })

  it('finds another amount, another currency and another fee', async () => {
    const merchant = await newMerchant()
    await record(merchant, await charge(merchant, { amount: 600n }), { amount: 500n })
    const converted = await pay(merchant)
    for (const kind of ['charge', 'payment_intent'] as const)
      for (const object of stripe.world(merchant.at).list(kind))
        if (
          object.id === converted ||
          ('payment_intent' in object && object.payment_intent === converted)
        )
          Object.assign(object, { currency: 'eur' })
    await record(merchant, await charge(merchant, { fee: 20n }), { fee: 30n })
    await record(merchant, await charge(merchant, { fee: 20n }))
    const found = await findNew()
    expect(
      found
        .map(({ subject, problem, ours, theirs, currency }) =>
          [subject, problem, ours, theirs, currency].join(' '),
        )
        .toSorted(),
    ).toEqual([
      'fee amount 30 20 usd',
      'fee missing_here  20 usd',
      'payment amount 500 600 usd',
      'payment currency 500 500 eur',
    ])
  })

  it("finds a platform fee that did not arrive in the platform's account", async () => {
    const merchant = await newMerchant()
    await pay(merchant, { fee: 20n })
    const lost = await pay(merchant, { fee: 40n })
    const charges = [...stripe.world(merchant.at).list('charge')]
    const lostCharge = charges.find(({ payment_intent }) => payment_intent === lost)?.id
    for (const fee of stripe.world(platform).list('application_fee'))
      if (fee.charge === lostCharge) Object.assign(fee, { charge: 'ch_other' })
    expect(await findNew()).toMatchObject([
      { subject: 'earning', problem: 'missing_there', processorPaymentId: lost, ours: '40' },
    ])
  })

  it('finds refunds and disputes that one side does not have', async () => {
    const merchant = await newMerchant()
    const [refunded, disputed] = [await charge(merchant), await charge(merchant)]
    for (const id of [refunded, disputed]) await record(merchant, id)
    const invented = await charge(merchant)
    const paymentId = await record(merchant, invented)
    stripe.refundPayment(merchant.at, refunded, 100)
    stripe.dispute(merchant.at, disputed)
    await recordReturn(merchant, { paymentId, kind: 'refund', amount: 250n })
    const found = await findNew()
    expect(
      found
        .map(({ subject, problem, ours, theirs }) => [subject, problem, ours, theirs].join(' '))
        .toSorted(),
    ).toEqual([
      'dispute missing_here  500',
      'refund missing_here  100',
      'refund missing_there 250 ',
    ])
  })

  it('does not count a refund that failed or a dispute that was won', async () => {
    const merchant = await newMerchant()
    const [refunded, disputed] = [await pay(merchant), await pay(merchant)]
    const refund = stripe.refundPayment(merchant.at, refunded, 100)
    stripe.failRefund(merchant.at, refund.id)
    stripe.closeDispute(merchant.at, stripe.dispute(merchant.at, disputed).id, 'won')
    expect(await findNew()).toEqual([])
  })

  it('reports a resolved difference again only with other figures', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant, { amount: 900n })
    const [found] = await findNew()
    const { processorReconciliation } = operator
    const request = { id: found?.id ?? '', resolution: 'refunded by hand' }
    const { difference } = await processorReconciliation.resolveProcessorDifference(request)
    expect(difference).toMatchObject({ resolution: 'refunded by hand', processorPaymentId: id })
    expect(difference?.resolvedBy).toBeTruthy()
    await expect(processorReconciliation.resolveProcessorDifference(request)).rejects.toMatchObject(
      { reason: 'CONFLICT' },
    )
    await expect(
      processorReconciliation.resolveProcessorDifference({ ...request, id: randomUUID() }),
    ).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    const day = core.clock.now().toISOString().slice(0, 10)
    const again = await reconcile({ from: day, to: day })
    expect(again.flatMap(({ differences }) => differences)).toEqual([])
    await record(merchant, id, { amount: 800n })
    expect(await findNew()).toMatchObject([{ problem: 'amount', ours: '800', theirs: '900' }])
  })

  it('continues after an outage in the middle of many pages', async () => {
    const merchant = await newMerchant()
    for (let i = 0; i < 210; i++) await pay(merchant)
    const missing = await charge(merchant)
    core.clock.advance(2 * hourMs)
    let pages = 0
    stripe.faults = ({ route, account }) =>
      route === '/v1/balance_transactions' && account === merchant.at.account && pages++ > 0
        ? { kind: 'refuse', status: 429 }
        : undefined
    const failed = (await reconcile()).find(({ account }) => account === merchant.at.account)
    expect(failed?.failure).toBeTruthy()
    expect(await listOpen()).toEqual([])
    stripe.faults = () => undefined
    const before = stripe.requests.length
    expect((await reconcile()).flatMap(({ differences }) => differences)).toMatchObject([
      { processorPaymentId: missing },
    ])
    const starts = stripe.requests
      .slice(before)
      .filter(
        ({ route, account }) =>
          route === '/v1/balance_transactions' && account === merchant.at.account,
      )
      .map(({ form }) => form['starting_after'])
    expect(starts[0]).toMatch(/^txn_/)
  }, 60_000)

  it('refuses days that are none, reversed, or more than 92', async () => {
    for (const range of [
      { from: 'yesterday' },
      { from: '2026-03-02', to: '2026-03-01' },
      { from: '2026-01-01', to: '2026-06-01' },
    ])
      await expect(reconcile(range)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })

  it('never changes what it found', async () => {
    for (const change of [
      'update processor_movements set amount = amount + 1',
      'delete from processor_movements',
      'update processor_differences set theirs = 0',
      `update processor_differences set resolution = 'other'`,
      'delete from processor_differences',
    ])
      await expect(core.sql.query(change)).rejects.toThrow(/append-only|rewrit/i)
  })

  it('does not wait for accounts of a plane or processor that is not configured', async () => {
    await newMerchant()
    await findNew()
    const age = 'tollgate_billing_reconciliation_age_seconds'
    const before = await metric(age)
    await core.sql.query(
      `insert into processor_reconciliations (processor, plane, account_id, through, due_at)
       values ('simulated', 'live', '', '2020-01-01', '2020-01-01'), ('stripe', 'test', 'acct_old', '2020-01-01', '2020-01-01')`,
    )
    const live = { kind: 'stripe', planes: ['live'] } as const
    expect(await comparedThrough(core.sql, { ...live, planes: ['live', 'test'] })).toEqual(
      new Date('2020-01-01'),
    )
    expect((await comparedThrough(core.sql, live))?.getTime()).toBeGreaterThan(
      core.clock.now().getTime() - 3 * hourMs,
    )
    const claim = { at: core.clock.now(), until: core.clock.now(), limit: 100 }
    const claimed = await claimPlaces(core.sql, { kind: 'stripe', planes: [] }, claim)
    expect(claimed).toEqual([])
    await core.sql.query(`delete from processor_reconciliations where account_id = 'acct_old'`)
    expect(await metric(age)).toBe(before)
  })

  it('stops between two pages of an account when it is aborted, and continues there', async () => {
    const stopping = new AbortController()
    const asked: (string | null)[] = []
    const endless = {
      ...processor,
      kind: 'simulated' as const,
      planes: ['live'] as const,
      listMovements: async (
        _at: ProcessorAccount,
        { after }: { readonly after: string | null },
      ) => {
        asked.push(after)
        if (asked.length === 3) stopping.abort()
        return { movements: [], after: asked.length < 5 ? `txn_${asked.length}` : null }
      },
    }
    const parts = { pool: core.sql, log: silentLog(), now: () => core.clock.now() }
    const comparison = createComparison({
      ...parts,
      processor: endless,
      settleCharge: async () => {},
    })
    const own = createReconciliation({ ...parts, processor: endless, comparison })
    const compare = async (signal: AbortSignal) => {
      const places = []
      for await (const place of own.reconcile({ range: null, isRecent: false }, signal))
        places.push(place)
      return places
    }
    // A test before leaves one that was compared until 2020: that is thousands of days.
    await core.sql.query(`delete from processor_reconciliations where processor = 'simulated'`)
    await own.insertPlaces()
    core.clock.advance(3 * hourMs)
    expect(await compare(stopping.signal)).toEqual([])
    expect(asked).toEqual([null, 'txn_1', 'txn_2'])
    expect(await compare(new AbortController().signal)).toHaveLength(1)
    expect(asked.slice(3, 5)).toEqual(['txn_3', 'txn_4'])
  })

  it('runs by itself when an account is due', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant)
    core.clock.advance(26 * hourMs)
    await core.startAnother(stripe.env)
    await until(async () => (await listOpen()).length > 0)
    expect(await listOpen()).toMatchObject([{ processorPaymentId: id }])
  })
})
