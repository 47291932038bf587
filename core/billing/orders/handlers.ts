import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { emit } from '../../shared/events.ts'
import type { AttemptHandler } from '../collection/attempts.ts'
import { formatCents } from '../payments/amounts.ts'
import type { PlanCheckouts } from '../payments/settling.ts'
import type { Booking } from './booking.ts'
import * as store from './order-store.ts'
import type { PlanOrder } from './order-store.ts'

/** Failures of a charge after which the user can still pay on the processor's page. */
const needsPage = new Set(['action_required', 'no_card'])
export const isPayableOnPage = (failure: string | null): boolean => needsPage.has(failure ?? '')

/** Ends orders when their charge or checkout ends, in the same transaction. */
export function createOrderHandlers({
  booking: { bookOrCredit, end },
  now,
}: {
  readonly booking: Pick<Booking, 'bookOrCredit' | 'end'>
  readonly now: Now
}) {
  const charges: AttemptHandler = {
    begin: async (db, { payer: { appId }, subjectId: id }) =>
      (await store.lockOrder(db, { appId, id }))?.state === 'open',

    paid: async (db, { appId, subjectId, id: attemptId, amount, fee, at }, processorId) => {
      const order = await requireOrder(db, { appId, id: subjectId })
      // The order has ended, and its answer was that the card is not charged.
      if (order.state !== 'open') return false
      const payment = { amount, fee, at, processorId, checkoutId: null, attemptId }
      await bookOrCredit(db, order, payment)
      const data = { purpose: 'plan', amountUsd: formatCents(amount) }
      const { userId } = order
      await emit(db, { appId, userId, type: 'payment.succeeded', data, at: now() })
      return true
    },

    failed: async (db, { appId, subjectId, id: attemptId, amount }, failure) => {
      const order = await requireOrder(db, { appId, id: subjectId })
      if (order.state !== 'open' || isPayableOnPage(failure)) return
      const { userId } = order
      const data = { purpose: 'plan', amountUsd: formatCents(amount), failure }
      await emit(db, { appId, userId, type: 'payment.failed', data, at: now() })
      await end(db, order, { state: 'failed', problem: failure, attemptId })
    },
  }

  const checkouts: PlanCheckouts = {
    paid: async (db, { appId, id, at, fee }, paid) => {
      const order = await requireOrder(db, { appId, id })
      const payment = paid && {
        amount: paid.amount,
        fee,
        at,
        processorId: paid.payment,
        checkoutId: id,
        attemptId: null,
      }
      return bookOrCredit(db, order, payment)
    },

    ended: async (db, { appId, id }, state) => {
      const order = await requireOrder(db, { appId, id })
      if (order.state !== 'open') return
      const problem = state === 'expired' ? 'the pay page has expired' : 'the payment failed'
      await end(db, order, { state, problem, attemptId: null })
    },
  }

  return { charges, checkouts }
}

async function requireOrder(db: Db, key: Pick<PlanOrder, 'appId' | 'id'>): Promise<PlanOrder> {
  const order = await store.lockOrder(db, key)
  if (order === null) throw new Error(`plan order ${key.id} is missing`)
  return order
}
