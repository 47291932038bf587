import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import type { Plan } from './plan.ts'
import * as store from './store.ts'

/** The number of versions that fit into one message, even with the most capabilities. */
const versionsMax = 100

/**
 * Returns a plan as it was in each of its newest versions, the newest first. Name and status are the
 * current ones, because versions have only terms. Throws NOT_FOUND for an unknown or deleted plan.
 */
export async function listVersions(db: Db, app: AppId, planId: string): Promise<Plan[]> {
  const [plan] = isUuid(planId) ? await store.findPlans(db, { appId: app, planId }) : []
  if (!plan) throw noSuchPlan()
  const ids = await store.newestTermsIds(db, { appId: app, planId, limit: versionsMax })
  const versions = await store.readVersions(db, ids)
  return versions
    .toSorted((a, b) => b.version - a.version)
    .map((version) => ({ ...plan, updatedAt: version.createdAt, newest: version }))
}

export const noSuchPlan = (): DomainError => new DomainError('NOT_FOUND', 'Plan not found')
