import { isUuid, type AppId } from '../../platform/ids.ts'
import type { Db } from '../../lib/sql.ts'
import type { SoldRates } from '../../metering/rating/port.ts'
import { type RetailTerms, highestRate, retailRateOf, retailRules } from '../terms.ts'
import type { Plan, PlanVersion } from './plan.ts'
import * as store from './store.ts'

/** What a version sells at, for rating. */
const retailTermsOf = ({ termsId, planId, version, ...terms }: PlanVersion): RetailTerms => ({
  termsId,
  planId,
  version,
  rules: retailRules(terms),
})

function soldRatesOf(version: PlanVersion): SoldRates {
  const terms = retailTermsOf(version)
  return {
    ratioOf: (feature) => retailRateOf(terms, feature).rate,
    highest: highestRate(terms),
    maxPriceWei: highestCeiling(version.bundles.map(({ maxPricePerUnit }) => maxPricePerUnit)),
  }
}

/** Null without a ceiling, and where one is missing: the call may be for what it would stand for. */
function highestCeiling(ceilings: readonly (bigint | null)[]): bigint | null {
  let highest: bigint | null = null
  for (const ceiling of ceilings) {
    if (ceiling === null) return null
    if (highest === null || ceiling > highest) highest = ceiling
  }
  return highest
}

/** Reads of plans for other domains, each with the caller's pool or transaction. */
export const planReads = {
  retailRateOf,

  /** What versions sell at, for rating, by their ids. */
  async readRates(db: Db, termsIds: readonly bigint[]): Promise<Map<bigint, SoldRates>> {
    const versions = await store.readVersions(db, termsIds)
    return new Map(versions.map((version) => [version.termsId, soldRatesOf(version)]))
  },

  /** What versions sell at, by their ids, in no order; leaves out ids that are unknown. */
  async readTerms(db: Db, termsIds: readonly bigint[]): Promise<RetailTerms[]> {
    return (await store.readVersions(db, termsIds)).map(retailTermsOf)
  },

  /** The newest version of a plan, deleted or not, of those made at or before `at`; null when there is none. */
  async newestVersion(
    db: Db,
    plan: { readonly appId: AppId; readonly planId: string },
    at: Date,
  ): Promise<PlanVersion | null> {
    const id = await store.newestTermsId(db, { ...plan, at })
    const [version] = id === null ? [] : await store.readVersions(db, [id])
    return version ?? null
  },

  /** A plan of the app that is not deleted, with its newest version; null when there is none of that id. */
  async findPlan(db: Db, app: AppId, planId: string): Promise<Plan | null> {
    const [plan] = isUuid(planId) ? await store.findPlans(db, { appId: app, planId }) : []
    return plan ?? null
  },
}
