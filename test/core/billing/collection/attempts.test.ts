import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createAttemptSweep } from '../../../../core/billing/collection/attempt-sweep.ts'
import {
  type AttemptHandler,
  type ChargeRequest,
  createAttempts,
} from '../../../../core/billing/collection/attempts.ts'
import { type Payer, createCustomers } from '../../../../core/billing/payments/customers.ts'
import type { PaymentProcessor, ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import { createStripeProcessor } from '../../../../core/billing/processor/stripe/adapter.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import type { Fault } from '../../../fakes/stripe/faults.ts'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { createRandom } from '../../../support/random.ts'
import { testSeed } from '../../../support/run/sizes.ts'
import { escrowUser } from '../../balances/escrow/support.ts'
import { type TestCore, second, startTestCore } from '../../support.ts'
import { cents } from '../processor/port-contract.ts'

let core: TestCore
let stripe: FakeStripe
let processor: PaymentProcessor
beforeAll(async () => {
  // The core itself has no processor, so that only these tests settle attempts.
  core = await startTestCore({ PAYMENT_PROCESSOR: 'none' })
  stripe = await startStripe({ now: core.clock.now })
  processor = createStripeProcessor({ ...stripe.config, timeoutMs: 500 }, core.clock.now)
})
afterAll(async () => {
  await stripe.stop()
  await core.stop()
})

const live: ProcessorAccount = { plane: 'live', account: null }

/** What the handler of a purpose has heard, by subject. */
type Heard = [word: 'paid' | 'failed', subject: string, detail: string]
let heard: Heard[]
let forbidden: Set<string>
let payer: Payer
let card: string
beforeEach(async () => {
  heard = []
  forbidden = new Set()
  stripe.faults = () => undefined
  const { user } = await escrowUser(core, await core.newApp())
  payer = { ...user, externalUserId: 'ada', at: live }
  card = await giveCard()
})

const customers = () => createCustomers({ pool: core.sql, processor, now: core.clock.now })

async function giveCard(behaviour: 'good' | 'processing' | 'card_declined' = 'good') {
  const customer = await customers().ensure(payer, randomUUID())
  const added = stripe.addCard(live, customer.customerId, { behaviour })
  await customers().refresh(customer)
  return added.id
}

/** Another core each time: nothing is kept in memory. */
function open() {
  const handler: AttemptHandler = {
    begin: async (_db, { subjectId }) => !forbidden.has(subjectId),
    paid: async (_db, { subjectId }, processorId) =>
      heard.push(['paid', subjectId, processorId]) > 0,
    failed: async (_db, { subjectId }, failure) => void heard.push(['failed', subjectId, failure]),
  }
  const shared = {
    pool: core.sql,
    log: silentLog(),
    metrics: createMetrics('core'),
    now: core.clock.now,
  }
  const attempts = createAttempts({
    ...shared,
    processor,
    customers: customers(),
    handlers: { invoice: handler, plan: handler },
    reconcileReturns: async () => 'unknown',
  })
  return {
    attempts,
    sweep: createAttemptSweep({ ...shared, processor, attempts }),
    metrics: shared.metrics,
  }
}

const request = (fields: Partial<ChargeRequest> = {}): ChargeRequest => ({
  payer,
  purpose: 'invoice',
  subjectId: randomUUID(),
  amount: cents(1_234),
  fee: cents(0),
  description: 'Invoice 1',
  ...fields,
})

const charge = (of: ChargeRequest) => open().attempts.charge(of)

async function sweep(): Promise<void> {
  core.clock.advance(700 * second)
  await open().sweep.round()
}

/** Changes an attempt as core cannot. */
const rewrite = (columns: string, id: unknown) =>
  tx(core.sql, async (db) => {
    await db.query('set local session_replication_role = replica')
    await db.query(`update payment_attempts set ${columns} where id = $1`, [id])
  })

/** The payments that succeeded at the processor for the current payer. */
const taken = () =>
  [...stripe.world(live).list('payment_intent')].filter(
    ({ status, metadata }) =>
      status === 'succeeded' && metadata['reference']?.startsWith(payer.appId),
  )

/** Applies the fault to the next request that charges. */
function breakNext(fault: Fault): void {
  let left = 2
  stripe.faults = ({ method, route }) =>
    method === 'POST' && route === '/v1/payment_intents' && left-- > 0 ? fault : undefined
}

describe('a charge of the card on file', () => {
  it('takes the money and books it once', async () => {
    const of = request()
    expect(await charge(of)).toMatchObject({ state: 'succeeded' })
    expect(await charge(of)).toMatchObject({ state: 'succeeded' })
    const [payment] = taken()
    expect(payment).toMatchObject({ amount: 1_234, payment_method: card, description: 'Invoice 1' })
    expect(heard).toEqual([['paid', of.subjectId, payment?.id]])
    expect(taken()).toHaveLength(1)
  })

  it('is never rewritten or deleted', async () => {
    await charge(request())
    const updates = ['amount_cents = 1', 'fee_cents = 1', `card_id = 'other'`, 'subject_id = id']
    const changes = updates.map((columns) => `update payment_attempts set ${columns}`)
    for (const change of [...changes, 'delete from payment_attempts'])
      await expect(core.sql.query(change)).rejects.toThrow(/append-only|rewrit/i)
  })

  it('is made once for 20 simultaneous calls of several cores', async () => {
    const of = request()
    await Promise.all(Array.from({ length: 20 }, () => charge(of)))
    expect(taken()).toHaveLength(1)
    expect(heard.map(([word]) => word)).toEqual(['paid'])
  })

  it('is not made without a card, and reports it', async () => {
    stripe.removeCard(live, card)
    const customer = await customers().ensure(payer, 'again')
    await customers().refresh(customer)
    const of = request()
    expect(await charge(of)).toMatchObject({ state: 'failed', failure: 'no_card' })
    expect(heard).toEqual([['failed', of.subjectId, 'no_card']])
  })

  it('is not made if the subject must not be charged', async () => {
    const of = request()
    forbidden.add(of.subjectId)
    expect(await charge(of)).toBeNull()
    expect(taken()).toEqual([])
    expect(heard).toEqual([])
  })

  it.each([
    ['card_declined', 'card_declined'],
    ['authentication_required', 'action_required'],
  ] as const)('fails when the card is %s, and may be tried again', async (behaviour, failure) => {
    stripe.setCard(live, card, behaviour)
    const of = request()
    expect(await charge(of)).toMatchObject({ state: 'failed', failure })
    expect(heard).toEqual([['failed', of.subjectId, failure]])
    stripe.setCard(live, card, 'good')
    expect(await charge(of)).toMatchObject({ state: 'succeeded' })
    expect(taken()).toHaveLength(1)
  })

  it('is refused for a card that the processor no longer has; the next one finds none', async () => {
    stripe.removeCard(live, card)
    const of = request()
    expect(await charge(of)).toMatchObject({ state: 'failed', failure: 'processor_refused' })
    expect(await charge(of)).toMatchObject({ state: 'failed', failure: 'no_card' })
  })
})

const lost: [string, Fault][] = [
  ['a connection that breaks before the effect', { kind: 'reset before' }],
  ['a connection that breaks after the effect', { kind: 'reset after' }],
  ['no answer, before the effect', { kind: 'hang before' }],
  ['no answer, after the effect', { kind: 'hang after' }],
  ['a stored error after the effect', { kind: 'error after', isStored: true }],
  ['an error before the effect', { kind: 'refuse', status: 503 }],
]

describe('a lost answer', () => {
  it.each(lost)('leaves no unknown payment: %s', async (_, fault) => {
    const of = request()
    breakNext(fault)
    const first = await charge(of)
    expect(first?.state).toBe('started')
    // Nothing else is charged before the processor has been asked.
    expect((await charge(of))?.id).toBe(first?.id)
    await sweep()
    const isTaken = taken().length === 1
    expect(heard).toEqual([
      isTaken
        ? ['paid', of.subjectId, taken()[0]?.id]
        : ['failed', of.subjectId, 'processor_unreachable'],
    ])
    await charge(of)
    expect(taken()).toHaveLength(1)
    await sweep()
    expect(heard.filter(([word]) => word === 'paid')).toHaveLength(1)
  })

  it('waits as long as the processor does not answer the question either', async () => {
    const of = request()
    stripe.faults = () => ({ kind: 'refuse', status: 500 })
    await charge(of)
    await sweep()
    expect(heard).toEqual([])
    stripe.faults = () => undefined
    await sweep()
    expect(heard).toEqual([['failed', of.subjectId, 'processor_unreachable']])
  })

  it('is ended by the event, once, however often it comes', async () => {
    const of = request()
    breakNext({ kind: 'reset after' })
    await charge(of)
    const [payment] = taken()
    const report = () => open().attempts.report(live, payment?.id ?? '')
    const results = await Promise.all([report(), report(), report()])
    expect(results.toSorted()).toEqual(['paid', 'unchanged', 'unchanged'])
    expect(heard).toHaveLength(1)
  })
})

it('leaves alone and counts the attempts of the processor that was used before', async () => {
  const of = request()
  breakNext({ kind: 'reset after' })
  const first = await charge(of)
  const surplus = `state = 'failed', failure = 'x', processor_id = 'pi_1', ended_at = now(), surplus_at = now()`
  for (const columns of [`processor = 'simulated'`, surplus]) {
    await rewrite(columns, first?.id)
    await sweep()
    const name = 'tollgate_billing_payment_attempts_of_other_processors'
    const counted = await open().metrics.getSingleMetric(name)?.get()
    expect(counted?.values[0]?.value).toBe(1)
    expect(heard).toEqual([])
  }
})

describe('a payment that is decided later', () => {
  it.each([
    ['paid', 'paid'],
    ['failed', 'failed'],
  ] as const)('ends %s', async (outcome, word) => {
    card = await giveCard('processing')
    const { customerId } = await customers().ensure(payer, 'x')
    const of = request()
    expect(await charge(of)).toMatchObject({ state: 'started' })
    await sweep()
    expect(heard).toEqual([])
    const [payment] = [...stripe.world(live).list('payment_intent')].filter(
      ({ customer, status }) => customer === customerId && status === 'processing',
    )
    stripe.settlePayment(live, payment?.id ?? '', outcome)
    await sweep()
    expect(heard.map(([seen]) => seen)).toEqual([word])
  })
})

describe('a surplus', () => {
  /** Charges a subject twice, because the processor loses the first payment for a while. */
  async function payTwice(): Promise<{ attemptId: string; paymentId: string }> {
    const of = request()
    breakNext({ kind: 'reset after' })
    const first = await charge(of)
    const payment = taken().find(
      ({ metadata }) => metadata['reference'] === `${payer.appId}/${first?.id}`,
    )
    stripe.faults = ({ method, route }) =>
      method === 'GET' && route === '/v1/payment_intents'
        ? {
            kind: 'body',
            status: 200,
            text: '{"object":"list","data":[],"has_more":false,"url":"/v1/payment_intents"}',
          }
        : undefined
    await sweep()
    stripe.faults = () => undefined
    expect(await charge(of)).toMatchObject({ state: 'succeeded' })
    return { attemptId: first?.id ?? '', paymentId: payment?.id ?? '' }
  }

  const refundsOf = (paymentId: string) =>
    [...stripe.world(live).list('refund')]
      .filter(({ payment_intent, status }) => payment_intent === paymentId && status !== 'failed')
      .map(({ amount }) => Number(amount))

  const waits = async (attemptId: string): Promise<boolean> => {
    const { rows } = await core.sql.query<{ waits: boolean }>(
      `select surplus_at is not null as waits from payment_attempts where id = $1 and failure = 'paid_twice'`,
      [attemptId],
    )
    return rows[0]?.waits ?? false
  }

  const report = (paymentId: string) => open().attempts.report(live, paymentId)

  it('goes back once, however often it is reported', async () => {
    const { attemptId, paymentId } = await payTwice()
    expect(await report(paymentId)).toBe('surplus')
    expect(await report(paymentId)).toBe('surplus')
    expect(await waits(attemptId)).toBe(true)
    await Promise.all([open().sweep.round(), open().sweep.round()])
    await report(paymentId)
    await sweep()
    expect(refundsOf(paymentId)).toEqual([1_234])
    expect(await waits(attemptId)).toBe(false)
    expect(heard.map(([word]) => word)).toEqual(['failed', 'paid'])
  })

  it('goes back when the processor answers again, without another event', async () => {
    const { attemptId, paymentId } = await payTwice()
    expect(await report(paymentId)).toBe('surplus')
    for (const fault of [
      { kind: 'refuse', status: 503 },
      // Executed, but answered with an error that the processor repeats for the same key.
      { kind: 'error after', isStored: true },
    ] as const) {
      stripe.faults = ({ route }) => (route === '/v1/refunds' ? fault : undefined)
      await sweep()
      expect(await waits(attemptId)).toBe(true)
    }
    stripe.faults = () => undefined
    await sweep()
    expect(await waits(attemptId)).toBe(false)
    expect(refundsOf(paymentId)).toEqual([1_234])
  })

  it('goes back only as far as an operator or a dispute has left it', async () => {
    const { attemptId, paymentId } = await payTwice()
    stripe.refundPayment(live, paymentId, 1_000)
    await report(paymentId)
    await sweep()
    expect(refundsOf(paymentId).toSorted()).toEqual([1_000, 234])
    const other = await payTwice()
    stripe.dispute(live, other.paymentId)
    await report(other.paymentId)
    await sweep()
    expect(refundsOf(other.paymentId)).toEqual([])
    expect([await waits(attemptId), await waits(other.attemptId)]).toEqual([false, false])
  })

  it('goes back again when its refund has failed', async () => {
    const { paymentId } = await payTwice()
    await report(paymentId)
    await sweep()
    const [refund] = [...stripe.world(live).list('refund')].filter(
      ({ payment_intent }) => payment_intent === paymentId,
    )
    stripe.failRefund(live, refund?.id ?? '')
    expect(refundsOf(paymentId)).toEqual([])
    await report(paymentId)
    await sweep()
    expect(refundsOf(paymentId)).toEqual([1_234])
  })
})

describe('a foreign payment', () => {
  const elsewhere: ProcessorAccount = { plane: 'test', account: null }

  interface Forged {
    readonly what: string
    readonly at?: ProcessorAccount
    readonly isOtherAccount?: boolean
    readonly isOtherCustomer?: boolean
    readonly amount?: number
    readonly currency?: string
    /** Whether it names an attempt of another app. */
    readonly isOtherApp?: boolean
  }

  /** Connects an account of another app. */
  async function connect(): Promise<ProcessorAccount> {
    const { id } = await processor.createAccount(
      'live',
      { reference: randomUUID(), email: null },
      randomUUID(),
    )
    stripe.onboard(id)
    return { plane: 'live', account: id }
  }

  it.each<Forged>([
    { what: 'another customer', isOtherCustomer: true },
    { what: 'another amount', amount: 50 },
    { what: 'another currency', currency: 'eur' },
    { what: 'another plane', at: elsewhere },
    { what: 'another plane and customer', at: elsewhere, isOtherCustomer: true },
    { what: 'another account', isOtherAccount: true },
    { what: 'another account and customer', isOtherAccount: true, isOtherCustomer: true },
    { what: 'another app', isOtherApp: true },
  ])('settles nothing: $what', async (forged) => {
    const at = forged.isOtherAccount ? await connect() : (forged.at ?? live)
    const { amount = 1_234, isOtherCustomer = false, isOtherApp = false } = forged
    breakNext({ kind: 'reset before' })
    const attempt = await charge(request())
    const before = await core.sql.query('select * from payment_attempts where id = $1', [
      attempt?.id,
    ])
    const own = await customers().ensure({ ...payer, at }, randomUUID())
    const other = await processor.createCustomer(
      at,
      { reference: 'x', description: 'eve' },
      randomUUID(),
    )
    const customer = isOtherCustomer ? other.id : own.customerId
    // As if the processor's ids were equal in both places.
    if (at !== live && !isOtherCustomer) await rewrite(`customer_id = '${customer}'`, attempt?.id)
    const reference = `${isOtherApp ? randomUUID() : payer.appId}/${attempt?.id}`
    const payment = { customer, card: stripe.addCard(at, customer).id, reference }
    const { id } = await processor.pay(
      at,
      { ...payment, amount: cents(amount), fee: cents(0), description: '' },
      randomUUID(),
    )
    if (forged.currency !== undefined)
      Object.assign(stripe.world(at).get('payment_intent', id), { currency: forged.currency })
    expect(await open().attempts.report(at, id)).toBe(isOtherApp ? 'unknown' : 'foreign')
    expect(heard).toEqual([])
    const after = await core.sql.query('select * from payment_attempts where id = $1', [
      attempt?.id,
    ])
    const [row] = before.rows as Record<string, unknown>[]
    const { customer_id: current } = (after.rows as Record<string, unknown>[])[0] ?? {}
    expect(after.rows).toEqual([{ ...row, customer_id: current }])
  })

  it('settles nothing when it is not the payment that the attempt has', async () => {
    card = await giveCard('processing')
    const attempt = await charge(request())
    const { customerId } = await customers().ensure(payer, randomUUID())
    const { id } = await processor.pay(
      live,
      {
        customer: customerId,
        card: stripe.addCard(live, customerId).id,
        amount: cents(1_234),
        fee: cents(0),
        description: '',
        reference: `${payer.appId}/${attempt?.id}`,
      },
      randomUUID(),
    )
    expect(await open().attempts.report(live, id)).toBe('foreign')
    expect(heard).toEqual([])
  })
})

it('charges every subject at most once and books what it charged, with random faults', async () => {
  const random = createRandom(testSeed + 11)
  const subjects = Array.from({ length: 60 }, () => request())
  stripe.faults = () =>
    random.chance(0.25)
      ? random.pick([
          { kind: 'reset before' },
          { kind: 'reset after' },
          { kind: 'error after', isStored: true },
          { kind: 'error after', isStored: false },
          { kind: 'refuse', status: 429 },
        ] as const)
      : undefined
  for (let round = 0; round < 6; round++) {
    await Promise.all(subjects.flatMap((of) => [charge(of), charge(of)]))
    await sweep()
  }
  stripe.faults = () => undefined
  for (let round = 0; round < 2; round++) {
    await Promise.all(subjects.map(charge))
    await sweep()
  }
  const paid = heard.filter(([word]) => word === 'paid')
  expect(new Set(paid.map(([, subject]) => subject)).size).toBe(subjects.length)
  expect(paid).toHaveLength(subjects.length)
  expect(
    taken()
      .map(({ id }) => id)
      .toSorted(),
  ).toEqual(paid.map(([, , id]) => id).toSorted())
}, 60_000)
