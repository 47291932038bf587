import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { tx } from '../../lib/sql.ts'
import type { Change } from '../../plans/subscriptions/change.ts'
import type { OrderedMoves, Quote } from '../../plans/subscriptions/orders.ts'
import type { PlanPayments, PlanRequest } from '../../plans/subscriptions/ports.ts'
import type { Shared } from '../../shared/shared.ts'
import { findOpenOrPaid } from '../collection/attempt-store.ts'
import type { Attempts } from '../collection/attempts.ts'
import { minimumCents, sumLines } from '../invoices/invoice.ts'
import { readPriceCredit } from '../invoices/price-lines.ts'
import { centsDown, centsToAttos } from '../payments/amounts.ts'
import { type StoredCheckout, findCheckout } from '../payments/checkout-store.ts'
import { type Checkouts, hashToUuid } from '../payments/checkouts.ts'
import type { Customers, Payer } from '../payments/customers.ts'
import type { FoundPayer, Payers } from '../payments/payers.ts'
import type { Settling } from '../payments/settling.ts'
import { returnsTo } from '../payments/urls.ts'
import { type PaymentProcessor, usdCents } from '../processor/port.ts'
import { findPlane } from '../processor/store.ts'
import { findSettings, isPlatformApp } from '../store.ts'
import type { Booking } from './booking.ts'
import { isPayableOnPage } from './handlers.ts'
import * as store from './order-store.ts'
import type { PlanOrder } from './order-store.ts'

/** What a deployment with a payment processor uses. */
export interface Paying {
  readonly processor: Pick<PaymentProcessor, 'planes' | 'expireCheckout'>
  readonly customers: Pick<Customers, 'findCard'>
  readonly checkouts: Pick<Checkouts, 'open'>
  readonly settling: Pick<Settling, 'settle' | 'expire' | 'abandon' | 'kind'>
  readonly attempts: Pick<Attempts, 'charge'>
}

export interface OrdersDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly quoteMove: OrderedMoves['quote']
  readonly booking: Pick<Booking, 'book'>
  readonly payers: Pick<Payers, 'place'>
  /** Null without a payment processor. */
  readonly paying: Paying | null
}

/**
 * Moves to plans that need a card: no user moves before the card step has succeeded, and nothing
 * else changes before (decisions 48 and 64). A user has one open order. It ends with its checkout
 * or charge (`booking.ts`), whatever becomes of the request.
 */
