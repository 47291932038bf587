import { DomainError } from '../../../proto/errors.ts'
import type { PlanDraft } from '../../plans/offers/service.ts'
import type { Assignment } from './input.ts'
import type { ReplayedUser } from './store.ts'

/**
 * Chooses the draft for a user: the one assigned to the user, else to the current plan, else the
 * default.
 */

export type DraftOf = (user: Pick<ReplayedUser, 'externalUserId' | 'planId'>) => PlanDraft | null

export interface ChoiceFacts {
  readonly drafts: readonly PlanDraft[]
  /** The app's plans. */
  readonly plans: readonly { readonly id: string; readonly name: string }[]
}

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/** Throws REQUEST_INVALID for a name that two drafts share, and for an unknown name. */
export function createChoice(assign: Assignment | null, { drafts, plans }: ChoiceFacts): DraftOf {
  const byName = new Map(drafts.map((draft) => [draft.name, draft]))
  if (byName.size < drafts.length) throw invalid('two plans have the same name')
  const [only] = drafts
  if (assign === null) {
    if (drafts.length !== 1 || only === undefined)
      throw invalid('assign is required with more than one plan; it assigns users to plans')
    return () => only
  }
  const draftOf = (name: string | null, field: string): PlanDraft | null => {
    const draft = name === null ? null : byName.get(name)
    if (draft === undefined)
      throw invalid(
        `${field} names ${JSON.stringify(name?.slice(0, 64))}, which is not a name in plans`,
      )
    return draft
  }
  const fallback = draftOf(assign.fallback, 'assign.default')
  const byPlan = new Map<string, PlanDraft | null>()
  for (const [key, name] of assign.byPlan) {
    const plan = plans.find(({ id }) => id === key) ?? plans.find((one) => one.name === key)
    if (!plan)
      throw invalid(
        `assign.plans names ${JSON.stringify(key.slice(0, 64))}, which is not a plan of the app`,
      )
    byPlan.set(plan.id, draftOf(name, 'assign.plans'))
  }
  const byUser = new Map(
    [...assign.byUser].map(([user, name]) => [user, draftOf(name, 'assign.users')]),
  )
  return ({ externalUserId, planId }) => {
    const own = byUser.get(externalUserId)
    if (own !== undefined) return own
    const ofPlan = byPlan.get(planId)
    return ofPlan === undefined ? fallback : ofPlan
  }
}
