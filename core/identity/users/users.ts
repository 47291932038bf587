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
import { createBatchLoader } from '../../lib/concurrency.ts'
import type { EmitCustomer } from '../../metering/backend/emit.ts'
import type { Plans } from '../../plans/service.ts'
import * as store from './store.ts'
import type { CredentialIssuer, User, UserChange, UserState } from '../types.ts'

export interface UsersDeps {
  readonly pool: Pool
  readonly plans: Plans
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly log: Log
  readonly now: Now
  readonly credentialIssuers: readonly CredentialIssuer[]
  /** Queues a new user for the metering backend, where there is one. */
  readonly emitCustomer?: EmitCustomer | undefined
}

/** End users of apps: provisioned, changed, deactivated; never deleted. */
export function createUsers({
  pool,
  plans,
  invalidations,
  credentialIssuers,
  log,
  now,
  emitCustomer,
}: UsersDeps) {
  /** Creates the user with a Starter subscription, or changes it. Of two concurrent calls one creates. */
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
    await invalidate(result.user, result.revoked)
    return { user: result.user, created: result.created }
  }

  /** Changes the user. NOT_FOUND when the app has no such user. */
  async function update(app: AppId, change: UserChange, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, change)
      await note(db, { app, actor, action: 'app_user_updated', user: altered.user })
      return altered
    })
    await invalidate(user, revoked)
    return user
  }

  /** Ends the user, its keys and its earlier tokens in one transaction (decision 15). A repetition changes nothing. */
  async function deactivate(app: AppId, external: ExternalUserId, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, { externalUserId: external, status: 'inactive' })
      await note(db, { app, actor, action: 'app_user_deactivated', user: altered.user })
      return altered
    })
    await invalidate(user, revoked)
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
    const next = withStatus(user, change.status, at)
    const email = change.email === undefined ? user.email : change.email
    const ends = next.status === 'inactive' && user.status === 'active'
    const revoked = ends ? await endCredentials(db, user, at) : null
    return { user: await store.updateUser(db, { ...next, email, updatedAt: at }), revoked }
  }

  async function endCredentials(db: Db, user: User, at: Date): Promise<string[]> {
    const ids: string[] = []
    for (const { endOfUser } of credentialIssuers) ids.push(...(await endOfUser(db, user, at)))
    return ids
  }

  async function invalidate(user: User, revoked: string[] | null): Promise<void> {
    if (revoked === null || user.status === 'active') return
    log.info({ appId: user.appId, userId: user.id, keys: revoked.length }, 'user deactivated')
    // Concurrently: a Redis that hangs costs one time-out and not one for each key.
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
    async (pairs: readonly { app: AppId; external: string }[]) => {
      const users = await store.findUsers(
        pool,
        pairs.map(({ app }) => app),
        pairs.map(({ external }) => external),
      )
      const byPair = new Map(users.map((user) => [`${user.appId}:${user.externalUserId}`, user]))
      return ({ app, external }) => byPair.get(`${app}:${external}`) ?? null
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

  /** The user by our id. A user of an app that is not active reads as inactive. */
  const findById = (app: AppId, id: UserId): Promise<User | null> =>
    store.findUserById(pool, app, id)

  /** The user by our id, when both the user and the app are active. Reads inside the transaction `db`. */
  async function findActive(db: Db, app: AppId, id: UserId): Promise<User | null> {
    const user = await store.findUserById(db, app, id)
    return user?.status === 'active' ? user : null
  }

  /** As `get`, and NOT_FOUND for an inactive user too. */
  async function getActive(app: AppId, external: string): Promise<User> {
    const user = await get(app, external)
    if (user.status !== 'active') throw unknownUser()
    return user
  }

  /** As `getActive`, and locks the user's row until the transaction ends. */
  async function lockActive(db: Db, app: AppId, external: ExternalUserId): Promise<User> {
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
   * The users of subjects, by auth id. A user that a known app does not have yet is created with a Starter subscription,
   * because a signed ticket provisions its user. Subjects of unknown apps are left out.
   */
  async function resolveSubjects(
    subjects: readonly Subject[],
  ): Promise<Map<string, { appId: AppId; userId: UserId }>> {
    const resolved = new Map<string, { appId: AppId; userId: UserId }>()
    const possible = subjects.filter(isPossible)
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

  /**
   * As `resolveSubjects`, with the state of each user. A user of an app that is not active reads as inactive, and is not
   * created.
   */
  async function resolveStates(subjects: readonly Subject[]): Promise<Map<string, UserAccess>> {
    const possible = subjects.filter(isPossible)
    const rows = await store.findSubjectStates(
      pool,
      possible.map((subject) => subject.clientId),
      possible.map((subject) => subject.externalUserId),
    )
    const states = new Map<string, UserAccess>()
    for (const { clientId, externalUserId: external, ...row } of rows) {
      const user =
        row.userId ?? (row.status === 'active' ? await provision(row.appId, external) : null)
      if (user !== null) states.set(authId(clientId, external), { ...row, userId: user })
    }
    return states
  }

  async function provision(app: AppId, external: string): Promise<UserId | null> {
    if (subjectProblem(external) !== null || external.trim() !== external) return null
    const change = { externalUserId: externalUserId(external) }
    const { user, created } = await tx(pool, async (db) => {
      const inserted = await create(db, app, change)
      const existing = inserted ?? (await store.lockUser(db, app, change.externalUserId))
      if (!existing) throw new Error('a user that exists cannot be found')
      return { user: existing, created: inserted !== null }
    })
    if (created) log.info({ appId: app, userId: user.id }, 'user provisioned by signing')
    return user.id
  }

  return {
    upsert,
    update,
    deactivate,
    get,
    getActive,
    lockActive,
    findById,
    findActive,
    list,
    resolveSubjects,
    resolveStates,
  }
}

export type Users = ReturnType<typeof createUsers>

interface Subject {
  readonly clientId: string
  readonly externalUserId: string
}

/** Who a subject is, and whether they may do anything at all. */
export interface UserAccess {
  readonly appId: AppId
  readonly userId: UserId
  readonly status: UserState
  readonly tokensValidAfter: Date | null
}

// Text that cannot be an id belongs to no user, and may hold characters that Postgres refuses.
const isPossible = ({ clientId, externalUserId: external }: Subject): boolean =>
  isClientId(clientId) && subjectProblem(external) === null

const unknownUser = (): DomainError => new DomainError('NOT_FOUND', 'the app has no such user')

/** The user with its new state. Deactivation voids every token issued before; activation makes none valid again. */
function withStatus(user: User, status: UserState | undefined, at: Date): User {
  if (status === undefined || status === user.status) return user
  if (status === 'active') return { ...user, status, deactivatedAt: null }
  // Tokens carry whole seconds, so those of the current second are void too.
  const validAfter = new Date((Math.floor(at.getTime() / 1000) + 1) * 1000)
  return { ...user, status, deactivatedAt: at, tokensValidAfter: validAfter }
}
