import {
  type AppId,
  type UserId,
  isLoginSubject,
  isOwnerSubject,
  newUserId,
  type UserKey,
} from '../../shared/ids.ts'
import type { Grants } from '../../shared/lineage/grants.ts'
import type { Invalidations } from '../../shared/invalidations.ts'
import { type AppEvent, emitAll } from '../../shared/events.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Db } from '../../lib/sql.ts'
import type { EmitCustomers } from '../../metering/backend/emit.ts'
import type { Plans } from '../../plans/service.ts'
import type { Resubscribe } from '../../plans/subscriptions/ports.ts'
import { givesLoginCredit } from '../apps/store.ts'
import * as store from './store.ts'
import type { ActivationGate, CredentialIssuer, User, UserChange } from '../types.ts'

export type UsersDeps = Pick<Shared, 'pool' | 'log' | 'now'> & {
  readonly plans: Plans
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly grants: Pick<Grants, 'end'>
  readonly credentialIssuers: readonly CredentialIssuer[]
  /** Absent in processes that get users only from tickets, which the gate does not limit. */
  readonly gate?: ActivationGate | undefined
  /** Requests that the debt of a user who is deactivated is collected. */
  readonly collectFinal?: ((db: Db, user: UserKey, at: Date) => Promise<void>) | undefined
  /** Queues new users for the metering backend, if there is one. */
  readonly emitCustomers?: EmitCustomers | undefined
}

/** A user to be created. */
export interface NewUser {
  readonly app: AppId
  readonly change: UserChange
}

/** Builds the event of a created or changed user. */
export const userEvent = (type: AppEvent['type'], user: User, at: Date): AppEvent => ({
  appId: user.appId,
  type,
  userId: user.id,
  data: { endUserId: user.id, status: user.status },
  at,
})

/** Identifies the user within a batch. */
export const identifyUser = ({ app, change }: NewUser): string => `${app} ${change.externalUserId}`

/** Creates users with their subscriptions, inside a transaction of the caller. */
export function createUserCreation({ plans, gate, emitCustomers, log, now }: UsersDeps) {
  /** Inserts users and returns the new ones by `identifyUser`. */
  async function createAll(
    db: Db,
    requests: readonly NewUser[],
  ): Promise<Map<string, store.StoredUser>> {
    const at = now()
    const users = await store.insertUsers(
      db,
      requests.map(({ app, change }) => ({
        appId: app,
        id: newUserId(),
        externalUserId: change.externalUserId,
        email: change.email ?? null,
        at,
      })),
    )
    if (users.length === 0) return new Map()
    await subscribeAll(db, users, at)
    const customers = users.map(({ id, ...customer }) => ({ ...customer, userId: id }))
    await emitCustomers?.(db, customers, at)
    await emitAll(
      db,
      users.map((user) => userEvent('user.created', user, at)),
    )
    return new Map(
      users.map((user) => [
        `${user.appId} ${user.externalUserId}`,
        { ...user, isSubscribed: true },
      ]),
    )
  }

  /**
   * Requires the gate to allow the activated users, one app after the other in sorted order. An
   * app's owner is exempt.
   */
  async function requireCost(db: Db, activated: readonly User[]): Promise<void> {
    const gated = activated.filter(({ externalUserId: name }) => !isOwnerSubject(name))
    const apps = new Set(gated.map(({ appId }) => appId))
    for (const app of [...apps].toSorted()) await gate?.requireCost(db, app)
  }

  /**
   * Recreates missing subscriptions, because a user must always have one. Called wherever a new
   * user would get one.
   */
  async function subscribeLost(db: Db, users: readonly store.StoredUser[]): Promise<void> {
    const lost = new Map(
      users.flatMap((user) => (user.isSubscribed ? [] : [[user.id, user] as const])),
    )
    if (lost.size === 0) return
    await subscribeAll(db, [...lost.values()], now())
    for (const { appId, id } of lost.values())
      log.warn({ appId, userId: id }, 'the missing subscription of a user was recreated')
  }

  /** Same as `subscribeLost`, for the ids of users without a subscription. */
  async function resubscribe(...[db, lost]: Parameters<Resubscribe>): Promise<void> {
    const pairs = lost.map(({ appId, userId }) => ({ app: appId, id: userId }))
    const users = await store.findUsersById(db, pairs)
    const unsubscribed = users.map((user) => ({ ...user, isSubscribed: false }))
    await subscribeLost(db, unsubscribed)
  }

  /**
   * Subscribes users to Starter, or to an empty plan if the app gives no credit to users created by
   * login.
   */
  async function subscribeAll(db: Db, users: readonly User[], at: Date): Promise<void> {
    const onStarter: { appId: AppId; userId: UserId }[] = []
    for (const { appId, id, externalUserId } of users) {
      const user = { appId, userId: id }
      const isEntitled = !isLoginSubject(externalUserId) || (await givesLoginCredit(db, appId))
      if (isEntitled) onStarter.push(user)
      else await plans.startWithNothing(db, user, at)
    }
    if (onStarter.length > 0) await plans.startOnStarter(db, onStarter, at)
  }

  return { createAll, requireCost, subscribeLost, resubscribe }
}

export type UserCreation = ReturnType<typeof createUserCreation>
