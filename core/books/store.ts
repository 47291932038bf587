import { findApp as findAppId } from '../shared/clients.ts'
import { type AppId, appId } from '../shared/ids.ts'
import { type Db, limitStatements, many, one, sql } from '../lib/sql.ts'
import type { AppRef } from './types.ts'

/** Apps and users in the order of a check, and the snapshot that a check reads. */

interface AppRow {
  app_id: string
  client_id: string
}
const longStatementMs = 900_000

const fromRow = (row: AppRow): AppRef => ({ id: appId(row.app_id), clientId: row.client_id })

/** Returns the app of a public client id in any status: the books of a disabled app still count. */
export async function findApp(db: Db, clientId: string): Promise<AppRef | null> {
  const id = await findAppId(db, clientId)
  return id && { id, clientId }
}

/** Returns a page of all apps, by id. */
export async function appsAfter(db: Db, after: AppId | null, limit: number): Promise<AppRef[]> {
  const rows = await many<AppRow>(
    db,
    sql`
    select app_id, client_id
    from clients
    where kind = 'public' and (${after}::uuid is null or app_id > ${after}::uuid)
    order by app_id
    limit ${limit}`,
  )
  return rows.map(fromRow)
}

export async function countUsers(db: Db, app: AppId): Promise<number> {
  const row = await one<{ count: bigint }>(
    db,
    sql`select count(*) as count from end_users where app_id = ${app}`,
  )
  return Number(row.count)
}

/** Returns the next users of an app, by id. */
export async function usersAfter(
  db: Db,
  { appId: app, after, limit }: { appId: AppId; after: string; limit: number },
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    select id
    from end_users
    where app_id = ${app} and id > ${after}::uuid
    order by id
    limit ${limit}`,
  )
  return rows.map((row) => row.id)
}

/**
 * Makes this transaction a read-only snapshot. Allows statements long enough for a user with many
 * tickets.
 */
export async function beginSnapshot(db: Db): Promise<void> {
  await db.query(sql`set transaction isolation level repeatable read, read only`)
  await holdArchive(db)
}

/**
 * Blocks archiving until the transaction ends. Needed because a truncate removes tickets from every
 * snapshot, even from one taken before the archive was recorded. Must be the first statement of a
 * transaction.
 */
export async function holdArchive(db: Db): Promise<void> {
  await allowLongStatements(db)
  await db.query(sql`lock table tickets in access share mode`)
}

export async function allowLongStatements(db: Db): Promise<void> {
  await limitStatements(db, longStatementMs)
}

/** Returns the starts of months with some tickets only in archives. */
export async function archivedMonths(db: Db, app: AppId): Promise<string[]> {
  const rows = await many<{ month: string }>(
    db,
    sql`
    select distinct to_char(month, 'YYYY-MM-DD') as month
    from ticket_archives
    where app_id = ${app} and tickets > 0
    order by month`,
  )
  return rows.map((row) => `${row.month}T00:00:00Z`)
}
