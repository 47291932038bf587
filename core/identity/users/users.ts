import { type UsersDeps, createUserCreation } from './create.ts'
import { createUserChanges } from './change.ts'
import { createUserFinder } from './find.ts'
import { createUserResolver } from './resolve.ts'

/** End users of apps: provisioned, changed, deactivated; never deleted. */
export function createUsers(deps: UsersDeps) {
  const creation = createUserCreation(deps)
  const finder = createUserFinder({ ...deps, ...creation })
  const parts = { ...deps, ...creation, ...finder }
  return {
    ...finder,
    ...createUserChanges(parts),
    ...createUserResolver(parts),
    createAll: creation.createAll,
    resubscribe: creation.resubscribe,
  }
}

export type Users = ReturnType<typeof createUsers>
