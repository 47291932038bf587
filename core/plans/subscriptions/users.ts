import { DomainError } from '../../../proto/errors.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Clocks } from '../../shared/clocks/clocks.ts'
import { type AppId, type UserKey, isOwnerSubject, subjectProblem } from '../../shared/ids.ts'
import type { SubscribedUser } from './change.ts'
import { noSubscription } from './moves.ts'
import type { Resubscribe } from './ports.ts'
import * as store from './store.ts'
import type { Subscription } from './store.ts'

/** Users and their subscriptions, as requests name them. */

interface UsersDeps {
  readonly pool: Pool
  readonly resubscribe: Resubscribe
}

/**
 * Returns the user, and recreates a missing subscription. Throws NOT_FOUND when the app has no such
 * user, REQUEST_INVALID for an invalid external user id.
 */
export async function getUser(
  { pool, resubscribe }: UsersDeps,
  app: AppId,
  externalUserId: string,
): Promise<SubscribedUser> {
  const problem = subjectProblem(externalUserId)
  if (problem) throw new DomainError('REQUEST_INVALID', problem)
  const user = await store.findUser(pool, app, externalUserId.trim())
  if (!user) throw new DomainError('NOT_FOUND', 'the app has no such user')
  if (!user.isSubscribed) await tx(pool, (db) => resubscribe(db, [user]))
  return user
}

/** Like `getUser`, and throws OWNER_WALLET_NOT_APP_USER for the app's owner. */
export async function getChangeable(
  deps: UsersDeps,
  app: AppId,
  externalUserId: string,
): Promise<SubscribedUser> {
  const user = await getUser(deps, app, externalUserId)
  if (isOwnerSubject(user.externalUserId))
    throw new DomainError(
      'OWNER_WALLET_NOT_APP_USER',
      "this is the app's owner, whose plan cannot be changed like a user's plan",
    )
  return user
}

/** Returns the subscription that holds the slot now. Throws NO_SUBSCRIPTION without one. */
export async function readCurrent(
  { clocks, now }: { readonly clocks: Clocks; readonly now: Now },
  db: Db,
  user: UserKey,
): Promise<Subscription> {
  const subscription = await store.findSubscription(db, user)
  if (!subscription) throw noSubscription()
  const { next } = subscription
  return next && next.at <= (await clocks.timeOf(db, user.appId, now()))
    ? { ...subscription, ...next, next: null }
    : subscription
}
