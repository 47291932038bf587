import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import { type AppId, type UserId, type UserKey, ownerAccountSubject } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type UserCreation, identifyUser } from '../users/create.ts'
import { findUsers } from '../users/store.ts'
import * as store from './store.ts'
import type { AppOwner } from './store.ts'

/**
 * Owners of customers' apps as end users of the platform app (decision 58): one account user for
 * all apps that an account owns. The account that owns an app pays for it from then on; what was
 * booked stays with the account that owned it then.
 */
export function createOwnerAccounts({
  pool,
  createAll,
}: Pick<Shared, 'pool'> & Pick<UserCreation, 'createAll'>) {
  /**
   * Returns the account user of each app's owner, created on the platform app's Starter plan at
   * first need. Null for a platform-owned app, and for an app without an owner. Throws UNAVAILABLE
   * before core's first start, which makes the platform app.
   */
  async function ownerOf(
    db: Db,
    apps: readonly AppId[],
  ): Promise<ReadonlyMap<AppId, UserKey | null>> {
    const users = await payingOwners(db, apps)
    return new Map(apps.map((app) => [app, users.get(app) ?? null]))
  }

  /** Like `ownerOf`, but omits the apps that no owner pays for. */
  async function payingOwners(
    db: Db,
    apps: readonly AppId[],
  ): Promise<ReadonlyMap<AppId, UserKey>> {
    return usersOf(db, await store.findOwners(db, apps))
  }

  async function usersOf(
    db: Db,
    owners: readonly AppOwner[],
  ): Promise<ReadonlyMap<AppId, UserKey>> {
    const missing = owners.filter(({ userId }) => userId === null)
    const created = missing.length === 0 ? new Map<string, UserId>() : await create(db, missing)
    return new Map(
      owners.map((owner) => {
        const platformApp = requirePlatformApp(owner)
        const userId = owner.userId ?? created.get(owner.accountId)
        if (!userId) throw new Error(`account ${owner.accountId} has no user in the platform app`)
        return [owner.appId, { appId: platformApp, userId }]
      }),
    )
  }

  /**
   * Creates account users, by account. Waits for another transaction that creates the same one;
   * `createAll` inserts in the order of the names, so that two of them cannot deadlock.
   */
  async function create(db: Db, owners: readonly AppOwner[]): Promise<Map<string, UserId>> {
    const requests = [...new Map(owners.map((owner) => [owner.accountId, owner])).values()].map(
      (owner) => ({
        account: owner.accountId,
        app: requirePlatformApp(owner),
        change: { externalUserId: ownerAccountSubject(owner.accountId) },
      }),
    )
    const created = await createAll(db, requests)
    const others = requests.filter((request) => !created.has(identifyUser(request)))
    const pairs = others.map(({ app, change }) => ({ app, external: change.externalUserId }))
    const existing = others.length === 0 ? [] : await findUsers(db, pairs)
    const known = [...created.values(), ...existing]
    const byName = new Map(known.map(({ externalUserId, id }) => [externalUserId, id]))
    return new Map(
      requests.flatMap(({ account, change }) => {
        const id = byName.get(change.externalUserId)
        return id ? [[account, id] as const] : []
      }),
    )
  }

  /** Finds a user of the platform app by its external id, without creating it. */
  async function findUser(app: AppId, external: string): Promise<UserKey | null> {
    const [user] = await findUsers(pool, [{ app, external }])
    return user ? { appId: user.appId, userId: user.id } : null
  }

  return { ownerOf, payingOwners, findUser, findPlatformApp: store.findPlatformApp }
}

export type OwnerAccounts = ReturnType<typeof createOwnerAccounts>

/** Returns the account user of an app's owner; null for no owner, or one that was never charged. */
export async function findOwnerAccountUser(db: Db, app: AppId): Promise<UserKey | null> {
  const [owner] = await store.findOwners(db, [app])
  if (!owner || owner.platformApp === null || owner.userId === null) return null
  return { appId: owner.platformApp, userId: owner.userId }
}

function requirePlatformApp({ platformApp }: AppOwner): AppId {
  if (platformApp !== null) return platformApp
  throw new DomainError('UNAVAILABLE', 'the platform app is missing; start core once to create it')
}
