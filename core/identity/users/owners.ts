import type { Db, Pool } from '../../lib/sql.ts'
import {
  type AccountId,
  type AppId,
  type ClientId,
  type ExternalUserId,
  type UserId,
  authId,
  ownerSubject,
} from '../../shared/ids.ts'
import { findOwnerAccount } from '../members/store.ts'
import { findUsers } from './store.ts'
import type { Users } from './users.ts'

/** An app's owner as an end user of the app (decision 37). */
export interface Owner {
  readonly appId: AppId
  readonly clientId: ClientId
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
}

/**
 * App owners as end users: they sign in their own name, and app-level keys act for them (decisions
 * 37 and 38).
 */
export function createOwners({ pool, users }: { pool: Pool; users: Pick<Users, 'resolveStates'> }) {
  /**
   * Returns the owner as an end user, created on Starter at first use. Returns null if the app has
   * no owner or has deactivated that user.
   */
  async function find(app: { appId: AppId; clientId: ClientId }): Promise<Owner | null> {
    const account = await findOwnerAccount(pool, app.appId)
    if (account === null) return null
    const { clientId } = app
    const externalUserId = ownerSubject(account)
    const states = await users.resolveStates([{ clientId, externalUserId }])
    const user = states.get(authId(clientId, externalUserId))
    if (user?.status !== 'active') return null
    const { userId, tokensValidAfter } = user
    return { appId: app.appId, clientId, userId, externalUserId, tokensValidAfter }
  }

  /** Returns the account that counts as the app's owner; null if there is none. */
  const accountOf = (app: AppId): Promise<AccountId | null> => findOwnerAccount(pool, app)

  return { find, accountOf }
}

/** Returns our id of the app's owner as its end user; null until the owner has signed something. */
export async function findOwnerUser(db: Db, app: AppId): Promise<UserId | null> {
  const account = await findOwnerAccount(db, app)
  if (account === null) return null
  const [user] = await findUsers(db, [{ app, external: ownerSubject(account) }])
  return user?.id ?? null
}

export type Owners = ReturnType<typeof createOwners>
