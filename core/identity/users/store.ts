import {
  type AppId,
  type ExternalUserId,
  type UserId,
  appId,
  externalUserId,
  userId,
} from '../../shared/ids.ts'
import type { Cursor } from '../../shared/cursor.ts'
import { type Db, type Statement, many, maybeOne, one, prepared, sql } from '../../lib/sql.ts'
import type { User, UserState } from '../types.ts'

interface UserRow {
  app_id: string
  id: string
  external_user_id: string
  email: string | null
  status: UserState
  tokens_valid_after: Date | null
  created_at: Date
  updated_at: Date
  deactivated_at: Date | null
}

const fromRow = (row: UserRow): User => ({
  id: userId(row.id),
  appId: appId(row.app_id),
  externalUserId: externalUserId(row.external_user_id),
  email: row.email,
  status: row.status,
  tokensValidAfter: row.tokens_valid_after,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  deactivatedAt: row.deactivated_at,
})

/** A user as stored, with the state of its subscription. */
export interface StoredUser extends User {
  /** False if the user's subscription is missing. */
  readonly isSubscribed: boolean
}

const storedFromRow = (row: UserRow & { is_subscribed: boolean }): StoredUser => ({
  ...fromRow(row),
  isSubscribed: row.is_subscribed,
})

export interface NewUser {
  readonly appId: AppId
  readonly id: UserId
  readonly externalUserId: ExternalUserId
  readonly email: string | null
  readonly at: Date
}

/**
 * Inserts users and returns the new ones. Leaves out users that the app already has: only one of
 * two concurrent calls creates a user. Inserts in the order of external ids, so that two batches
 * with the same users cannot deadlock.
 */
export async function insertUsers(db: Db, users: readonly NewUser[]): Promise<User[]> {
  if (users.length === 0) return []
  const column = <T>(value: (user: NewUser) => T): T[] => users.map(value)
  const rows = await many<UserRow>(
    db,
    prepared('insert-users')`
    insert into end_users (app_id, id, external_user_id, email, status, created_at, updated_at)
    select app_id, id, external_user_id, email, 'active', created_at, created_at
    from unnest(
      ${column((user) => user.appId)}::uuid[], ${column((user) => user.id)}::uuid[],
      ${column((user) => user.externalUserId)}::text[], ${column((user) => user.email)}::text[],
      ${column((user) => user.at.toISOString())}::timestamptz[])
      as u (app_id, id, external_user_id, email, created_at)
    order by app_id, external_user_id
    on conflict (app_id, external_user_id) do nothing
    returning app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at`,
  )
  return rows.map(fromRow)
}

/** Finds users by (app, external id). A pair without a user has no row in the result. */
export async function findUsers(
  db: Db,
  pairs: readonly { readonly app: AppId; readonly external: string }[],
): Promise<StoredUser[]> {
  const rows = await many<UserRow & { is_subscribed: boolean }>(
    db,
    prepared('users-by-external-id')`
    with found as materialized (
      select u.app_id, u.id, u.external_user_id, u.email, u.status, u.tokens_valid_after, u.created_at, u.updated_at,
             u.deactivated_at
      from unnest(${pairs.map(({ app }) => app)}::uuid[], ${pairs.map(({ external }) => external)}::text[])
      as names (app_id, external_user_id)
      join end_users u on u.app_id = names.app_id and u.external_user_id = names.external_user_id
    ), subscribed as materialized (
      select s.user_id
      from found
      join subscriptions s on s.app_id = found.app_id and s.user_id = found.id
    )
    select found.*, id in (select user_id from subscribed) as is_subscribed
    from found`,
  )
  return rows.map(storedFromRow)
}

export interface OwnUserRow {
  id: string
  app_id: string
  client_id: string
  app_name: string
  status: UserState
  created_at: Date
  deactivated_at: Date | null
}

/**
 * Lists the users with this external id, one for each active app that has one, in order of
 * creation. Returns up to `limit + 1` rows; the extra row shows that there are more. Looks up the
 * user in each app, because no index finds an external id alone.
 */
