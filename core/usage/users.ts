import { DomainError } from '../../proto/errors.ts'
import { type AppId, type UserId, isUuid, subjectProblem, userId } from '../shared/ids.ts'

export interface KnownUser {
  readonly id: UserId
  readonly externalUserId: string
}

export interface UsageUsers {
  findById(app: AppId, id: UserId): Promise<KnownUser | null>
  /** Throws NOT_FOUND. */
  get(app: AppId, externalUserId: string): Promise<KnownUser>
}

/**
 * Finds the user named in a query: by endUserId first, then by externalUserId. Throws NOT_FOUND for
 * an unknown user.
 */
export const createUserFinder =
  (users: UsageUsers) =>
  async (app: AppId, externalUserId: string): Promise<KnownUser> => {
    const lower = externalUserId.toLowerCase()
    const byId = isUuid(lower) ? await users.findById(app, userId(lower)) : null
    if (byId) return byId
    if (subjectProblem(externalUserId) !== null) throw new DomainError('NOT_FOUND', 'no such user')
    return users.get(app, externalUserId)
  }

export type UserFinder = ReturnType<typeof createUserFinder>
