import {
  type NewUser,
  type UserCreation,
  type UsersDeps,
  identifyUser,
  userEvent,
} from './create.ts'
import { type UserFinder, unknownUser } from './find.ts'
import { type Actor, type AuditEntry, audit, auditAll } from '../../shared/audit.ts'
import { createBatchWriter } from '../../shared/batch-writer.ts'
import { type AppEvent, emit, emitAll } from '../../shared/events.ts'
import { type AppId, type ExternalUserId } from '../../shared/ids.ts'
import { type Db, tx } from '../../lib/sql.ts'
import * as store from './store.ts'
import type { User, UserChange, UserState } from '../types.ts'

interface UpsertRequest extends NewUser {
  readonly actor: Actor
}

interface Upserted {
  readonly user: store.StoredUser
  readonly created: boolean
  /** Ids of the credentials that ended with the user; null if the change ended no credentials. */
  readonly revoked: string[] | null
  /** Whether the user newly counts against the app's cap. */
  readonly isActivated: boolean
  /** The event of the change; null if nothing changed. */
  readonly event: AppEvent | null
}

interface UserAction {
  readonly user: User
  readonly actor: Actor
  readonly action: string
}

/** Creates, changes and deactivates users for an integrator, with audit entries. */
export function createUserChanges({
  pool,
  invalidations,
  grants,
  credentialIssuers,
  collectFinal,
  log,
  now,
  ...others
}: UsersDeps & UserCreation & UserFinder) {
  const { createAll, requireCost, subscribeLost, refuseNewName } = others
  const upsertInBatch = createBatchWriter<UpsertRequest, Upserted>(pool, upsertAll)

  /**
   * Creates the user with a Starter subscription, or changes it. Only one of two concurrent calls
   * creates the user.
   */
  async function upsert(
    app: AppId,
    change: UserChange,
    actor: Actor,
  ): Promise<{ user: User; created: boolean }> {
    await refuseNewName(app, change.externalUserId)
    const { user, created, revoked } = await upsertInBatch({ app, change, actor })
    await invalidate(user, revoked)
    return { user, created }
  }

  /**
   * Same as `upsert`, for many users inside the transaction `db`. The caller must call
   * `refuseNewName` first and change no status. Locks the users' rows in the order of external ids,
   * as `insertUsers` does.
   */
  async function upsertAll(db: Db, requests: readonly UpsertRequest[]): Promise<Upserted[]> {
    const inOrder = requests.toSorted((a, b) => (identifyUser(a) < identifyUser(b) ? -1 : 1))
    const firsts = new Map(inOrder.toReversed().map((request) => [identifyUser(request), request]))
    const created = await createAll(db, [...firsts.values()])
    const upserted = new Map<UpsertRequest, Upserted>()
    for (const request of inOrder) {
      const { app, change } = request
      const user =
        firsts.get(identifyUser(request)) === request
          ? created.get(identifyUser(request))
          : undefined
      const isDone = user !== undefined && change.status !== 'inactive'
      const result = isDone
        ? { user, revoked: [], isActivated: true, event: null }
        : await alter(db, app, change)
      upserted.set(request, { ...result, created: user !== undefined })
    }
    await subscribeLost(
      db,
      [...upserted.values()].map(({ user }) => user),
    )
    await auditAll(
      db,
      requests.flatMap((request) => {
        const { user } = upserted.get(request) ?? {}
        const { actor } = request
        return user ? [entryOf({ user, actor, action: 'app_user_upserted' })] : []
      }),
    )
    await emitAll(
      db,
      [...upserted.values()].flatMap(({ event }) => event ?? []),
    )
    await requireCost(
      db,
      [...upserted.values()].flatMap(({ user, isActivated }) => (isActivated ? [user] : [])),
    )
    return requests.flatMap((request) => upserted.get(request) ?? [])
  }

  /** Changes the user. Throws NOT_FOUND when the app has no such user. */
  async function update(app: AppId, change: UserChange, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, change)
      await subscribeLost(db, [altered.user])
      await audit(db, entryOf({ user: altered.user, actor, action: 'app_user_updated' }))
      if (altered.event) await emit(db, altered.event)
      if (altered.isActivated) await requireCost(db, [altered.user])
      return altered
    })
    await invalidate(user, revoked)
    return user
  }

  /**
   * Ends the user, its keys and its earlier tokens in one transaction (decision 15). A repeated
   * call changes nothing.
   */
  async function deactivate(app: AppId, external: ExternalUserId, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, { externalUserId: external, status: 'inactive' })
      await audit(db, entryOf({ user: altered.user, actor, action: 'app_user_deactivated' }))
      if (altered.event) await emit(db, altered.event)
      return altered
    })
    await invalidate(user, revoked)
    return user
  }

  async function alter(db: Db, app: AppId, change: UserChange): Promise<Omit<Upserted, 'created'>> {
    const user = await store.lockUser(db, app, change.externalUserId)
    if (!user) throw unknownUser()
    const at = now()
    const next = withStatus(user, change.status, at)
    const email = change.email === undefined ? user.email : change.email
    const ends = next.status === 'inactive' && user.status === 'active'
    const revoked = ends ? await endCredentials(db, user, at) : null
    const isActivated = next.status === 'active' && user.status === 'inactive'
    const updated = await store.updateUser(db, { ...next, email, updatedAt: at })
    const isChanged = next.status !== user.status || email !== user.email
    const type = ends ? 'user.deactivated' : 'user.updated'
    const event = isChanged ? userEvent(type, updated, at) : null
    return { user: updated, revoked, isActivated, event }
  }

  async function endCredentials(db: Db, user: User, at: Date): Promise<string[]> {
    const cause = 'user_deactivated'
    await grants.end(db, [{ id: user.id, cause, at, endsBefore: at }])
    await collectFinal?.(db, { appId: user.appId, userId: user.id }, at)
    const ids: string[] = []
    for (const { endOfUser } of credentialIssuers) ids.push(...(await endOfUser(db, user, at)))
    return ids
  }

  async function invalidate(user: User, revoked: string[] | null): Promise<void> {
    if (revoked === null || user.status === 'active') return
    log.info({ appId: user.appId, userId: user.id, keys: revoked.length }, 'user deactivated')
    // Concurrently, so that an unresponsive Redis costs one time-out and not one per key.
    await Promise.all([
      invalidations.publish({ kind: 'user', id: user.id }),
      ...revoked.map((id) => invalidations.publish({ kind: 'key', id })),
    ])
  }

  const entryOf = ({ user, actor, action }: UserAction): AuditEntry => ({
    appId: user.appId,
    actor: actor.name,
    action,
    status: 'success',
    at: now(),
    correlationId: actor.context?.correlationId,
    details: { userId: user.id, status: user.status },
  })

  return { upsert, upsertAll, update, deactivate }
}

/**
 * Returns the user with its new state. Deactivation ends all earlier tokens; reactivation does not
 * restore them.
 */
function withStatus(user: User, status: UserState | undefined, at: Date): User {
  if (status === undefined || status === user.status) return user
  if (status === 'active') return { ...user, status, deactivatedAt: null }
  // Tokens carry whole seconds, so those of the current second must end, too.
  const validAfter = new Date((Math.floor(at.getTime() / 1000) + 1) * 1000)
  return { ...user, status, deactivatedAt: at, tokensValidAfter: validAfter }
}