export const listUsersByExternal = (
  db: Db,
  {
    externalUserId: external,
    after,
    limit,
  }: {
    readonly externalUserId: ExternalUserId
    readonly after: Cursor | null
    readonly limit: number
  },
): Promise<OwnUserRow[]> =>
  many<OwnUserRow>(
    db,
    sql`
    select u.id, a.id as app_id, c.client_id, a.name as app_name, u.status, u.created_at, u.deactivated_at
    from apps a
    join end_users u on u.app_id = a.id and u.external_user_id = ${external}
    join clients c on c.app_id = a.id and c.kind = 'public'
    where a.status = 'active'
      and (${after?.id ?? null}::uuid is null
           or (u.created_at, u.id) > (${after?.createdAt ?? null}::timestamptz, ${after?.id ?? null}::uuid))
    order by u.created_at, u.id
    limit ${limit + 1}`,
  )

/** Finds a user by our id. A user of an inactive app is returned as inactive. */
export async function findUserById(db: Db, app: AppId, id: UserId): Promise<User | null> {
  const [user = null] = await findUsersById(db, [{ app, id }])
  return user
}

/** Same as `findUserById`, for pairs of app and id. The result is unordered. */
export async function findUsersById(
  db: Db,
  pairs: readonly { readonly app: AppId; readonly id: UserId }[],
): Promise<User[]> {
  const rows = await many<UserRow>(
    db,
    prepared('users-by-id')`
    select u.app_id, u.id, u.external_user_id, u.email, case a.status when 'active' then u.status else 'inactive' end as status,
           u.tokens_valid_after, u.created_at, u.updated_at, u.deactivated_at
    from unnest(${pairs.map(({ app }) => app)}::uuid[], ${pairs.map(({ id }) => id)}::uuid[]) as names (app_id, id)
    join end_users u on u.app_id = names.app_id and u.id = names.id
    join apps a on a.id = u.app_id`,
  )
  return rows.map(fromRow)
}

/** Finds a user by external id and locks the row until the transaction ends. */
export async function lockUser(db: Db, app: AppId, external: string): Promise<User | null> {
  const row = await maybeOne<UserRow>(
    db,
    sql`
    select app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at
    from end_users
    where app_id = ${app} and external_user_id = ${external}
    for no key update`,
  )
  return row && fromRow(row)
}

/**
 * Locks users until the transaction ends, in the order of their ids, so that two callers cannot
 * deadlock.
 */
export async function lockUsers(
  db: Db,
  users: readonly { appId: AppId; id: UserId }[],
): Promise<User[]> {
  const rows = await many<UserRow>(
    db,
    prepared('lock-users')`
    select u.app_id, u.id, u.external_user_id, u.email, u.status, u.tokens_valid_after, u.created_at, u.updated_at,
           u.deactivated_at
    from (select distinct app_id, id
          from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.id)}::uuid[]) as w (app_id, id)) w
    join end_users u on u.app_id = w.app_id and u.id = w.id
    order by u.id
    for no key update of u`,
  )
  return rows.map(fromRow)
}

export async function updateUser(db: Db, user: User): Promise<StoredUser> {
  return storedFromRow(
    await one<UserRow & { is_subscribed: boolean }>(
      db,
      sql`
    with updated as (
      update end_users
      set email = ${user.email}, status = ${user.status}, tokens_valid_after = ${user.tokensValidAfter},
          deactivated_at = ${user.deactivatedAt}, updated_at = ${user.updatedAt}
      where app_id = ${user.appId} and id = ${user.id}
      returning app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at
    )
    select updated.*,
           exists (select 1 from subscriptions where app_id = ${user.appId} and user_id = ${user.id}) as is_subscribed
    from updated`,
    ),
  )
}

export interface UserFilter {
  readonly appId: AppId
  readonly status: UserState | null
  readonly externalUserId: string | null
  /** The beginning of the external id or, in small letters, of the e-mail address. */
  readonly startsWith: string | null
  readonly after: Cursor | null
  readonly limit: number
}

/** Returns the pattern of texts that begin with `text`, whose own wildcards it escapes. */
const beginsWith = (text: string): string => `${text.replace(/[\\%_]/g, '\\$&')}%`

