import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { insertRequests } from '../../../../core/billing/collection/collection-store.ts'
import { expectRightBooks } from '../../balances/ledger/owner-world.ts'
import { day, second } from '../../support.ts'
import { type CollectionWorld, type Payer, startCollections } from './world.ts'

/** Money that goes back after it paid an invoice, and charges that only the processor knows. */

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())
afterEach(() => {
  world.stripe.faults = () => undefined
})

const hour = 3_600 * second

async function untilStates({ user }: Payer, expected: readonly string[]): Promise<void> {
  const states = async () => (await world.collections(user)).map(({ state }) => state)
  await expect.poll(states, { timeout: 15_000, interval: 100 }).toEqual(expected)
}

const intentsOf = ({ user, at }: Payer) =>
  [...world.stripe.world(at).list('payment_intent')].filter(
    ({ status, metadata }) =>
      status === 'succeeded' && metadata['reference']?.startsWith(user.appId),
  )

/** Returns a user whose invoice over 4 USD is paid, with the processor's id of the payment. */
async function paidPayer(): Promise<{ readonly ada: Payer; readonly paymentId: string }> {
  const ada = await world.payer(await world.merchant())
  await world.spend(ada, 3)
  await untilStates(ada, ['paid'])
  const [intent] = intentsOf(ada)
  return { ada, paymentId: intent?.id ?? '' }
}

/** The kinds and cents of a user's documents, the oldest first. */
async function documents({ user }: Payer): Promise<string[]> {
  const rows = await world.rows(
    'select kind, reason, total_cents from invoices where user_id = $1 order by kind desc, number',
    [user.userId],
  )
  return rows.map((row) => `${row['kind']} ${row['reason']} ${row['total_cents']}`)
}

/** Waits until as many returns of the user are booked. */
async function untilBooked({ user }: Payer, count: number): Promise<void> {
  const booked = async () => {
    const [row] = await world.rows(
      'select count(booked_at) as n from payment_returns where user_id = $1',
      [user.userId],
    )
    return Number(row?.['n'])
  }
  await expect.poll(booked, { timeout: 10_000 }).toBe(count)
}

/** Overage minus payments, and the part of it that is on no invoice, in cents. */
async function owed({ user }: Payer) {
  const { overage, collected, invoiced } = await world.account(user)
  const cents = (attos: bigint) => Number(attos / 10n ** 16n)
  return { debt: cents(overage - collected), uninvoiced: cents(overage - collected - invoiced) }
}

async function credit({ merchant: { clientId }, user }: Payer, amountUsd: string) {
  const [row] = await world.rows(
    `select id from invoices where user_id = $1 and kind = 'invoice'`,
    [user.userId],
  )
  await world.operator.invoices.createCreditNote({
    clientId,
    invoiceId: row?.['id'] ?? '',
    amountUsd,
    reason: 'a present',
    idempotencyKey: undefined,
  })
}

