import type { Db, Pool } from '../../lib/sql.ts'
import {
  type AccountId,
  type AppId,
  type ClientId,
  type ExternalUserId,
  type UserId,
  authId,
  ownerSubject,
} from '../../platform/ids.ts'
import { findOwnerAccount } from '../members/store.ts'
import { findUsers } from './store.ts'
import type { Users } from './users.ts'

/** The owner of an app as one of its end users (decision 37). */
export interface Owner {
  readonly appId: AppId
  readonly clientId: ClientId
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
}

/** Owners of apps as end users: they sign in their own name, and app-level keys act for them (decisions 37 and 38). */
export function createOwners({ pool, users }: { pool: Pool; users: Pick<Users, 'resolveStates'> }) {
  /** The owner, made on Starter at first need. Null for an app without one, and for one that the app has ended. */
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

  /** The account that counts as the app's owner; null where there is none. */
  const accountOf = (app: AppId): Promise<AccountId | null> => findOwnerAccount(pool, app)

  return { find, accountOf }
}

/** The owner of an app as an end user of it, by our id; null while there is none, because nothing was signed in its name. */
export async function findOwnerUser(db: Db, app: AppId): Promise<UserId | null> {
  const account = await findOwnerAccount(db, app)
  if (account === null) return null
  const [user] = await findUsers(db, [app], [ownerSubject(account)])
  return user?.id ?? null
}

export type Owners = ReturnType<typeof createOwners>
