import { type Db, one, sql } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'

/** Reads the users that pay. */

/** Returns the external id of a user, active or not. */
export async function findExternalId(db: Db, { appId: app, userId }: UserKey): Promise<string> {
  const { external_user_id } = await one<{ external_user_id: string }>(
    db,
    sql`select external_user_id from end_users where app_id = ${app} and id = ${userId}`,
  )
  return external_user_id
}
