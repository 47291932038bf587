import type { AppId, UserId } from '../platform/ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type UsdMicros, microsToAttos } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import type { Ledger } from '../allowances/ledger.ts'
import * as store from './store.ts'

const starterName = 'Starter'

/** Plans and who is on them. One Starter plan for each app, one subscription slot for each user. */
export function createPlans({ ledger }: { ledger: Ledger }) {
  /** Gives a new app its Starter plan, inside the caller's transaction. */
  async function createStarter(
    db: Db,
    plan: { appId: AppId; included: UsdMicros; at: Date },
  ): Promise<void> {
    await store.insertStarter(db, {
      appId: plan.appId,
      id: uuidV7(plan.at.getTime()),
      name: starterName,
      includedAttos: microsToAttos(plan.included),
      at: plan.at,
    })
  }

  /** Subscribes a new user to Starter and opens the account, inside the transaction that makes the user. */
  async function startOnStarter(
    db: Db,
    user: { appId: AppId; userId: UserId },
    at: Date,
  ): Promise<void> {
    const fresh = await store.subscribeToStarter(db, { ...user, id: uuidV7(at.getTime()), at })
    if (fresh) await ledger.open(db, user, at)
  }

  return { createStarter, startOnStarter }
}

export type Plans = ReturnType<typeof createPlans>
