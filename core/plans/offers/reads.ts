import { isUuid, type AppId } from '../../shared/ids.ts'
import type { Db } from '../../lib/sql.ts'
import type { SoldRates } from '../../metering/rating/port.ts'
import { type RetailTerms, highestRate, toRetailRate, retailRules } from '../terms.ts'
import type { Plan, PlanVersion } from './plan.ts'
import * as store from './store.ts'

/** Retail terms of a version, for rating. */
const retailTermsOf = ({ termsId, planId, version, ...terms }: PlanVersion): RetailTerms => ({
  termsId,
  planId,
  version,
  rules: retailRules(terms),
})

function soldRatesOf(version: PlanVersion): SoldRates {
  const terms = retailTermsOf(version)
  return {
    ratioOf: (feature) => toRetailRate(terms, feature).rate,
    highest: highestRate(terms),
    maxPriceWei: highestCeiling(version.bundles.map(({ maxPricePerUnit }) => maxPricePerUnit)),
  }
}

/**
 * Returns null if there are no bundles or one has no ceiling, because the call may be for that one.
 */
function highestCeiling(ceilings: readonly (bigint | null)[]): bigint | null {
  let highest: bigint | null = null
  for (const ceiling of ceilings) {
    if (ceiling === null) return null
    if (highest === null || ceiling > highest) highest = ceiling
  }
  return highest
}

/** Reads of plans for other domains, using the caller's pool or transaction. */
export const planReads = {
  toRetailRate,

  /** Returns the rates of versions by their ids, for rating. */
  async readRates(db: Db, termsIds: readonly bigint[]): Promise<Map<bigint, SoldRates>> {
    const versions = await store.readVersions(db, termsIds)
    return new Map(versions.map((version) => [version.termsId, soldRatesOf(version)]))
  },

  /** Returns the retail terms of versions by their ids, unordered. Omits unknown ids. */
  async readTerms(db: Db, termsIds: readonly bigint[]): Promise<RetailTerms[]> {
    return (await store.readVersions(db, termsIds)).map(retailTermsOf)
  },

  /**
   * Returns the newest version made at or before `at`, of any plan, deleted or not; null if no
   * version is that old.
   */
  async newestVersion(
    db: Db,
    plan: { readonly appId: AppId; readonly planId: string },
    at: Date,
  ): Promise<PlanVersion | null> {
    const id = await store.newestTermsId(db, { ...plan, at })
    const [version] = id === null ? [] : await store.readVersions(db, [id])
    return version ?? null
  },

  /** Returns the app's plans that are not deleted with their newest versions, Starter first. */
  listPlans: (db: Db, app: AppId): Promise<Plan[]> =>
    store.findPlans(db, { appId: app, planId: null }),

  /** Returns a plan of the app with its newest version; null if it is unknown or deleted. */
  async findPlan(db: Db, app: AppId, planId: string): Promise<Plan | null> {
    const [plan] = isUuid(planId) ? await store.findPlans(db, { appId: app, planId }) : []
    return plan ?? null
  },
}