/** Returns the statement of `listUsers`. */
export function userListStatement(filter: UserFilter): Statement {
  const id = filter.startsWith === null ? null : beginsWith(filter.startsWith)
  const email = filter.startsWith === null ? null : beginsWith(filter.startsWith.toLowerCase())
  return sql`
    select app_id, id, external_user_id, email, status, tokens_valid_after, created_at, updated_at, deactivated_at
    from end_users
    where app_id = ${filter.appId}
      and (${filter.status}::text is null or status = ${filter.status})
      and (${filter.externalUserId}::text is null or external_user_id = ${filter.externalUserId})
      and (${id}::text is null or external_user_id like ${id} or email like ${email})
      and (${filter.after?.id ?? null}::uuid is null
           or (created_at, id) > (${filter.after?.createdAt ?? null}::timestamptz, ${filter.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${filter.limit + 1}`
}

/**
 * Lists users in order of creation. Returns up to `limit + 1` rows; the extra row shows that there
 * are more.
 */
export async function listUsers(db: Db, filter: UserFilter): Promise<User[]> {
  const rows = await many<UserRow>(db, userListStatement(filter))
  return rows.map(fromRow)
}

/** A user by its external id and the app's client id. */
export interface Subject {
  readonly clientId: string
  readonly externalUserId: string
}

export interface SubjectState extends Subject {
  readonly appId: AppId
  /** Null if the app does not have the user yet. */
  readonly userId: UserId | null
  /** False if the subscription is missing. */
  readonly isSubscribed: boolean
  readonly status: UserState
  readonly tokensValidAfter: Date | null
}

/**
 * Same as `findSubjects`, with the state of each user. A user of an inactive app is returned as
 * inactive.
 */
export async function findSubjectStates(
  db: Db,
  subjects: readonly Subject[],
): Promise<SubjectState[]> {
  const rows = await many<{
    client_id: string
    external_user_id: string
    app_id: string
    user_id: string | null
    is_subscribed: boolean
    status: UserState
    tokens_valid_after: Date | null
  }>(
    db,
    prepared('subject-states')`
    with found as materialized (
      select c.client_id, names.external_user_id, c.app_id, u.id as user_id, u.tokens_valid_after,
             case a.status when 'active' then coalesce(u.status, 'active') else 'inactive' end as status
      from unnest(${subjects.map(({ clientId }) => clientId)}::text[], ${subjects.map((subject) => subject.externalUserId)}::text[])
      as names (client_id, external_user_id)
    join clients c on c.client_id = names.client_id and c.kind = 'public'
    join apps a on a.id = c.app_id
      left join end_users u on u.app_id = c.app_id and u.external_user_id = names.external_user_id
    ), subscribed as materialized (
      select s.user_id
      from found
      join subscriptions s on s.app_id = found.app_id and s.user_id = found.user_id
    )
    select found.*, coalesce(user_id in (select user_id from subscribed), false) as is_subscribed
    from found`,
  )
  return rows.map((row) => ({
    clientId: row.client_id,
    externalUserId: row.external_user_id,
    appId: appId(row.app_id),
    userId: row.user_id === null ? null : userId(row.user_id),
    isSubscribed: row.is_subscribed,
    status: row.status,
    tokensValidAfter: row.tokens_valid_after,
  }))
}

/**
 * Finds the apps of (client id, external id) pairs, and their users if they exist. Leaves out
 * unknown clients.
 */
export async function findSubjects(db: Db, subjects: readonly Subject[]) {
  return many<{
    client_id: string
    app_id: string
    external_user_id: string
    user_id: string | null
    is_subscribed: boolean
  }>(
    db,
    sql`
    with found as materialized (
      select c.client_id, c.app_id, names.external_user_id, u.id as user_id
      from unnest(${subjects.map(({ clientId }) => clientId)}::text[], ${subjects.map((subject) => subject.externalUserId)}::text[])
        as names (client_id, external_user_id)
      join clients c on c.client_id = names.client_id and c.kind = 'public'
      left join end_users u on u.app_id = c.app_id and u.external_user_id = names.external_user_id
    ), subscribed as materialized (
      select s.user_id
      from found
      join subscriptions s on s.app_id = found.app_id and s.user_id = found.user_id
    )
    select found.*, coalesce(user_id in (select user_id from subscribed), false) as is_subscribed
    from found`,
  )
}
