import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import type { PaymentProcessor, ProcessorAccount } from '../processor/port.ts'
import type { Difference } from './differences.ts'
import { type Case, readCases } from './movement-store.ts'
import type { Place } from './progress-store.ts'

export interface ConfirmingDeps {
  readonly pool: Pool
  readonly processor: Pick<PaymentProcessor, 'listRefunds' | 'readPayment'>
  /** Settles a charge of a card on file whose answer and events were lost. */
  readonly settleCharge: (at: ProcessorAccount, processorId: string) => Promise<unknown>
  /** Books refunds and disputes of a payment whose events were lost. */
  readonly reconcileReturns: (at: ProcessorAccount, processorId: string) => Promise<unknown>
  readonly log: Log
}

/** Creates the function that confirms differences before they are stored. */
export function createConfirming({
  pool,
  processor,
  settleCharge,
  reconcileReturns,
  log,
}: ConfirmingDeps) {
  /**
   * Books what only the processor has, and reads the rest of the difference from the processor
   * again, because a movement may be recorded later than our row. Only what differs then is a
   * difference.
   */
  async function confirm(place: Place, item: Case, seen: readonly Difference[]): Promise<Case> {
    if (item.ours === null) {
      const settled = await settle(place, item)
      return settled.payment === null ? settled : readReturns(place, settled)
    }
    if (item.theirs === null) return confirmMissing(place, item, item.ours)
    const isOfReturn = seen.some(({ subject }) => subject === 'refund' || subject === 'dispute')
    if (!isOfReturn) return item
    // Returns of a surplus are not booked.
    if (item.payment === null) return { ...item, refunded: await sumRefunds(place, item.id) }
    return readReturns(place, await bookReturns(place, item))
  }

  /** Confirms that the processor does not have a payment of ours. */
  async function confirmMissing(
    place: Place,
    item: Case,
    ours: NonNullable<Case['ours']>,
  ): Promise<Case> {
    const payment = await processor.readPayment(place.at, item.id)
    if (payment?.state !== 'succeeded' || payment.amount !== ours.amount) return item
    const isSame = payment.refunded === ours.refunded && payment.disputed === ours.disputed
    if (item.payment !== null && !isSame) await bookReturns(place, item)
    // Its movement was not listed yet. A later window will have it.
    return { ...item, ours: null }
  }

  /** Settles a payment that only an attempt names, if any. Then it is booked, or goes back. */
  async function settle(place: Place, item: Case): Promise<Case> {
    await settleCharge(place.at, item.id).catch((error: unknown) =>
      log.warn({ err: error, payment: item.id }, 'a payment without a record was not settled'),
    )
    return readAgain(place, item)
  }

  /** Books refunds and disputes that no event has reported. */
  async function bookReturns(place: Place, item: Case): Promise<Case> {
    await reconcileReturns(place.at, item.id).catch((error: unknown) =>
      log.warn({ err: error, payment: item.id }, 'the returns of a payment were not booked'),
    )
    return readAgain(place, item)
  }

  async function readAgain(place: Place, item: Case): Promise<Case> {
    const [current] = await readCases(pool, place, [item.id])
    return current ?? item
  }

  /** Returns a payment with what went back by now, as the processor reports it. */
  async function readReturns(place: Place, item: Case): Promise<Case> {
    const refunded = await sumRefunds(place, item.id)
    const payment = await processor.readPayment(place.at, item.id)
    return { ...item, refunded, disputed: payment?.disputed ?? item.disputed }
  }

  async function sumRefunds(place: Place, payment: string): Promise<bigint> {
    const refunds = await processor.listRefunds(place.at, payment)
    return refunds
      .filter(({ state }) => state !== 'failed')
      .reduce((sum, { amount }) => sum + amount, 0n)
  }

  return confirm
}
