import type { PlanPayments } from '../../plans/subscriptions/ports.ts'
import type { Shared } from '../../shared/shared.ts'
import { type BookingDeps, createBooking } from './booking.ts'
import { createOrderHandlers } from './handlers.ts'
import { findCheckoutSession, findPaidPrice } from './order-store.ts'
import { createOrderUpkeep } from './order-upkeep.ts'
import { type OrdersDeps, createOrders } from './orders.ts'

export type TakeOrders = Pick<PlanPayments, 'order' | 'findResult'>

/** Payments for plans, as plans uses them. Orders are taken by a module that is created later. */
export const planPayments = (orders: () => TakeOrders): PlanPayments => ({
  order: (request) => orders().order(request),
  findResult: (request) => orders().findResult(request),
  findPaidPrice,
  findCheckoutSession,
})

/** Books moves to plans when their payment arrives, and takes orders for such moves. */
export function createOrdersPart(shared: Shared, deps: Omit<BookingDeps, 'log' | 'now'>) {
  const booking = createBooking({ ...shared, ...deps })
  const { charges, checkouts } = createOrderHandlers({ ...shared, booking })
  return {
    charges,
    checkouts,
    /** Needs the payments that the two handlers above serve. */
    take: (parts: Pick<OrdersDeps, 'quoteMove' | 'payers' | 'paying'>) =>
      createOrders({ ...shared, ...parts, booking }),
    upkeep: [createOrderUpkeep({ ...shared, booking })],
  }
}
