import { uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { StoredCheckout } from '../payments/checkout-store.ts'
import { insertDifference } from './difference-store.ts'

/**
 * Returns a function that stores a difference for a checkout that may have been paid at a processor
 * that the deployment uses no more. No comparison closes it while that is so; an operator does.
 */
export const createReportUnknown =
  (now: Now) =>
  async (db: Db, checkout: StoredCheckout): Promise<void> => {
    const { appId, at, processor, processorId, amount } = checkout
    if (processor === null || processorId === null) return
    const foundAt = now()
    await insertDifference(db, {
      id: uuidV7(foundAt.getTime()),
      processor,
      at,
      appId,
      subject: 'payment',
      problem: 'unknown',
      processorPaymentId: processorId,
      paymentId: null,
      ours: amount,
      theirs: null,
      currency: 'usd',
      foundAt,
      resolvedAt: null,
      resolution: null,
      resolvedBy: null,
    })
  }
