import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { type AppId, appId } from './ids.ts'

/**
 * The app of a public client id; null if there is no such app. Includes apps that have ended,
 * because a correction may be due and the books still count.
 */
export async function findApp(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`select app_id from clients where client_id = ${clientId} and kind = 'public'`,
  )
  return row && appId(row.app_id)
}

/** The public client id of an app. Every app has one. */
export async function findClientId(db: Db, app: AppId): Promise<string> {
  const { client_id } = await one<{ client_id: string }>(
    db,
    sql`select client_id from clients where app_id = ${app} and kind = 'public'`,
  )
  return client_id
}

/** The public client ids of apps, by app. */
export async function findClientIds(
  db: Db,
  apps: readonly AppId[],
): Promise<ReadonlyMap<string, string>> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`select app_id, client_id from clients where app_id = any(${apps}::uuid[]) and kind = 'public'`,
  )
  return new Map(rows.map((row) => [row.app_id, row.client_id]))
}
