import type { UserCreation, UsersDeps } from './create.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { Reply } from '../../shared/batch-writer.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import {
  type AccountId,
  type AppId,
  type ExternalUserId,
  type UserId,
  accountSubject,
  appId,
  newUserProblem,
  subjectProblem,
} from '../../shared/ids.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import * as store from './store.ts'
import type { User, UserState } from '../types.ts'

/** Finds and locks users, and checks the names of new ones. */
export function createUserFinder({ pool, gate, subscribeLost }: UsersDeps & UserCreation) {
  const findByExternal = createBatchLoader(
    async (pairs: readonly { app: AppId; external: string }[]) => {
      const users = await store.findUsers(pool, pairs)
      const byPair = new Map(users.map((user) => [`${user.appId}:${user.externalUserId}`, user]))
      return ({ app, external }) => byPair.get(`${app}:${external}`) ?? null
    },
  )

  const findOne = createBatchLoader(async (pairs: readonly { app: AppId; id: UserId }[]) => {
    const users = await store.findUsersById(pool, pairs)
    const byPair = new Map(users.map((user) => [`${user.appId}:${user.id}`, user]))
    return ({ app, id }) => byPair.get(`${app}:${id}`) ?? null
  })

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

  /**
   * Finds a user by our id. Loads all ids of one event loop turn in one query. A user of an inactive
   * app is returned as inactive.
   */
  const findById = (app: AppId, id: UserId): Promise<User | null> => findOne({ app, id })

  /** Finds a user by our id if user and app are active. Reads inside the transaction `db`. */
  async function findActive(db: Db, app: AppId, id: UserId): Promise<User | null> {
    const user = await store.findUserById(db, app, id)
    return user?.status === 'active' ? user : null
  }

  async function list(filter: {
    app: AppId
    status: UserState | null
    externalUserId: string | null
    startsWith: string | null
    after: Cursor | null
    limit: number
  }) {
    return page(await store.listUsers(pool, { ...filter, appId: filter.app }), filter.limit)
  }

  /** Lists the end users that an account is, one for each app that it has logged in to. */
  async function listOfAccount(
    account: AccountId,
    { after, limit }: { after: Cursor | null; limit: number },
  ) {
    const externalUserId = accountSubject(account)
    const rows = await store.listUsersByExternal(pool, { externalUserId, after, limit })
    return page(
      rows.map((row) => ({ ...row, appId: appId(row.app_id), createdAt: row.created_at })),
      limit,
    )
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
  async function refuseNewSubject(subject: store.Subject): Promise<void> {
    const problem = newUserProblem(subject.externalUserId)
    if (problem === null) return
    const [row] = await store.findSubjects(pool, [subject])
    if (row?.user_id === null) throw new DomainError('REQUEST_INVALID', problem)
  }

  return {
    findByExternal,
    findById,
    get,
    getActive,
    lockActive,
    lockEachActive,
    findActive,
    list,
    listOfAccount,
    refuseNewName,
    refuseNewUser,
    refuseNewSubject,
  }
}

export type UserFinder = ReturnType<typeof createUserFinder>

export const unknownUser = (): DomainError =>
  new DomainError('NOT_FOUND', 'the app has no such user')
