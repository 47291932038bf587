import type { TopUps } from '../../balances/credit/top-ups.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserKey } from '../../shared/ids.ts'
import { centsToAttos } from './amounts.ts'
import { findExternalId } from './payer-store.ts'
import { type NewMoney, insertMoney } from './payment-store.ts'

export interface CreditingDeps {
  readonly topUps: Pick<TopUps, 'credit'>
  readonly now: Now
}

/** Creates the function that books a payment as prepaid credit of a user, in the caller's transaction. */
export const createCrediting =
  ({ topUps, now }: CreditingDeps) =>
  async (db: Db, { appId, userId }: UserKey, money: NewMoney): Promise<void> => {
    const createdAt = now()
    const id = uuidV7(createdAt.getTime())
    const externalUserId = await findExternalId(db, { appId, userId })
    const creditId = await topUps.credit(db, {
      user: { appId, userId, externalUserId },
      amount: centsToAttos(money.amount),
      paymentId: id,
    })
    const paid = { purpose: 'top_up', creditId, invoiceId: null, createdAt } as const
    await insertMoney(db, { ...money, ...paid, appId, userId, id })
  }
