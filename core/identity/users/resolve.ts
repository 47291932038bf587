import { type NewUser, type UserCreation, type UsersDeps, identifyUser } from './create.ts'
import type { UserFinder } from './find.ts'
import { DomainError, type Reason } from '../../../proto/errors.ts'
import { createBatchWriter } from '../../shared/batch-writer.ts'
import {
  type AppId,
  type UserId,
  authId,
  externalUserId,
  isClientId,
  newUserProblem,
  subjectProblem,
} from '../../shared/ids.ts'
import type { Db } from '../../lib/sql.ts'
import * as store from './store.ts'
import type { User, UserState } from '../types.ts'

interface NewProvision extends NewUser {
  /** Whether the gate must allow the user. */
  readonly isGated: boolean
}

interface Provisioned {
  readonly user: User
  readonly created: boolean
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

/** Resolves names in tickets and tokens to users, and creates missing users. */
export function createUserResolver({
  pool,
  log,
  ...others
}: UsersDeps & UserCreation & UserFinder) {
  const { createAll, requireCost, subscribeLost, findByExternal } = others
  const provisionInBatch = createBatchWriter<NewProvision, Provisioned>(pool, provisionAll)

  /**
   * Returns users by auth id. Creates a missing user with a Starter subscription: the ticket is
   * already signed, so the gate does not apply. Leaves out unknown apps.
   */
  const resolveSubjects = (subjects: readonly store.Subject[]): Promise<Map<string, KnownUser>> =>
    usersOf(subjects, provision)

  /**
   * Same as `resolveSubjects`, but before anything was signed: throws the gate's reason when the
   * gate refuses a new user.
   */
  const admitSubjects = (subjects: readonly store.Subject[]): Promise<Map<string, KnownUser>> =>
    usersOf(subjects, admit)

  /**
   * Same as `admitSubjects`, for names chosen by other systems: creates no user with a name that
   * integrators may not create.
   */
  const admitForeignSubjects = (
    subjects: readonly store.Subject[],
  ): Promise<Map<string, KnownUser>> => usersOf(subjects, admitForeign)

  async function usersOf(
    subjects: readonly store.Subject[],
    create: Provision,
  ): Promise<Map<string, KnownUser>> {
    const resolved = new Map<string, KnownUser>()
    const rows = await store.findSubjects(pool, subjects.filter(isPossible))
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
  const resolveStates = (subjects: readonly store.Subject[]): Promise<Map<string, UserAccess>> =>
    statesOf(subjects, provision)

  /**
   * Same as `resolveStates`, but before anything was signed. New names follow
   * `admitForeignSubjects`; `denials` holds the gate's reasons for refused users.
   */
  async function admitStates(subjects: readonly store.Subject[]) {
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
    subjects: readonly store.Subject[],
    create: Provision,
  ): Promise<Map<string, UserAccess>> {
    const rows = await store.findSubjectStates(pool, subjects.filter(isPossible))
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
    const distinct = new Map(requests.map((request) => [identifyUser(request), request]))
    const created = await createAll(db, [...distinct.values()])
    const others = requests.filter((request) => !created.has(identifyUser(request)))
    const existing = await store.findUsers(
      db,
      others.map(({ app, change }) => ({ app, external: change.externalUserId })),
    )
    const known = new Map(existing.map((user) => [`${user.appId} ${user.externalUserId}`, user]))
    await subscribeLost(db, existing)
    const ungated = new Set(requests.filter(({ isGated }) => !isGated).map(identifyUser))
    await requireCost(
      db,
      [...created].flatMap(([name, user]) => (ungated.has(name) ? [] : [user])),
    )
    return requests.map((request) => {
      const name = identifyUser(request)
      const user = created.get(name) ?? known.get(name)
      if (!user) throw new Error('a user that exists cannot be found')
      return { user, created: created.has(name) }
    })
  }

  return { resolveSubjects, admitSubjects, admitForeignSubjects, resolveStates, admitStates }
}

// An invalid id belongs to no user, and may contain characters that Postgres rejects.
const isPossible = ({ clientId, externalUserId: external }: store.Subject): boolean =>
  isClientId(clientId) && subjectProblem(external) === null
