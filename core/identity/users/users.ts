import { DomainError, type Reason } from '../../../proto/errors.ts'
import { type Actor, type AuditEntry, audit, auditAll } from '../../platform/audit.ts'
import { type Reply, createBatchWriter } from '../../platform/batch-writer.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import {
  type AppId,
  type ExternalUserId,
  type UserId,
  authId,
  externalUserId,
  isClientId,
  isLoginSubject,
  isOwnerSubject,
  newUserId,
  newUserProblem,
  subjectProblem,
} from '../../platform/ids.ts'
import type { Grants } from '../../platform/grants/grants.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import type { EmitCustomers } from '../../metering/backend/emit.ts'
import type { Plans } from '../../plans/service.ts'
import type { Resubscribe } from '../../plans/subscriptions/ports.ts'
import { givesLoginCredit } from '../apps/store.ts'
import * as store from './store.ts'
import type { ActivationGate, CredentialIssuer, User, UserChange, UserState } from '../types.ts'

export interface UsersDeps {
  readonly pool: Pool
  readonly plans: Plans
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly grants: Pick<Grants, 'end'>
  readonly log: Log
  readonly now: Now
  readonly credentialIssuers: readonly CredentialIssuer[]
  /** Absent in processes that get users only from tickets, which the gate does not limit. */
  readonly gate?: ActivationGate | undefined
  /** Queues new users for the metering backend, if there is one. */
  readonly emitCustomers?: EmitCustomers | undefined
}

interface UpsertRequest {
  readonly app: AppId
  readonly change: UserChange
  readonly actor: Actor
}

interface Upserted {
  readonly user: store.StoredUser
  readonly created: boolean
  /** Ids of the credentials that ended with the user; null if the change ended no credentials. */
  readonly revoked: string[] | null
  /** Whether the user newly counts against the app's cap. */
  readonly isActivated: boolean
}

interface UserAction {
  readonly user: User
  readonly actor: Actor
  readonly action: string
}

type NewName = Pick<UpsertRequest, 'app' | 'change'>

interface NewProvision extends NewName {
  /** Whether the gate must allow the user. */
  readonly isGated: boolean
}

interface Provisioned {
  readonly user: User
  readonly created: boolean
}

const nameOf = ({ app, change }: NewName): string => `${app} ${change.externalUserId}`

