import { DomainError } from '../../../proto/errors.ts'
import { type Actor, audit } from '../../platform/audit.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import {
  type AppId,
  type ExternalUserId,
  type UserId,
  authId,
  externalUserId,
  isClientId,
  newUserId,
  subjectProblem,
} from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createBatchLoader } from '../../lib/batch-loader.ts'
import type { EmitCustomer } from '../../metering/backend/emit.ts'
import type { Plans } from '../../plans/service.ts'
import * as store from '../store.ts'
import type { User, UserChange, UserState } from '../types.ts'

export interface UsersDeps {
  readonly pool: Pool
  readonly plans: Plans
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly log: Log
  readonly now: Now
  /** Tells the metering backend, where there is one, of a new user. */
  readonly emitCustomer?: EmitCustomer | undefined
}

/** End users of apps: provisioned, changed, ended; never deleted. */
export function createUsers({ pool, plans, invalidations, log, now, emitCustomer }: UsersDeps) {
  /** Creates the user with a Starter subscription, or changes what is named. Of two at once one creates. */
  async function upsert(
    app: AppId,
    change: UserChange,
    actor: Actor,
  ): Promise<{ user: User; created: boolean }> {
    const result = await tx(pool, async (db) => {
      const created = await create(db, app, change)
      const user =
        created && change.status !== 'inactive'
          ? { user: created, revoked: [] }
          : await alter(db, app, change)
      await note(db, { app, actor, action: 'app_user_upserted', user: user.user })
      return { ...user, created: created !== null }
    })
    await announce(result.user, result.revoked)
    return { user: result.user, created: result.created }
  }

  /** Changes what is named. NOT_FOUND when there is no such user. */
  async function update(app: AppId, change: UserChange, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, change)
      await note(db, { app, actor, action: 'app_user_updated', user: altered.user })
      return altered
    })
    await announce(user, revoked)
    return user
  }

  /** Ends the user (decision 15): status, keys and earlier tokens in one transaction. Twice is once. */
  async function deactivate(app: AppId, external: ExternalUserId, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, { externalUserId: external, status: 'inactive' })
      await note(db, { app, actor, action: 'app_user_deactivated', user: altered.user })
      return altered
    })
    await announce(user, revoked)
    return user
  }

  async function create(db: Db, app: AppId, change: UserChange): Promise<User | null> {
    const at = now()
    const user = await store.insertUser(db, {
      appId: app,
      id: newUserId(),
      externalUserId: change.externalUserId,
      email: change.email ?? null,
      at,
    })
    if (!user) return null
    await plans.startOnStarter(db, { appId: app, userId: user.id }, at)
    await emitCustomer?.(
      db,
      { appId: app, userId: user.id, externalUserId: user.externalUserId },
      at,
    )
    return user
  }

  async function alter(
    db: Db,
    app: AppId,
    change: UserChange,
  ): Promise<{ user: User; revoked: string[] | null }> {
    const user = await store.lockUser(db, app, change.externalUserId)
    if (!user) throw unknownUser()
    const at = now()
    const next = moved(user, change.status, at)
    const email = change.email === undefined ? user.email : change.email
    const ends = next.status === 'inactive' && user.status === 'active'
    const revoked = ends
      ? [
          ...(await store.revokeUserKeys(db, user, at)),
          ...(await store.endUserSessions(db, user, at)),
        ]
      : null
    return { user: await store.updateUser(db, { ...next, email, updatedAt: at }), revoked }
  }

  async function announce(user: User, revoked: string[] | null): Promise<void> {
    if (revoked === null || user.status === 'active') return
    log.info({ appId: user.appId, userId: user.id, keys: revoked.length }, 'user deactivated')
    // All at once: a Redis that hangs costs one time-out, not one for each key.
    await Promise.all([
      invalidations.publish({ kind: 'user', id: user.id }),
      ...revoked.map((id) => invalidations.publish({ kind: 'key', id })),
    ])
  }

  async function note(
    db: Db,
    entry: { app: AppId; actor: Actor; action: string; user: User },
  ): Promise<void> {
    await audit(db, {
      appId: entry.app,
      actor: entry.actor.name,
      action: entry.action,
      status: 'success',
      at: now(),
      correlationId: entry.actor.context?.correlationId,
      details: { userId: entry.user.id, status: entry.user.status },
    })
  }

  const findByExternal = createBatchLoader(
    async (asked: readonly { app: AppId; external: string }[]) => {
      const users = await store.findUsers(
        pool,
        asked.map(({ app }) => app),
        asked.map(({ external }) => external),
      )
      const found = new Map(users.map((user) => [`${user.appId}:${user.externalUserId}`, user]))
      return ({ app, external }) => found.get(`${app}:${external}`) ?? null
    },
  )

  /** NOT_FOUND when the app has no such user. */
  async function get(app: AppId, external: string): Promise<User> {
    const problem = subjectProblem(external)
    if (problem) throw new DomainError('REQUEST_INVALID', problem)
    const user = await findByExternal({ app, external: external.trim() })
    if (!user) throw unknownUser()
    return user
  }

  const findById = (app: AppId, id: UserId): Promise<User | null> =>
    store.findUserById(pool, app, id)

  /** As `get`, but an inactive user is not found either. */
  async function getActive(app: AppId, external: string): Promise<User> {
    const user = await get(app, external)
    if (user.status !== 'active') throw unknownUser()
    return user
  }

  /** As `getActive`, and holds the user's row until the transaction ends. */
  async function holdActive(db: Db, app: AppId, external: ExternalUserId): Promise<User> {
    const user = await store.lockUser(db, app, external)
    if (user?.status !== 'active') throw unknownUser()
    return user
  }

  async function list(filter: {
    app: AppId
    status: UserState | null
    externalUserId: string | null
    after: Cursor | null
    limit: number
  }) {
    return page(await store.listUsers(pool, { ...filter, appId: filter.app }), filter.limit)
  }

  /**
   * For each subject of a known app its user, provisioned with Starter when new: a signed ticket provisions.
   * A subject of an unknown app is absent. Keyed by auth id.
   */
  async function resolveSubjects(
    subjects: readonly { clientId: string; externalUserId: string }[],
  ): Promise<Map<string, { appId: AppId; userId: UserId }>> {
    const resolved = new Map<string, { appId: AppId; userId: UserId }>()
    // What cannot be an id is nobody's, and may hold what Postgres does not take as text.
    const possible = subjects.filter(
      (subject) => isClientId(subject.clientId) && subjectProblem(subject.externalUserId) === null,
    )
    const rows = await store.findSubjects(
      pool,
      possible.map((subject) => subject.clientId),
      possible.map((subject) => subject.externalUserId),
    )
    for (const row of rows) {
      const key = authId(row.client_id, row.external_user_id)
      const app = row.app_id as AppId
      const user =
        row.user_id === null ? await provision(app, row.external_user_id) : (row.user_id as UserId)
      if (user !== null) resolved.set(key, { appId: app, userId: user })
    }
    return resolved
  }

  async function provision(app: AppId, external: string): Promise<UserId | null> {
    if (subjectProblem(external) !== null || external.trim() !== external) return null
    const change = { externalUserId: externalUserId(external) }
    const { user, created } = await tx(pool, async (db) => {
      const made = await create(db, app, change)
      const found = made ?? (await store.lockUser(db, app, change.externalUserId))
      if (!found) throw new Error('a user that exists cannot be found')
      return { user: found, created: made !== null }
    })
    if (created) log.info({ appId: app, userId: user.id }, 'user provisioned by signing')
    return user.id
  }

  return { upsert, update, deactivate, get, getActive, holdActive, findById, list, resolveSubjects }
}

export type Users = ReturnType<typeof createUsers>

const unknownUser = (): DomainError => new DomainError('NOT_FOUND', 'the app has no such user')

/** The state after a change: ending voids every token issued before; coming back revives nothing. */
function moved(user: User, status: UserState | undefined, at: Date): User {
  if (status === undefined || status === user.status) return user
  if (status === 'active') return { ...user, status, deactivatedAt: null }
  // Tokens carry whole seconds: those of the current second are void too.
  const validAfter = new Date((Math.floor(at.getTime() / 1000) + 1) * 1000)
  return { ...user, status, deactivatedAt: at, tokensValidAfter: validAfter }
}
