import { Counter } from 'prom-client'
import { type Db, tx } from '../../lib/sql.ts'
import { type Metrics, startAtZero } from '../../lib/metrics.ts'
import { addSeconds } from '../../lib/time.ts'
import { emitAll } from '../../shared/events.ts'
import { type AppId, appId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Checkout, PaymentProcessor, ProcessorAccount, UsdCents } from '../processor/port.ts'
import { formatCents } from './amounts.ts'
import * as store from './checkout-store.ts'
import type { CheckoutEnd, StoredCheckout } from './checkout-store.ts'
import { parseReference } from './checkouts.ts'
import { type CreditingDeps, createCrediting } from './crediting.ts'
import { type Customer, findCustomer } from './customer-store.ts'
import type { Customers } from './customers.ts'
import type { Returns } from './returns.ts'

export interface SettlingDeps
  extends CreditingDeps, Pick<Shared, 'pool' | 'log' | 'metrics' | 'now'> {
  readonly processor: Pick<PaymentProcessor, 'kind' | 'readCheckout'>
  readonly customers: Pick<Customers, 'refreshById'>
  readonly plans: PlanCheckouts
  /** Books what went back of a payment. */
  readonly reconcileReturns: Returns['reconcile']
  /** Notes for operators that money may have been paid at a processor that is not used any more. */
  readonly reportUnknown: (db: Db, checkout: StoredCheckout) => Promise<void>
}

/** Moves to plans that checkouts pay for. Both run in the transaction that ends the checkout. */
export interface PlanCheckouts {
  /** Books the move. Returns why it was not booked, and the money became credit; null if it was. */
  readonly paid: (
    db: Db,
    checkout: StoredCheckout,
    paid: { readonly payment: string; readonly amount: UsdCents } | null,
  ) => Promise<string | null>
  /** Gives the move up. */
  readonly ended: (db: Db, checkout: StoredCheckout, state: 'failed' | 'expired') => Promise<void>
}

/** What became of a checkout: a word for the log of events. */
export type Settlement =
  | 'unknown'
  | 'foreign'
  | 'already_settled'
  | 'open'
  | 'processing'
  | 'failed'
  | 'expired'
  | 'settled'
  | 'refused'

const processingCheckSeconds = 600

function createCounter(metrics: Metrics): Counter<'purpose' | 'result'> {
  const settlements = new Counter({
    name: 'tollgate_billing_checkouts_total',
    help: 'Checkouts that ended, by purpose and result; refused ones need an operator',
    labelNames: ['purpose', 'result'],
    registers: [metrics],
  })
  startAtZero(settlements, {
    purpose: ['top_up', 'card', 'plan'],
    result: ['settled', 'failed', 'refused'],
  })
  return settlements
}

/**
 * Settles checkouts. Reads each one from the processor again, because an event names it but proves
 * nothing (docs/payments.md). May run any number of times, in any order, on any core.
 */