export function createOrders({ pool, quoteMove, booking, payers, paying, now }: OrdersDeps) {
  /** Implements `PlanPayments.order`. */
  async function order(request: PlanRequest): Promise<Change | null> {
    const unplaced = await findPayer(request)
    if (unplaced === null) return null
    if (paying === null || !paying.processor.planes.includes(unplaced.plane)) throw notConnected()
    const payer = await payers.place(unplaced)
    const { key, user } = request
    const id = key === undefined ? uuidV7(now().getTime()) : hashToUuid(key)
    const earlier = key === undefined ? null : await store.findOrder(pool, { ...user, id })
    if (earlier) {
      requireSameOrder(earlier, { userId: user.userId, planId: request.plan.id })
      return continueOrder(paying, earlier, { payer, request })
    }
    const waiting = await findWaiting(paying, request)
    if (waiting) return continueOrder(paying, waiting, { payer, request })
    const quote = await quoteMove(user, request)
    const credit = sumLines(await readPriceCredit(pool, user, null))
    const created = newOrder(request, { id, createdAt: now(), quote, credit: usdAttos(-credit) })
    if (!(await store.insertOrder(pool, created))) throw beingPaid()
    return continueOrder(paying, created, { payer, request })
  }

  /** Implements `PlanPayments.findResult`. */
  const findResult: PlanPayments['findResult'] = async ({ user, key, planId }) => {
    if (key === undefined) return null
    const order = await store.findOrder(pool, { appId: user.appId, id: hashToUuid(key) })
    if (order === null) return null
    requireSameOrder(order, { userId: user.userId, planId })
    return order.state === 'open' ? null : toChange(order)
  }

  /** Returns who pays for plans of the user's app; null if its users pay nothing. */
  async function findPayer({ user, plan }: PlanRequest): Promise<FoundPayer | null> {
    const { appId: app } = user
    const { billingMode } = await findSettings(pool, app)
    const isOwn = await isPlatformApp(pool, app)
    if (billingMode === 'merchant' || isOwn)
      return { billingMode, user, payee: isOwn ? null : app, plane: await findPlane(pool, app) }
    if (/[1-9]/.test(plan.newest.priceAmount))
      throw new DomainError(
        'STRIPE_CONNECT_REQUIRED',
        'users of this app pay nothing, so they cannot take a plan with a price; that needs the billing mode merchant and a connected account',
      )
    return null
  }

  /**
   * Returns the user's open order if it is for the same request. Ends another one, and one whose page
   * is at a processor that the deployment does not use any more, unless its payment is under way:
   * then throws CONFLICT.
   */
  async function findWaiting(
    { processor, settling }: Paying,
    request: PlanRequest,
  ): Promise<PlanOrder | null> {
    const open = await store.findOpenOrder(pool, request.user)
    if (open === null) return null
    const checkout = await findCheckout(pool, open)
    if (checkout === null || checkout.state === 'processing') throw beingPaid()
    const isFormer = checkout.processor !== null && checkout.processor !== settling.kind
    if (!isFormer && isSameRequest(open, checkout, request)) return open
    if (isFormer) await settling.abandon(checkout)
    else if (checkout.processorId === null) await settling.expire(checkout)
    else {
      await processor.expireCheckout(checkout.at, checkout.processorId)
      await settling.settle(checkout.at, checkout.processorId)
    }
    if (await store.findOpenOrder(pool, request.user)) throw beingPaid()
    return null
  }

  interface Continued {
    readonly payer: Payer
    readonly request: PlanRequest
  }

  /** Takes the next step of an order, from wherever a crash or a repetition left it. */
  async function continueOrder(
    { customers, checkouts, attempts }: Paying,
    order: PlanOrder,
    { payer, request }: Continued,
  ): Promise<Change> {
    if (order.state !== 'open') return toChange(order)
    const openPage = () => openCheckout(checkouts, order, { payer, request })
    const charge = { appId: order.appId, purpose: 'plan', subjectId: order.id } as const
    // While a charge is undecided, an open page could be paid, too.
    if (await findOpenOrPaid(pool, charge)) return toChange(await readOrder(order))
    const hasPage = request.asksAlways || (await findCheckout(pool, order)) !== null
    if (hasPage || (await customers.findCard(payer, now())) === null) return openPage()
    if (order.amount === null) return bookFree(order)
    const attempt = await attempts.charge({
      payer,
      purpose: 'plan',
      subjectId: order.id,
      amount: order.amount,
      fee: usdCents(0n),
      description: describe(request),
    })
    if (attempt?.state === 'failed' && isPayableOnPage(attempt.failure)) return openPage()
    return toChange(await readOrder(order))
  }

  async function openCheckout(
    checkouts: Paying['checkouts'],
    order: PlanOrder,
    { payer, request }: Continued,
  ): Promise<Change> {
    const { checkoutUrl } = await checkouts.open({
      id: order.id,
      payer,
      openedBy: request.openedBy ?? order.appId,
      purpose: 'plan',
      amount: order.amount,
      planId: order.planId,
      description: describe(request),
      successUrl: request.successUrl,
      cancelUrl: request.cancelUrl,
      idempotencyKey: undefined,
      actor: toActor(request),
    })
    return { ...order.from, timing: order.timing, checkoutUrl }
  }

  /** Books an order that costs nothing now. */
  async function bookFree(order: PlanOrder): Promise<Change> {
    await tx(pool, async (db) => {
      const locked = await store.lockOrder(db, order)
      if (locked?.state === 'open') await booking.book(db, locked, null)
    })
    return toChange(await readOrder(order))
  }

  async function readOrder(key: PlanOrder): Promise<PlanOrder> {
    const order = await store.findOrder(pool, key)
    if (order === null) throw new Error(`plan order ${key.id} is missing`)
    return order
  }

  return { order, findResult }
}

