import type { Pool } from '../../lib/sql.ts'
import type { PlansApi } from '../../plans/module.ts'
import type { PriceRule } from '../../plans/terms.ts'
import type { RequestItem } from '../types.ts'

type SoldItem = Pick<RequestItem, 'termsId' | 'pipeline' | 'modelId'>

/**
 * Returns the rule of the plan version by which each ticket was sold; null for a ticket without a
 * version.
 */
export type FindRules = (
  items: readonly SoldItem[],
) => Promise<(item: SoldItem) => PriceRule | null>

/** Reads each version once, even if many tickets use it. */
export const createRuleFinder =
  ({
    pool,
    plans,
  }: {
    readonly pool: Pool
    readonly plans: Pick<PlansApi, 'readTerms' | 'toRetailRate'>
  }): FindRules =>
  async (items) => {
    const ids = new Set(items.flatMap(({ termsId }) => (termsId === null ? [] : [termsId])))
    const terms = ids.size === 0 ? [] : await plans.readTerms(pool, [...ids])
    const byId = new Map(terms.map((planTerms) => [planTerms.termsId, planTerms]))
    return (item) => {
      const ruleTerms = item.termsId === null ? undefined : byId.get(item.termsId)
      return ruleTerms ? plans.toRetailRate(ruleTerms, item).rule : null
    }
  }
