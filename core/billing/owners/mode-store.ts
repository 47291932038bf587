import { type Db, many, sql } from '../../lib/sql.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'

/** Writes billing_mode_changes. */

/** Inserts a change from owner_rollup to merchant, which is about to be made. */
export async function insertModeChange(
  db: Db,
  change: { readonly appId: AppId; readonly id: string; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    insert into billing_mode_changes (app_id, id, requested_at)
    values (${change.appId}, ${change.id}, ${change.at})`)
}

/** Returns up to `limit` users of an app with debt, in id order. */
export async function findDebtors(db: Db, app: AppId, limit: number): Promise<UserKey[]> {
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select app_id, user_id
    from balances
    where app_id = ${app} and overage_attos > collected_attos
    order by user_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}