describe('a refund of an invoice payment', () => {
  it('in full is a credit note over all of it, and nothing is owed again', async () => {
    const { ada, paymentId } = await paidPayer()
    expect(await owed(ada)).toEqual({ debt: 0, uninvoiced: 0 })
    world.stripe.refundPayment(ada.at, paymentId)
    await untilBooked(ada, 1)
    expect(await documents(ada)).toEqual(['invoice ceiling 400', 'credit_note refund -400'])
    expect(await owed(ada)).toEqual({ debt: 0, uninvoiced: 0 })
    expect(await world.collections(ada.user)).toMatchObject([{ state: 'paid' }])
    await expectRightBooks()
  }, 60_000)

  it('in parts is a credit note for each, however often the events come', async () => {
    const { ada, paymentId } = await paidPayer()
    world.stripe.refundPayment(ada.at, paymentId, 150)
    await untilBooked(ada, 1)
    world.stripe.refundPayment(ada.at, paymentId, 250)
    await untilBooked(ada, 2)
    for (const event of world.stripe.webhooks.events.filter(({ type }) => /refund/.test(type)))
      world.stripe.webhooks.send(event)
    await world.stripe.webhooks.idle()
    expect(await documents(ada)).toEqual([
      'invoice ceiling 400',
      'credit_note refund -150',
      'credit_note refund -250',
    ])
    expect(await owed(ada)).toEqual({ debt: 0, uninvoiced: 0 })
    await expectRightBooks()
  }, 60_000)

  it('notes no more than the invoice has left; what was credited before is owed again', async () => {
    const { ada, paymentId } = await paidPayer()
    await credit(ada, '3.00')
    expect(await owed(ada)).toEqual({ debt: -300, uninvoiced: -300 })
    world.stripe.refundPayment(ada.at, paymentId)
    await untilBooked(ada, 1)
    expect(await documents(ada)).toEqual([
      'invoice ceiling 400',
      'credit_note credit -300',
      'credit_note refund -100',
    ])
    expect(await owed(ada)).toEqual({ debt: 0, uninvoiced: 0 })
    await expectRightBooks()
  }, 60_000)

  it('that fails brings the money again', async () => {
    const { ada, paymentId } = await paidPayer()
    const { id } = world.stripe.refundPayment(ada.at, paymentId, 150)
    await untilBooked(ada, 1)
    world.stripe.failRefund(ada.at, id)
    await untilBooked(ada, 2)
    // The credit note stays: the next invoice is lower by it.
    expect(await owed(ada)).toEqual({ debt: -150, uninvoiced: -150 })
    await expectRightBooks()
  }, 60_000)
})

describe('a dispute of an invoice payment', () => {
  it('makes the amount debt for the next invoice, without a credit note', async () => {
    const { ada, paymentId } = await paidPayer()
    const { id } = world.stripe.dispute(ada.at, paymentId)
    await untilBooked(ada, 1)
    expect(await documents(ada)).toEqual(['invoice ceiling 400'])
    expect(await owed(ada)).toEqual({ debt: 400, uninvoiced: 400 })
    world.stripe.closeDispute(ada.at, id, 'lost')
    await world.stripe.webhooks.idle()
    // The next ticket raises the invoice.
    await world.spend(ada)
    await untilStates(ada, ['paid', 'paid'])
    expect(await documents(ada)).toEqual(['invoice ceiling 400', 'invoice ceiling 700'])
    expect(world.taken(ada).toSorted()).toEqual([400, 700])
    await expectRightBooks()
  }, 60_000)

  it('that is won is owed no longer', async () => {
    const { ada, paymentId } = await paidPayer()
    // A user has one request at a time: no invoice over the dispute is raised before it is won.
    const dueAt = new Date(world.clock.now().getTime() + day)
    const later = { ...ada.user, reason: 'ceiling', withUsage: true, dueAt } as const
    expect(await insertRequests(world.sql, [later], world.clock.now())).toBe(1)
    const { id } = world.stripe.dispute(ada.at, paymentId)
    await untilBooked(ada, 1)
    world.stripe.closeDispute(ada.at, id, 'won')
    await untilBooked(ada, 2)
    expect(await owed(ada)).toEqual({ debt: 0, uninvoiced: 0 })
    expect(await documents(ada)).toEqual(['invoice ceiling 400'])
    await expectRightBooks()
  }, 60_000)
})

