import { type Clocks, later, realTime } from '../shared/clocks/clocks.ts'
import type { AppId, UserId } from '../shared/ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { usdAttos } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import { createDefaults, newPlan } from './offers/defaults.ts'
import { freeTerms } from './offers/plan.ts'
import { insertPlan } from './offers/store.ts'
import type { SendSubscribers } from './subscriptions/ports.ts'
import * as store from './subscriptions/store.ts'

/** Opens the accounts of newly subscribed users, in the caller's transaction. */
export type OpenAccounts = (
  db: Db,
  users: readonly { appId: AppId; userId: UserId }[],
  at: Date,
) => Promise<void>

const nothingName = 'Nothing included'

interface PlansDeps {
  readonly ledger: { readonly open: OpenAccounts }
  /**
   * Sends a new app's Starter plan to the metering backend, without waiting. Absent when the
   * backend has no plans.
   */
  readonly syncStarter?: (app: AppId) => void
  /** Absent when the backend has no subscriptions. */
  readonly send?: SendSubscribers
  readonly clocks?: Clocks
}

/** Plans and subscriptions. An app has one Starter plan, a user one subscription. */
export function createPlans({
  ledger,
  syncStarter = () => {},
  send,
  clocks = realTime,
}: PlansDeps) {
  /**
   * Subscribes new users to Starter and opens their accounts, in the transaction that creates them.
   */
  async function startOnStarter(
    db: Db,
    users: readonly { appId: AppId; userId: UserId }[],
    at: Date,
  ): Promise<void> {
    const subscriptions = users.map((user) => ({ ...user, id: uuidV7(at.getTime()) }))
    const ahead = await clocks.ahead(db, users)
    const byClock = Map.groupBy(subscriptions, ({ appId }) => ahead.get(appId) ?? 0)
    const subscribed = new Set<string>()
    for (const [aheadMs, same] of byClock)
      for (const user of await store.subscribeToStarter(db, same, later(at, aheadMs)))
        subscribed.add(user)
    const started = users.filter(({ userId }) => subscribed.has(userId))
    await ledger.open(db, started, at)
    await send?.(db, started)
  }

  /**
   * Like `startOnStarter`, but on a plan that includes nothing. Creates that plan if it is missing.
   */
  async function startWithNothing(
    db: Db,
    user: { appId: AppId; userId: UserId },
    at: Date,
  ): Promise<void> {
    const since = await clocks.timeOf(db, user.appId, at)
    const plan = newPlan(user.appId, nothingName, since)
    await insertPlan(db, plan, { terms: { ...freeTerms, included: usdAttos(0n) }, at: since })
    const id = uuidV7(at.getTime())
    const isNew = await store.subscribeTo(db, nothingName, { ...user, id, at: since })
    if (!isNew) return
    await ledger.open(db, [user], at)
    await send?.(db, [user])
  }

  return { createDefaults, syncStarter, startOnStarter, startWithNothing }
}

export type Plans = ReturnType<typeof createPlans>