export type Orders = ReturnType<typeof createOrders>

const describe = ({ plan }: PlanRequest): string => `Plan ${plan.name}`

const toActor = ({ by: { name, correlationId } }: PlanRequest) =>
  correlationId === undefined ? { name } : { name, context: { correlationId } }

function newOrder(
  { user: { appId, userId }, plan, by }: PlanRequest,
  {
    id,
    createdAt,
    quote,
    credit,
  }: {
    readonly id: string
    readonly createdAt: Date
    readonly quote: Quote
    readonly credit: UsdAttos
  },
): PlanOrder {
  const { timing, from, price } = quote
  const unused = centsToAttos(centsDown(quote.proration))
  const paid = unused + credit
  const due = centsDown(usdAttos(price > paid ? price - paid : 0n))
  const isCharged = due >= minimumCents
  return {
    appId,
    userId,
    id,
    planId: plan.id,
    timing,
    from,
    price,
    // Less than the minimum is on a later invoice, with what earlier periods paid.
    amount: isCharged ? due : null,
    proration: isCharged ? unused : usdAttos(0n),
    credit: isCharged ? credit : usdAttos(0n),
    state: 'open',
    problem: null,
    attemptId: null,
    booked: null,
    author: by.name,
    correlationId: by.correlationId ?? null,
    createdAt,
  }
}

const isSameRequest = (
  order: PlanOrder,
  checkout: StoredCheckout,
  { plan, timing = order.timing, successUrl, cancelUrl }: PlanRequest,
): boolean =>
  order.planId === plan.id &&
  order.timing === timing &&
  returnsTo(checkout.successUrl, successUrl) &&
  returnsTo(checkout.cancelUrl, cancelUrl)

/** Returns the result of an ended order, or throws its problem. */
function toChange({ state, problem, booked, from, planId, timing }: PlanOrder): Change {
  if (booked !== null) {
    const effectiveAt = booked.effectiveAt.toISOString()
    const { subscriptionId } = booked
    return timing === 'immediate'
      ? { subscriptionId, planId, effectiveAt, timing }
      : { ...from, effectiveAt, timing, pending: { subscriptionId, planId, effectiveAt } }
  }
  if (state === 'open')
    throw new DomainError(
      'PROCESSOR_UNREACHABLE',
      'the payment is not decided yet; repeat the request with the same Idempotency-Key, or read the subscription in some minutes',
    )
  throw toError(state, problem ?? state)
}

function toError(state: PlanOrder['state'], problem: string): DomainError {
  if (state === 'credited')
    return new DomainError(
      'CONFLICT',
      `the plan was not changed: ${problem}; what was paid is prepaid credit of the user now`,
    )
  if (state === 'expired')
    return new DomainError('CONFLICT', `${problem}; send the request with a new Idempotency-Key`)
  if (problem === 'processor_unreachable')
    return new DomainError(
      'PROCESSOR_UNREACHABLE',
      'the payment processor did not answer, and nothing was charged; send the request with a new Idempotency-Key',
    )
  if (problem === 'processor_refused')
    return new DomainError(
      'PROCESSOR_REFUSED',
      'the payment processor refused the charge, and nothing was charged',
    )
  const isCode = /^[a-z_]+$/.test(problem)
  return isCode
    ? new DomainError('CARD_DECLINED', `the card on file was declined (${problem})`)
    : new DomainError('CONFLICT', problem)
}

const notConnected = (): DomainError =>
  new DomainError(
    'PROCESSOR_NOT_CONNECTED',
    'this plan needs a payment method, but no payment processor is connected',
  )

const beingPaid = (): DomainError =>
  new DomainError(
    'CONFLICT',
    'another change of plan of this user is being paid; try again in some minutes',
  )

function requireSameOrder(
  order: Pick<PlanOrder, 'userId' | 'planId'>,
  { userId, planId }: Pick<PlanOrder, 'userId' | 'planId'>,
): void {
  if (order.planId !== planId || order.userId !== userId)
    throw new DomainError(
      'IDEMPOTENCY_CONFLICT',
      'this Idempotency-Key was used with another body; use a new key',
    )
}