describe('a charge that only the processor knows', () => {
  const emptyList = {
    kind: 'body',
    status: 200,
    text: '{"object":"list","data":[],"has_more":false,"url":"/v1/payment_intents"}',
  } as const

  /** The answer and the events are lost, and a search for the payment finds nothing. */
  async function loseAnswer(ada: Payer): Promise<void> {
    world.stripe.webhooks.plan = () => ({ copies: 0 })
    let charges = 0
    world.stripe.faults = ({ method, route }) => {
      if (route !== '/v1/payment_intents') return undefined
      if (method === 'GET') return emptyList
      charges++
      return { kind: 'reset after' }
    }
    await world.spend(ada, 3)
    await untilStates(ada, ['charging'])
    // The adapter sends the request twice.
    await expect.poll(() => charges, { timeout: 10_000 }).toBe(2)
    expect(world.taken(ada)).toEqual([400])
  }

  /** Ends the attempt. No other charge is made for a day. */
  async function giveUp(ada: Payer): Promise<void> {
    world.clock.advance(130 * second)
    await untilStates(ada, ['issued'])
    await world.sql.query(
      `update collections set due_at = due_at + interval '1 day' where user_id = $1`,
      [ada.user.userId],
    )
  }

  /** Refunds a part. Its events come `copies` times, and the processor answers again. */
  function loseRefund(ada: Payer, copies = 0): void {
    world.stripe.webhooks.plan = () => ({ copies })
    world.stripe.refundPayment(ada.at, intentsOf(ada)[0]?.id ?? '', 150)
    world.stripe.faults = () => undefined
  }

  async function expectRefunded(ada: Payer): Promise<void> {
    await untilBooked(ada, 1)
    expect(await documents(ada)).toEqual(['invoice ceiling 400', 'credit_note refund -150'])
    expect(await owed(ada)).toMatchObject({ debt: 0 })
    await expectRightBooks()
  }

  async function reconcile() {
    const found = []
    for await (const { differences } of world.operator.processorReconciliation.reconcileProcessor(
      {},
    ))
      found.push(...differences)
    return found
  }

  afterEach(() => {
    world.stripe.webhooks.plan = () => ({})
  })

  it('is booked by the comparison with the processor', async () => {
    const ada = await world.payer(await world.merchant())
    await loseAnswer(ada)
    await giveUp(ada)
    world.stripe.faults = () => undefined
    world.clock.advance(2 * hour)
    expect(await reconcile()).toEqual([])
    await untilStates(ada, ['paid'])
    expect(world.taken(ada)).toEqual([400])
    expect(await owed(ada)).toMatchObject({ debt: 0 })
    await expectRightBooks()
  }, 60_000)

  it('is booked with a refund that no event reported, by the comparison', async () => {
    const ada = await world.payer(await world.merchant())
    await loseAnswer(ada)
    await giveUp(ada)
    loseRefund(ada)
    world.clock.advance(2 * hour)
    expect(await reconcile()).toEqual([])
    await expectRefunded(ada)
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)

  it('is booked with a refund that no event reported, by the sweep', async () => {
    const ada = await world.payer(await world.merchant())
    await loseAnswer(ada)
    loseRefund(ada)
    world.clock.advance(130 * second)
    await expectRefunded(ada)
    expect(world.taken(ada)).toEqual([400])
  }, 60_000)

  it('is booked with its refund if only an event of the refund comes', async () => {
    const ada = await world.payer(await world.merchant())
    await loseAnswer(ada)
    loseRefund(ada, 2)
    await expectRefunded(ada)
    expect(world.taken(ada)).toEqual([400])
    await untilStates(ada, ['paid'])
  }, 60_000)

  it('goes back if another charge has paid meanwhile, and both sides agree then', async () => {
    const ada = await world.payer(await world.merchant())
    await loseAnswer(ada)
    world.clock.advance(130 * second)
    await untilStates(ada, ['issued'])
    world.stripe.faults = () => undefined
    world.clock.advance(600 * second)
    await untilStates(ada, ['paid'])
    expect(world.taken(ada)).toEqual([400, 400])
    world.clock.advance(2 * hour)
    expect(await reconcile()).toEqual([])
    const refunds = () =>
      [...world.stripe.world(ada.at).list('refund')].map(({ amount }) => Number(amount))
    await expect.poll(refunds, { timeout: 10_000 }).toEqual([400])
    world.clock.advance(2 * hour)
    expect(await reconcile()).toEqual([])
    expect(await owed(ada)).toMatchObject({ debt: 0 })
    // The owner gets the fee of the surplus back.
    const own = world.stripe.world({ plane: 'live', account: null })
    const charges = [...world.stripe.world(ada.at).list('charge')].map(({ id }) => id)
    const fees = [...own.list('application_fee')].filter(({ charge }) => charges.includes(charge))
    const [payment] = await world.rows('select fee_cents from payments where user_id = $1', [
      ada.user.userId,
    ])
    const kept = fees.reduce((sum, fee) => sum + fee.amount - fee.amount_refunded, 0)
    expect(fees.length).toBeGreaterThan(0)
    expect(kept).toBe(Number(payment?.['fee_cents']))
    await expectRightBooks()
  }, 60_000)
})
