import type { Pool } from '../../lib/sql.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import type { Plan } from '../offers/plan.ts'
import { planReads } from '../offers/reads.ts'
import type { PlanSync } from '../sync/service.ts'
import { closedReason, toSold } from './moves.ts'
import { findSubscription } from './store.ts'
import { needsCard } from './timing.ts'

export interface ChoicesDeps {
  readonly pool: Pool
  readonly sync: Pick<PlanSync, 'isSynced'>
}

/** A plan that users may move to. */
export interface PlanChoice extends Plan {
  readonly needsCard: boolean
}

/** A scheduled change of a user's plan. */
export interface ScheduledPlan {
  readonly planId: string
  readonly name: string
  readonly at: Date
}

/** What a person sees who chooses a plan. */
export function createChoices({ pool, sync }: ChoicesDeps) {
  /** Returns the app's plans that a change of plan accepts: Starter, then the oldest first. */
  async function listChoices(app: AppId): Promise<PlanChoice[]> {
    const choices: PlanChoice[] = []
    for (const plan of await planReads.listPlans(pool, app))
      if (closedReason(plan) === null && (await sync.isSynced(pool, plan)))
        choices.push({ ...plan, needsCard: needsCard(toSold(plan)) })
    return choices
  }

  /** Returns the plan that follows a user's running period; null without a scheduled change. */
  async function findScheduled(user: UserKey): Promise<ScheduledPlan | null> {
    const next = (await findSubscription(pool, user))?.next ?? null
    const plan = next && (await planReads.findPlan(pool, user.appId, next.planId))
    return next && plan && { planId: plan.id, name: plan.name, at: next.at }
  }

  return { listChoices, findScheduled }
}
