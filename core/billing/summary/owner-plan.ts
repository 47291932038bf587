import type { Ledger } from '../../balances/ledger/ledger.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './store.ts'
import type { OwnerPeriod } from './store.ts'

export interface OwnerPlanDeps extends Pick<Shared, 'pool'> {
  readonly ledger: Pick<Ledger, 'read'>
  /** Finds the account user of an app's owner in the platform app, without creating it. */
  readonly findOwnerAccount: (db: Db, app: AppId) => Promise<UserKey | null>
}

/** The owner plan of an app's owner, in one of its periods. */
export interface OwnerPlanPeriod {
  readonly account: UserKey
  readonly period: OwnerPeriod
}

/** Reads owner plans: the plans of the platform app that owners took (decision 58). */
export function createOwnerPlans({ pool, ledger, findOwnerAccount }: OwnerPlanDeps) {
  /**
   * Returns the period of the owner plan at `moment`; null for an owner on the platform app's
   * Starter, which is no owner plan. Enters periods that have begun by `at`.
   */
  async function find(
    app: AppId,
    { at, moment }: { readonly at: Date; readonly moment: Date },
  ): Promise<OwnerPlanPeriod | null> {
    const account = await findOwnerAccount(pool, app)
    if (account === null) return null
    await ledger.read(pool, account, at)
    const period = await store.findPeriod(pool, account, moment)
    return period === null || period.plan.isStarter ? null : { account, period }
  }

  return { find }
}
