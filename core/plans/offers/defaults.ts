import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdMicros, microsToAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import { type PlanTerms, freeTerms } from './plan.ts'
import { type NewPlan, insertPlan } from './store.ts'

/**
 * The plans that every app has: Starter, for new users, and Network Price, which has no
 * subscribers.
 */

const starterName = 'Starter'
const networkName = 'Network Price'

/** An active plan that is neither Starter nor Network Price. */
export const newPlan = (appId: AppId, name: string, at: Date): NewPlan => ({
  appId,
  id: uuidV7(at.getTime()),
  name,
  status: 'active',
  isStarterDefault: false,
  isNetworkDefault: false,
})

/** Creates both plans for a new app, in the caller's transaction. */
export async function createDefaults(
  db: Db,
  { appId, included, at }: { appId: AppId; included: UsdMicros; at: Date },
): Promise<void> {
  const terms: PlanTerms = { ...freeTerms, type: 'usage', included: microsToAttos(included) }
  const starter = { ...newPlan(appId, starterName, at), isStarterDefault: true }
  await insertPlan(db, starter, { terms, at })
  await createNetworkPrice(db, appId, at)
}

/** Creates the app's Network Price plan unless it exists. */
export async function createNetworkPrice(db: Db, appId: AppId, at: Date): Promise<void> {
  const plan = { ...newPlan(appId, networkName, at), isNetworkDefault: true }
  await insertPlan(db, plan, { terms: freeTerms, at })
}
