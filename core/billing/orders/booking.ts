import { DomainError } from '../../../proto/errors.ts'
import type { TopUps } from '../../balances/credit/top-ups.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, savepoint } from '../../lib/sql.ts'
import type { OrderedMoves } from '../../plans/subscriptions/orders.ts'
import { emit, emitAll } from '../../shared/events.ts'
import type { Shared } from '../../shared/shared.ts'
import { type Invoice, type PriceLine, formatNumber } from '../invoices/invoice.ts'
import { readPlanNames } from '../invoices/invoice-store.ts'
import { prorationText, readPriceCredit } from '../invoices/price-lines.ts'
import type { Issuing } from '../invoices/issuing.ts'
import { formatCents } from '../payments/amounts.ts'
import { createCrediting } from '../payments/crediting.ts'
import { type NewMoney, insertMoney } from '../payments/payment-store.ts'
import * as store from './order-store.ts'
import type { PlanOrder } from './order-store.ts'

export interface BookingDeps extends Pick<Shared, 'log' | 'now'> {
  readonly bookMove: OrderedMoves['book']
  readonly issuing: Pick<Issuing, 'issue'>
  readonly ledger: Pick<Ledger, 'lock' | 'save'>
  readonly topUps: Pick<TopUps, 'credit'>
}

/** Money that arrived for an order. */
export interface OrderPayment extends NewMoney {
  readonly attemptId: string | null
}

/**
 * Ends orders, within the transaction that ends their checkout or charge: each payment is booked
 * once, as an invoice of the plan's first period, or as prepaid credit.
 */
export function createBooking({ bookMove, issuing, ledger, topUps, log, now }: BookingDeps) {
  const bookCredit = createCrediting({ topUps, now })

  /**
   * Books a locked open order. If the plan cannot be taken any more, the money becomes prepaid
   * credit. Returns why it was not booked; null if it was.
   */
  async function book(
    db: Db,
    order: PlanOrder,
    payment: OrderPayment | null,
  ): Promise<string | null> {
    try {
      await savepoint(db, () => bookPaid(db, order, payment))
      return null
    } catch (error) {
      if (!(error instanceof DomainError)) throw error
      const problem = error.message
      if (payment === null) await end(db, order, { state: 'failed', problem, attemptId: null })
      else await credit(db, order, { payment, problem })
      return problem
    }
  }

  async function bookPaid(db: Db, order: PlanOrder, payment: OrderPayment | null): Promise<void> {
    const { planId, timing, price, author: name, correlationId } = order
    const by = { name, ...(correlationId !== null && { correlationId }), isOperator: false }
    const change = await bookMove(db, order, { planId, timing, price, by })
    if (payment !== null) await recordPaid(db, order, payment)
    const subscriptionId = change.pending?.subscriptionId ?? change.subscriptionId
    const at = now()
    const effectiveAt = change.effectiveAt === undefined ? at : new Date(change.effectiveAt)
    const attemptId = payment?.attemptId ?? null
    await store.saveBooked(db, order, { subscriptionId, effectiveAt, attemptId, at })
  }

  /** Issues the invoice of the first period, which the payment pays. */
  async function recordPaid(db: Db, order: PlanOrder, payment: OrderPayment): Promise<void> {
    const at = now()
    const [account] = await ledger.lock(db, [order], at)
    if (!account) throw new Error(`user ${order.userId} has no account`)
    const credit = await readPriceCredit(db, order, account.periodStart)
    const prices = [...(await priceLines(db, order, account)), ...limitLines(credit, order.credit)]
    const request = { account, reason: 'plan' as const, at, prices, withUsage: false }
    const invoice = (await issuing.issue(db, [request])).get(order.userId)
    if (invoice?.total !== payment.amount || invoice.debt !== 0n)
      throw new DomainError('CONFLICT', 'the payment is not the price of the plan')
    await ledger.save(db, [account], at)
    const { appId, userId } = order
    const id = uuidV7(at.getTime())
    const paid = { purpose: 'plan', invoiceId: invoice.id, creditId: null, createdAt: at } as const
    await insertMoney(db, { ...payment, ...paid, appId, userId, id })
    await announcePaid(db, order, { payment, invoice, at })
  }

  /** Books the money of an order that cannot be booked as prepaid credit of the user. */
  async function credit(
    db: Db,
    order: PlanOrder,
    { payment, problem }: { readonly payment: OrderPayment; readonly problem: string },
  ): Promise<void> {
    const { attemptId, ...money } = payment
    await bookCredit(db, order, money)
    if (order.booked === null) await end(db, order, { state: 'credited', problem, attemptId })
    const { appId, id: orderId } = order
    log.warn({ appId, orderId, problem }, 'a paid change of plan became prepaid credit')
  }

  async function end(
    db: Db,
    order: PlanOrder,
    ended: Pick<Parameters<typeof store.saveEnded>[2], 'state' | 'problem' | 'attemptId'>,
  ): Promise<void> {
    const at = now()
    await store.saveEnded(db, order, { ...ended, at })
    if (ended.state === 'expired') return
    const { appId, userId, planId, amount } = order
    const isCredited = ended.state === 'credited'
    const data = {
      planId,
      reason: ended.problem,
      creditedUsd: isCredited && amount !== null ? formatCents(amount) : null,
    }
    await emit(db, { appId, userId, type: 'subscription.change_failed', data, at })
  }

  /** Also for an order that was given up before the money came. */
  async function bookOrCredit(
    db: Db,
    order: PlanOrder,
    payment: OrderPayment | null,
  ): Promise<string | null> {
    if (order.state === 'open') return book(db, order, payment)
    const problem = order.problem ?? 'the change was booked before'
    if (payment !== null) await credit(db, order, { payment, problem })
    return problem
  }

  return { book, bookOrCredit, end }
}

export type Booking = ReturnType<typeof createBooking>

/** Returns lines of credit up to an amount. They sum to less if less is left than was promised. */
function limitLines(lines: readonly PriceLine[], amount: bigint): PriceLine[] {
  let left = amount
  return lines.flatMap((line) => {
    const share = -line.amount < left ? -line.amount : left
    left -= share
    return share > 0n ? [{ ...line, amount: usdAttos(-share) }] : []
  })
}

async function priceLines(
  db: Db,
  { planId, from, price, proration }: PlanOrder,
  { periodStart, periodEnd }: { readonly periodStart: Date; readonly periodEnd: Date },
): Promise<PriceLine[]> {
  const names = await readPlanNames(db, [planId, from.planId])
  const period = { periodStart, periodEnd }
  const line: PriceLine = {
    kind: 'subscription',
    description: names.get(planId) ?? '',
    planId,
    amount: price,
    ...period,
  }
  if (proration === 0n) return [line]
  const unused: PriceLine = {
    kind: 'proration',
    description: prorationText(names.get(from.planId) ?? ''),
    planId: from.planId,
    amount: usdAttos(-proration),
    ...period,
  }
  return [line, unused]
}

const announcePaid = (
  db: Db,
  { appId, userId }: PlanOrder,
  {
    payment,
    invoice,
    at,
  }: { readonly payment: OrderPayment; readonly invoice: Invoice; readonly at: Date },
): Promise<void> => {
  const data = {
    invoiceId: invoice.id,
    number: formatNumber('invoice', invoice.number),
    totalUsd: formatCents(payment.amount),
  }
  return emitAll(db, [{ appId, userId, type: 'invoice.paid', data, at }])
}
