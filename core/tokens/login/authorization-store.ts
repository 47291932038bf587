import type { AccountId, ClientId, UserId } from '../../platform/ids.ts'
import { type Db, maybeOne, sql } from '../../lib/sql.ts'

export interface LoginClient {
  readonly app_id: string
  readonly client_id: string
  readonly app_name: string
  readonly app_color: string
  readonly app_status: string
  readonly scopes: string[]
  readonly grant_types: string[]
  readonly redirect_uris: string[]
  readonly post_logout_redirect_uris: string[]
  readonly initiate_login_uri: string | null
  readonly device_third_party_initiate_login: boolean
}

/** A public client with what people see of its app; null when there is none, or its app was deleted. */
export const findLoginClient = (db: Db, clientId: string): Promise<LoginClient | null> =>
  maybeOne<LoginClient>(
    db,
    sql`
    select c.app_id, c.client_id, a.name as app_name, a.color as app_color, a.status as app_status, c.scopes, c.grant_types,
           c.redirect_uris, c.post_logout_redirect_uris, c.initiate_login_uri, c.device_third_party_initiate_login
    from clients c
    join apps a on a.id = c.app_id
    where c.client_id = ${clientId} and c.kind = 'public' and a.status <> 'deleted'`,
  )

export async function consentedScopes(
  db: Db,
  clientId: string,
  account: AccountId,
): Promise<string[]> {
  const row = await maybeOne<{ scopes: string[] }>(
    db,
    sql`
    select scopes from consents where client_id = ${clientId} and account_id = ${account}`,
  )
  return row?.scopes ?? []
}

/** Adds to what the account has consented to. */
export async function addConsent(
  db: Db,
  consent: { clientId: string; accountId: AccountId; scopes: readonly string[]; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into consents (client_id, account_id, scopes, updated_at)
    values (${consent.clientId}, ${consent.accountId}, ${consent.scopes}, ${consent.at})
    on conflict (client_id, account_id) do update
    set scopes = array(select distinct unnest(consents.scopes || excluded.scopes) order by 1), updated_at = excluded.updated_at`)
}

export interface NewCode {
  readonly codeHash: Buffer
  readonly clientId: ClientId
  readonly accountId: AccountId
  readonly userId: UserId
  readonly familyId: string
  readonly redirectUri: string
  readonly scope: string
  readonly nonce: string | null
  readonly codeChallenge: string
  readonly authTime: Date
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertCode(db: Db, code: NewCode): Promise<void> {
  await db.query(sql`
    insert into authorization_codes (code_hash, client_id, account_id, user_id, family_id, redirect_uri, scope, nonce,
                                     code_challenge, auth_time, created_at, expires_at)
    values (${code.codeHash}, ${code.clientId}, ${code.accountId}, ${code.userId}, ${code.familyId}, ${code.redirectUri},
            ${code.scope}, ${code.nonce}, ${code.codeChallenge}, ${code.authTime}, ${code.at}, ${code.expiresAt})`)
}

/** Forgets codes long after their end; a late second use is still seen until then. */
export async function forgetCodes(db: Db, before: Date): Promise<void> {
  await db.query(sql`delete from authorization_codes where expires_at < ${before}`)
}