/** End users of apps: provisioned, changed, deactivated; never deleted. */
export function createUsers({
  pool,
  plans,
  invalidations,
  grants,
  credentialIssuers,
  gate,
  log,
  now,
  emitCustomers,
}: UsersDeps) {
  const upsertInBatch = createBatchWriter<UpsertRequest, Upserted>(pool, upsertAll)
  const provisionInBatch = createBatchWriter<NewProvision, Provisioned>(pool, provisionAll)

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
    const inOrder = requests.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))
    const firsts = new Map(inOrder.toReversed().map((request) => [nameOf(request), request]))
    const created = await createAll(db, [...firsts.values()])
    const upserted = new Map<UpsertRequest, Upserted>()
    for (const request of inOrder) {
      const { app, change } = request
      const user =
        firsts.get(nameOf(request)) === request ? created.get(nameOf(request)) : undefined
      const isDone = user !== undefined && change.status !== 'inactive'
      const result = isDone
        ? { user, revoked: [], isActivated: true }
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
    await requireCost(
      db,
      [...upserted.values()].flatMap(({ user, isActivated }) => (isActivated ? [user] : [])),
    )
    return requests.flatMap((request) => upserted.get(request) ?? [])
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

  /** Changes the user. Throws NOT_FOUND when the app has no such user. */
  async function update(app: AppId, change: UserChange, actor: Actor): Promise<User> {
    const { user, revoked } = await tx(pool, async (db) => {
      const altered = await alter(db, app, change)
      await subscribeLost(db, [altered.user])
      await audit(db, entryOf({ user: altered.user, actor, action: 'app_user_updated' }))
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
      return altered
    })
    await invalidate(user, revoked)
    return user
  }

  /**
   * Throws REQUEST_INVALID for a name that integrators may not create, unless the app has that
   * user: users created by login have such names, too.
   */
  async function refuseNewName(app: AppId, external: ExternalUserId): Promise<void> {
    const problem = newUserProblem(external)
    if (problem !== null && !(await findByExternal({ app, external })))
      throw new DomainError('REQUEST_INVALID', problem)
  }

  /**
   * Call before creating a user elsewhere. Same as `refuseNewName`, and throws the gate's reason
   * when the gate would refuse the new user.
   */
  async function refuseNewUser(app: AppId, external: ExternalUserId): Promise<void> {
    await refuseNewName(app, external)
    if (gate && !(await findByExternal({ app, external }))) await gate.requireRoom(pool, app)
  }

  /** Same as `refuseNewName`, for an app's client id. Does not throw for an unknown app. */
  async function refuseNewSubject({ clientId, externalUserId: external }: Subject): Promise<void> {
    const problem = newUserProblem(external)
    if (problem === null) return
    const [row] = await store.findSubjects(pool, [clientId], [external])
    if (row?.user_id === null) throw new DomainError('REQUEST_INVALID', problem)
  }

  /** Inserts users and returns the new ones by `nameOf`. */
  async function createAll(
    db: Db,
    requests: readonly NewName[],
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
    const customers = users.map(({ id, ...of }) => ({ ...of, userId: id }))
    await emitCustomers?.(db, customers, at)
    return new Map(
      users.map((user) => [
        `${user.appId} ${user.externalUserId}`,
        { ...user, isSubscribed: true },
      ]),
    )
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
    const users = await store.findUsersById(
      db,
      lost.map(({ appId }) => appId),
      lost.map(({ userId }) => userId),
    )
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
    return { user: updated, revoked, isActivated }
  }

  async function endCredentials(db: Db, user: User, at: Date): Promise<string[]> {
    const cause = 'user_deactivated'
    await grants.end(db, [{ id: user.id, cause, at, endsBefore: at }])
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

  /**
   * Returns the user and recreates a missing subscription. Throws NOT_FOUND when the app has no
   * such user.
   */
  async function get(app: AppId, external: string): Promise<User> {
    const problem = subjectProblem(external)
    if (problem) throw new DomainError('REQUEST_INVALID', problem)
    const user = await findByExternal({ app, external: external.trim() })
    if (!user) throw unknownUser()
    if (!user.isSubscribed) await tx(pool, (db) => subscribeLost(db, [user]))
    return user
  }

  /** Finds a user by our id if user and app are active. Reads inside the transaction `db`. */
  async function findActive(db: Db, app: AppId, id: UserId): Promise<User | null> {
    const user = await store.findUserById(db, app, id)
    return user?.status === 'active' ? user : null
  }

  /** Same as `get`, but also throws NOT_FOUND for an inactive user. */
  async function getActive(app: AppId, external: string): Promise<User> {
    const user = await get(app, external)
    if (user.status !== 'active') throw unknownUser()
    return user
  }

  /** Same as `getActive`, but locks the user's row until the transaction ends. */
  async function lockActive(db: Db, app: AppId, external: ExternalUserId): Promise<User> {
    const user = await store.lockUser(db, app, external)
    if (user?.status !== 'active') throw unknownUser()
    return user
  }

  /**
   * Locks users until the transaction ends. The returned function gives a user's current row, or a
   * NOT_FOUND error if the user is inactive.
   */
  async function lockEachActive(
    db: Db,
    users: readonly User[],
  ): Promise<(user: User) => Reply<User>> {
    const locked = await store.lockUsers(db, users)
    const active = new Map(
      locked.filter(({ status }) => status === 'active').map((user) => [user.id, user]),
    )
    return ({ id }) => active.get(id) ?? unknownUser()
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
   * Returns users by auth id. Creates a missing user with a Starter subscription: the ticket is
   * already signed, so the gate does not apply. Leaves out unknown apps.
   */
  const resolveSubjects = (subjects: readonly Subject[]): Promise<Map<string, KnownUser>> =>
    usersOf(subjects, provision)

  /**
   * Same as `resolveSubjects`, but before anything was signed: throws the gate's reason when the
   * gate refuses a new user.
   */
  const admitSubjects = (subjects: readonly Subject[]): Promise<Map<string, KnownUser>> =>
    usersOf(subjects, admit)

  /**
   * Same as `admitSubjects`, for names chosen by other systems: creates no user with a name that
   * integrators may not create.
   */
  const admitForeignSubjects = (subjects: readonly Subject[]): Promise<Map<string, KnownUser>> =>
    usersOf(subjects, admitForeign)

  async function usersOf(
    subjects: readonly Subject[],
    create: Provision,
  ): Promise<Map<string, KnownUser>> {
    const resolved = new Map<string, KnownUser>()
    const possible = subjects.filter(isPossible)
    const rows = await store.findSubjects(
      pool,
      possible.map((subject) => subject.clientId),
      possible.map((subject) => subject.externalUserId),
    )
    // Concurrently, so that new users share transactions.
    await Promise.all(
      rows.map(async ({ client_id, app_id, external_user_id: external, ...row }) => {
        const [app, subject] = [app_id as AppId, authId(client_id, external)]
        const user =
          row.user_id !== null && row.is_subscribed
            ? (row.user_id as UserId)
            : await create(app, external, subject)
        if (user !== null) resolved.set(subject, { appId: app, userId: user })
      }),
    )
    return resolved
  }

  /**
   * Same as `resolveSubjects`, with the state of each user. A user of an inactive app is returned
   * as inactive and never created.
   */
  const resolveStates = (subjects: readonly Subject[]): Promise<Map<string, UserAccess>> =>
    statesOf(subjects, provision)

  /**
   * Same as `resolveStates`, but before anything was signed. New names follow
   * `admitForeignSubjects`; `denials` holds the gate's reasons for refused users.
   */
  async function admitStates(subjects: readonly Subject[]) {
    const denials = new Map<string, Reason>()
    const states = await statesOf(subjects, (app, external, subject) =>
      admitForeign(app, external).catch((error: unknown) => {
        if (!(error instanceof DomainError)) throw error
        denials.set(subject, error.reason)
        return null
      }),
    )
    return { states, denials }
  }

  async function statesOf(
    subjects: readonly Subject[],
    create: Provision,
  ): Promise<Map<string, UserAccess>> {
    const possible = subjects.filter(isPossible)
    const rows = await store.findSubjectStates(
      pool,
      possible.map((subject) => subject.clientId),
      possible.map((subject) => subject.externalUserId),
    )
    const states = new Map<string, UserAccess>()
    await Promise.all(
      rows.map(async ({ clientId, externalUserId: external, ...row }) => {
        const subject = authId(clientId, external)
        const isCreatable = row.status === 'active' && !row.isSubscribed
        const user = isCreatable ? await create(row.appId, external, subject) : row.userId
        if (user !== null) states.set(subject, { ...row, userId: user })
      }),
    )
    return states
  }

  const provision = (app: AppId, external: string): Promise<UserId | null> =>
    getOrCreate(app, external, false)

  const admit = (app: AppId, external: string): Promise<UserId | null> =>
    getOrCreate(app, external, true)

  // An existing user is admitted with any name.
  async function admitForeign(app: AppId, external: string): Promise<UserId | null> {
    const isAllowed =
      newUserProblem(external) === null || (await findByExternal({ app, external })) !== null
    return isAllowed ? admit(app, external) : null
  }

  async function getOrCreate(
    app: AppId,
    external: string,
    isGated: boolean,
  ): Promise<UserId | null> {
    if (subjectProblem(external) !== null || external.trim() !== external) return null
    const change = { externalUserId: externalUserId(external) }
    const { user, created } = await provisionInBatch({ app, change, isGated })
    if (created) log.info({ appId: app, userId: user.id }, 'user provisioned by signing')
    return user.id
  }

  /** Provisions users. Only one of two concurrent calls creates a user. */
  async function provisionAll(db: Db, requests: readonly NewProvision[]): Promise<Provisioned[]> {
    const distinct = new Map(requests.map((request) => [nameOf(request), request]))
    const created = await createAll(db, [...distinct.values()])
    const others = requests.filter((request) => !created.has(nameOf(request)))
    const existing = await store.findUsers(
      db,
      others.map(({ app }) => app),
      others.map(({ change }) => change.externalUserId),
    )
    const known = new Map(existing.map((user) => [`${user.appId} ${user.externalUserId}`, user]))
    await subscribeLost(db, existing)
    const ungated = new Set(requests.filter(({ isGated }) => !isGated).map(nameOf))
    await requireCost(
      db,
      [...created].flatMap(([name, user]) => (ungated.has(name) ? [] : [user])),
    )
    return requests.map((request) => {
      const name = nameOf(request)
      const user = created.get(name) ?? known.get(name)
      if (!user) throw new Error('a user that exists cannot be found')
      return { user, created: created.has(name) }
    })
  }

  return {
    upsert,
    upsertAll,
    update,
    deactivate,
    get,
    getActive,
    lockActive,
    lockEachActive,
    refuseNewName,
    refuseNewUser,
    refuseNewSubject,
    findById: createFindById(pool),
    findActive,
    list,
    resubscribe,
    resolveSubjects,
    admitSubjects,
    admitForeignSubjects,
    resolveStates,
    admitStates,
  }
}

export type Users = ReturnType<typeof createUsers>

/**
 * Finds a user by our id. Loads all ids of one event loop turn in one query. A user of an inactive
 * app is returned as inactive.
 */
function createFindById(pool: Pool): (app: AppId, id: UserId) => Promise<User | null> {
  const find = createBatchLoader(async (pairs: readonly { app: AppId; id: UserId }[]) => {
    const users = await store.findUsersById(
      pool,
      pairs.map(({ app }) => app),
      pairs.map(({ id }) => id),
    )
    const byPair = new Map(users.map((user) => [`${user.appId}:${user.id}`, user]))
    return ({ app, id }) => byPair.get(`${app}:${id}`) ?? null
  })
  return (app, id) => find({ app, id })
}

interface Subject {
  readonly clientId: string
  readonly externalUserId: string
}

interface KnownUser {
  readonly appId: AppId
  readonly userId: UserId
}

/** Creates a subject's missing user or subscription. Returns null for an invalid name. */
type Provision = (app: AppId, external: string, subject: string) => Promise<UserId | null>

/** A subject's user and its state. */
export interface UserAccess {
  readonly appId: AppId
  readonly userId: UserId
  readonly status: UserState
  readonly tokensValidAfter: Date | null
}

// An invalid id belongs to no user, and may contain characters that Postgres rejects.
const isPossible = ({ clientId, externalUserId: external }: Subject): boolean =>
  isClientId(clientId) && subjectProblem(external) === null

const unknownUser = (): DomainError => new DomainError('NOT_FOUND', 'the app has no such user')

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
