import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { type BillingMode, findSettings } from '../store.ts'
import * as store from './store.ts'

export interface UnpaidDeps {
  readonly findOwnerAccount: (db: Db, app: AppId) => Promise<UserKey | null>
}

interface BilledApp {
  readonly app: AppId
  readonly billingMode: BillingMode
  readonly isPlatformOwned: boolean
}

/** Finds what is not paid for an app, because some changes must wait until it is. */
export function createUnpaid({ findOwnerAccount }: UnpaidDeps) {
  /**
   * Throws CONFLICT, naming the refused change, while something is unpaid: overage or an invoice of
   * the owner's account, and in `merchant` of a user. A platform-owned app has no payer.
   */
  async function requirePaid(db: Db, billed: BilledApp, change: string): Promise<void> {
    const who = await findDebtor(db, billed)
    if (who === null) return
    throw new DomainError('CONFLICT', `${change}: something of ${who} is unpaid; collect it first`)
  }

  /** Returns who owes something for the app, in words; null if all is paid. */
  async function findDebtor(
    db: Db,
    { app, billingMode, isPlatformOwned }: BilledApp,
  ): Promise<string | null> {
    if (isPlatformOwned) return null
    if (billingMode === 'merchant' && (await store.hasUnpaid(db, { appId: app })))
      return "the app's users"
    const owner = await findOwnerAccount(db, app)
    return owner !== null && (await store.hasUnpaid(db, owner)) ? "the owner's account" : null
  }

  /** Whether something of the app is unpaid. */
  const hasUnpaid = async (db: Db, app: AppId): Promise<boolean> => {
    const settings = await findSettings(db, app)
    return (await findDebtor(db, { app, ...settings })) !== null
  }

  return { requirePaid, hasUnpaid }
}

export type Unpaid = ReturnType<typeof createUnpaid>
