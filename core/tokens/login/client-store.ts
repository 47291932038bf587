import type { User } from '../../identity/types.ts'
import { appId, externalUserId, userId } from '../../platform/ids.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'

export interface PublicClient {
  app_id: string
  client_id: string
  scopes: string[]
  grant_types: string[]
  name: string
  color: string
  dmz_url: string
}

/** A public client with what its app shows to people. */
export const findPublicClient = (db: Db, clientId: string): Promise<PublicClient | null> =>
  maybeOne<PublicClient>(
    db,
    sql`
    select c.app_id, c.client_id, c.scopes, c.grant_types, a.name, a.color, a.dmz_url
    from clients c
    join apps a on a.id = c.app_id and a.status = 'active'
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )

export const findAccount = (db: Db, id: string): Promise<{ email: string; name: string } | null> =>
  maybeOne<{ email: string; name: string }>(
    db,
    sql`select email, name from accounts where id = ${id}`,
  )

export type TokenUser = Pick<User, 'id' | 'appId' | 'externalUserId' | 'tokensValidAfter'>

/** The user while active; null otherwise. Reads inside the caller's transaction. */
export async function findActiveUser(
  db: Db,
  user: { appId: string; id: string },
): Promise<TokenUser | null> {
  const row = await maybeOne<{
    app_id: string
    id: string
    external_user_id: string
    tokens_valid_after: Date | null
  }>(
    db,
    sql`
    select u.app_id, u.id, u.external_user_id, u.tokens_valid_after
    from end_users u
    join apps a on a.id = u.app_id and a.status = 'active'
    where u.app_id = ${user.appId} and u.id = ${user.id} and u.status = 'active'`,
  )
  return (
    row && {
      appId: appId(row.app_id),
      id: userId(row.id),
      externalUserId: externalUserId(row.external_user_id),
      tokensValidAfter: row.tokens_valid_after,
    }
  )
}
