import { uuids } from '../../../lib/copy-sql.ts'
import { type Db, many, sql } from '../../../lib/sql.ts'
import {
  type AppId,
  type UserId,
  type UserKey,
  appId,
  ownerAccountPrefix,
  userId,
} from '../../../shared/ids.ts'

/** Reads the leases of users whose apps have an owner. */

export interface LentApp {
  readonly appId: AppId
  /** The public client id. */
  readonly clientId: string
}

/** Returns the apps that these owners pay for and that have leases which were not recalled. */
export async function findLentApps(
  db: Db,
  owners: readonly UserKey[],
  at: Date,
): Promise<LentApp[]> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`
    select p.app_id, c.client_id
    from unnest(${uuids(owners.map((owner) => owner.appId))}::uuid[], ${uuids(owners.map((owner) => owner.userId))}::uuid[])
      as w (app_id, user_id)
    -- Only accounts of owners have an external id that ends in a UUID: offset 0 keeps the cast from the
    -- rows of other users.
    cross join lateral (
      select external_user_id from end_users where app_id = w.app_id and id = w.user_id offset 0) u
    join members m on m.account_id = substr(u.external_user_id, length(${ownerAccountPrefix}) + 1)::uuid
    join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
    join clients c on c.app_id = p.app_id and c.kind = 'public'
    where exists (
      select
      from leases
      where app_id = p.app_id and recalled_at is null and ends_at > ${at})
    order by p.app_id`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), clientId: row.client_id }))
}

/** Returns users of an app with a lease that was not recalled, after a user id and in id order. */
export async function findLentUsers(
  db: Db,
  {
    appId: app,
    after,
    limit,
  }: { readonly appId: AppId; readonly after: UserId | null; readonly limit: number },
  at: Date,
): Promise<UserKey[]> {
  const rows = await many<{ user_id: string }>(
    db,
    sql`
    select distinct user_id
    from leases
    where app_id = ${app} and recalled_at is null and ends_at > ${at}
      and (${after}::uuid is null or user_id > ${after})
    order by user_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: app, userId: userId(row.user_id) }))
}
