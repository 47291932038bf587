import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { BookingDeps } from './booking.ts'
import { hasRetries, voidCollection } from './collection-store.ts'

/**
 * Creates the function that ends the collection of an invoice that becomes void, in the caller's
 * transaction, which has locked the account. The subscription is no longer past due unless another
 * invoice is. The function throws CONFLICT while the processor has not decided a payment.
 */
export const createEndCollection =
  ({ plans, now }: Pick<BookingDeps, 'plans' | 'now'>) =>
  async (db: Db, invoice: UserKey & { readonly id: string }): Promise<void> => {
    const { appId, id: invoiceId } = invoice
    if (!(await voidCollection(db, { appId, invoiceId, at: now() })))
      throw new DomainError(
        'CONFLICT',
        'a payment of this invoice is not decided; try again when it has succeeded or failed',
      )
    if (!(await hasRetries(db, invoice))) await plans.setPastDue(db, invoice, false)
  }
