import type { AppId, UserId } from '../platform/ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type UsdMicros, microsToAttos } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import * as store from './store.ts'

/** Opens the account of a newly subscribed user, inside the caller's transaction. */
export type OpenAccount = (
  db: Db,
  user: { appId: AppId; userId: UserId },
  at: Date,
) => Promise<void>

const starterName = 'Starter'

/** Plans and subscriptions. An app has one Starter plan, a user one subscription. */
export function createPlans({ ledger }: { ledger: { open: OpenAccount } }) {
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

  /** Subscribes a new user to Starter and opens the account, inside the transaction that creates the user. */
  async function startOnStarter(
    db: Db,
    user: { appId: AppId; userId: UserId },
    at: Date,
  ): Promise<void> {
    const isNew = await store.subscribeToStarter(db, { ...user, id: uuidV7(at.getTime()), at })
    if (isNew) await ledger.open(db, user, at)
  }

  return { createStarter, startOnStarter }
}

export type Plans = ReturnType<typeof createPlans>