export function createSettling({
  pool,
  processor,
  customers,
  plans,
  reconcileReturns,
  reportUnknown,
  log,
  metrics,
  now,
  ...crediting
}: SettlingDeps) {
  const credit = createCrediting({ ...crediting, now })
  const settlements = createCounter(metrics)

  /** Reads a checkout from the processor and does what it was for if it is paid. */
  async function settle(at: ProcessorAccount, processorId: string): Promise<Settlement> {
    const checkout = await processor.readCheckout(at, processorId)
    const result = checkout === null ? 'unknown' : await settleRead(at, checkout)
    const payment = checkout?.payment ?? null
    // An event of a refund that came before the payment was booked has changed nothing.
    const isBooked = result === 'settled' || result === 'already_settled'
    if (isBooked && payment !== null) await reconcileReturns(at, payment)
    return result
  }

  async function settleRead(at: ProcessorAccount, checkout: Checkout): Promise<Settlement> {
    const reference = parseReference(checkout.reference)
    if (reference === null) return 'unknown'
    const app = appId(reference.appId)
    // The card is read before the checkout ends, so that a repetition after a crash reads it again.
    if (checkout.state === 'paid' && checkout.customer !== null)
      await customers.refreshById(checkout.customer, at)
    const { result, stored } = await tx(pool, (db) => apply(db, { app, at, reference, checkout }))
    if (stored && (result === 'settled' || result === 'failed' || result === 'refused'))
      settlements.inc({ purpose: stored.purpose, result })
    return result
  }

  interface Read {
    readonly app: AppId
    readonly at: ProcessorAccount
    readonly reference: { readonly id: string }
    readonly checkout: Checkout
  }

  async function apply(
    db: Db,
    { app, at, reference, checkout }: Read,
  ): Promise<{ result: Settlement; stored?: StoredCheckout }> {
    const stored = await store.lockCheckout(db, { appId: app, id: reference.id })
    if (stored === null || !isAt(stored, at) || !isSame(stored, checkout)) {
      log.warn({ appId: app, checkoutId: reference.id }, 'a checkout of another app was reported')
      return { result: 'foreign' }
    }
    if (isOver(stored)) return { result: 'already_settled', stored }
    const result = await advance(db, stored, checkout)
    return { result, stored }
  }

  async function advance(db: Db, stored: StoredCheckout, checkout: Checkout): Promise<Settlement> {
    const end = now()
    if (checkout.state === 'open') return 'open'
    if (checkout.state === 'processing') {
      const checkAt = addSeconds(end, processingCheckSeconds)
      await store.saveState(db, stored, { state: 'processing', at: end, checkAt })
      return 'processing'
    }
    if (checkout.state === 'failed' || checkout.state === 'expired') {
      await giveUp(db, stored, { state: checkout.state, at: end })
      return checkout.state
    }
    const problem = await findProblem(db, { stored, checkout, kind: processor.kind })
    if (problem !== null) {
      log.error(
        { appId: stored.appId, checkoutId: stored.id, problem },
        'a paid checkout was not credited',
      )
      await giveUp(db, stored, { state: 'failed', problem, at: end })
      return 'refused'
    }
    await store.saveState(db, stored, {
      state: 'settled',
      ...(await use(db, stored, checkout)),
      at: end,
    })
    await announce(db, stored, end)
    return 'settled'
  }

  /** Ends a checkout that is not paid, and what it was for. */
  async function giveUp(
    db: Db,
    stored: StoredCheckout,
    end: CheckoutEnd & { readonly state: 'failed' | 'expired' },
  ): Promise<void> {
    await store.saveState(db, stored, end)
    if (stored.purpose === 'plan') await plans.ended(db, stored, end.state)
  }

  /** Ends an unpaid checkout, unless it has ended. */
  async function expire(key: Pick<StoredCheckout, 'appId' | 'id'>): Promise<void> {
    await tx(pool, async (db) => {
      const stored = await store.lockCheckout(db, key)
      if (stored !== null && !isOver(stored))
        await giveUp(db, stored, { state: 'expired', at: now() })
    })
  }

  /**
   * Ends a checkout of a processor that the deployment used before. Core cannot ask whether it was
   * paid, so it credits nothing.
   */
  async function abandon(key: Pick<StoredCheckout, 'appId' | 'id'>): Promise<void> {
    await tx(pool, async (db) => {
      const stored = await store.lockCheckout(db, key)
      if (stored === null || isOver(stored)) return
      const { processor: former, processorId, amount } = stored
      const problem = `unknown: its payment processor (${former}) is no longer configured`
      await giveUp(db, stored, { state: 'failed', problem, at: now() })
      // No pay page was opened, or the page took no money.
      if (processorId === null || amount === null) return
      log.error({ appId: key.appId, checkoutId: key.id, former }, 'a checkout cannot be settled')
      await reportUnknown(db, stored)
    })
  }

  /** Does what a paid checkout was for. Returns the problem, if it had to do something else. */
  async function use(
    db: Db,
    stored: StoredCheckout,
    { payment, amount }: Checkout,
  ): Promise<{ readonly problem?: string }> {
    const paid = payment === null || amount === null ? null : { payment, amount }
    if (stored.purpose === 'plan') {
      const problem = await plans.paid(db, stored, paid)
      return problem === null ? {} : { problem }
    }
    if (paid !== null) {
      const { fee, at, id: checkoutId } = stored
      const money = { amount: paid.amount, fee, at, processorId: paid.payment, checkoutId }
      await credit(db, stored, money)
    }
    return {}
  }

  return { settle, expire, abandon, kind: processor.kind }
}

export type Settling = ReturnType<typeof createSettling>

const isAt = ({ at }: StoredCheckout, { plane, account }: ProcessorAccount): boolean =>
  at.plane === plane && at.account === account

const isSame = ({ processorId }: StoredCheckout, { id }: Checkout): boolean =>
  processorId === null || processorId === id

const isOver = ({ state }: StoredCheckout): boolean =>
  state === 'settled' || state === 'failed' || state === 'expired'

/** Whether the customer has this id, or had it when the checkout was paid. */
const hasId = ({ customerId, formerIds }: Customer, id: string | null): boolean =>
  id !== null && (id === customerId || formerIds.includes(id))

/** Returns why a paid checkout must not be credited; null if it fits the stored one. */
async function findProblem(
  db: Db,
  {
    stored,
    checkout,
    kind,
  }: {
    readonly stored: StoredCheckout
    readonly checkout: Checkout
    readonly kind: PaymentProcessor['kind']
  },
): Promise<string | null> {
  const customer = await findCustomer(db, stored, { at: stored.at, processor: kind })
  if (customer === null || !hasId(customer, checkout.customer))
    return 'the processor names another customer'
  if ((stored.amount === null) !== (checkout.mode === 'card'))
    return 'the processor names another kind of checkout'
  if (stored.amount === null) return null
  if (checkout.currency !== 'usd') return `the processor took ${checkout.currency ?? 'no currency'}`
  if (checkout.amount !== stored.amount)
    return `the processor took ${checkout.amount ?? 0n} cents of ${stored.amount}`
  return checkout.payment === null ? 'the processor names no payment' : null
}

/** Sends the events of a settled checkout to the app's webhooks. */
async function announce(db: Db, stored: StoredCheckout, at: Date): Promise<void> {
  const { appId: app, userId, id, purpose, amount } = stored
  const data = { sessionId: id, purpose, amountUsd: amount === null ? null : formatCents(amount) }
  const event = { appId: app, userId, data, at }
  const payments = amount === null ? [] : [{ ...event, type: 'payment.succeeded' as const }]
  await emitAll(db, [{ ...event, type: 'checkout.completed' }, ...payments])
}
