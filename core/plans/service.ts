import type { AppId, UserId } from '../platform/ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type UsdMicros, microsToAttos } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import * as store from './store.ts'

/** Opens the accounts of newly subscribed users, inside the caller's transaction. */
export type OpenAccounts = (
  db: Db,
  users: readonly { appId: AppId; userId: UserId }[],
  at: Date,
) => Promise<void>

const starterName = 'Starter'
const nothingName = 'Nothing included'

/** Plans and subscriptions. An app has one Starter plan, a user one subscription. */
export function createPlans({ ledger }: { ledger: { open: OpenAccounts } }) {
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

  /** Subscribes new users to Starter and opens their accounts, inside the transaction that creates them. */
  async function startOnStarter(
    db: Db,
    users: readonly { appId: AppId; userId: UserId }[],
    at: Date,
  ): Promise<void> {
    const subscriptions = users.map((user) => ({ ...user, id: uuidV7(at.getTime()) }))
    const subscribed = await store.subscribeToStarter(db, subscriptions, at)
    await ledger.open(
      db,
      users.filter(({ userId }) => subscribed.has(userId)),
      at,
    )
  }

  /** As `startOnStarter`, on a plan that includes nothing, which is made when the app has none. */
  async function startWithNothing(
    db: Db,
    user: { appId: AppId; userId: UserId },
    at: Date,
  ): Promise<void> {
    const plan = { appId: user.appId, id: uuidV7(at.getTime()), name: nothingName, at }
    await store.insertFreePlan(db, plan)
    const id = uuidV7(at.getTime())
    const isNew = await store.subscribeTo(db, nothingName, { ...user, id, at })
    if (isNew) await ledger.open(db, [user], at)
  }

  return { createStarter, startOnStarter, startWithNothing }
}

export type Plans = ReturnType<typeof createPlans>
