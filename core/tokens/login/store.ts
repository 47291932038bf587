import {
  type AccountId,
  type AppId,
  type ClientId,
  type RegisteredClientId,
  type UserId,
  appId,
} from '../../shared/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'

interface ConsentOwner {
  readonly clientId: string
  /** Hash of what the person saw of a registered client; null for an app's own client. */
  readonly clientHash: Buffer | null
  readonly accountId: AccountId
}

/** Returns the scopes that the account has consented to for the client in its current version. */
export async function consentedScopes(
  db: Db,
  { clientId, clientHash, accountId }: ConsentOwner,
): Promise<string[]> {
  const row = await maybeOne<{ scopes: string[] }>(
    db,
    sql`
    select scopes from consents
    where client_id = ${clientId} and account_id = ${accountId} and client_hash is not distinct from ${clientHash}`,
  )
  return row?.scopes ?? []
}

/**
 * Adds scopes to the account's consent, or replaces the consent if the client has changed since.
 */
export async function addConsent(
  db: Db,
  consent: ConsentOwner & { scopes: readonly string[]; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into consents (client_id, client_hash, account_id, scopes, updated_at)
    values (${consent.clientId}, ${consent.clientHash}, ${consent.accountId}, ${consent.scopes}, ${consent.at})
    on conflict (client_id, account_id) do update
    set scopes = case
          when consents.client_hash is not distinct from excluded.client_hash
          then array(select distinct unnest(consents.scopes || excluded.scopes) order by 1)
          else excluded.scopes
        end,
        client_hash = excluded.client_hash, updated_at = excluded.updated_at`)
}

export interface NewCode {
  readonly codeHash: Buffer
  readonly clientId: ClientId | RegisteredClientId
  readonly accountId: AccountId
  readonly userId: UserId
  readonly familyId: string
  readonly redirectUri: string
  readonly scope: string
  readonly nonce: string | null
  readonly codeChallenge: string
  readonly authTime: Date
  /** Ids that the login descends from. */
  readonly grants: readonly string[]
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertCode(db: Db, code: NewCode): Promise<void> {
  await db.query(sql`
    insert into authorization_codes (code_hash, client_id, account_id, user_id, family_id, redirect_uri, scope, nonce,
                                     code_challenge, auth_time, grants, created_at, expires_at)
    values (${code.codeHash}, ${code.clientId}, ${code.accountId}, ${code.userId}, ${code.familyId}, ${code.redirectUri},
            ${code.scope}, ${code.nonce}, ${code.codeChallenge}, ${code.authTime}, ${code.grants}, ${code.at},
            ${code.expiresAt})`)
}

export interface CodeRow {
  client_id: string
  account_id: string
  user_id: string
  family_id: string
  redirect_uri: string
  scope: string
  nonce: string | null
  code_challenge: string
  auth_time: Date
  grants: string[]
  expires_at: Date
  consumed_at: Date | null
}

/** Finds an authorization code and locks its row until the transaction ends. */
export const lockCode = (db: Db, hash: Buffer): Promise<CodeRow | null> =>
  maybeOne<CodeRow>(
    db,
    sql`
    select client_id, account_id, user_id, family_id, redirect_uri, scope, nonce, code_challenge, auth_time,
           case when grants = '{}' then array[account_id::text] else grants end as grants, expires_at, consumed_at
    from authorization_codes
    where code_hash = ${hash}
    for update`,
  )

export async function consumeCode(db: Db, hash: Buffer, at: Date): Promise<void> {
  await db.query(
    sql`update authorization_codes set consumed_at = ${at} where code_hash = ${hash} and consumed_at is null`,
  )
}

/**
 * Deletes at most `limit` codes that expired before `before`; returns their number. A second use of
 * a code is detected until then.
 */
export async function deleteExpiredCodes(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`delete from authorization_codes where code_hash in
    (select code_hash from authorization_codes where expires_at < ${before} limit ${limit})`)
  return rowCount ?? 0
}

export interface NewFamily {
  readonly id: string
  readonly appId: AppId
  readonly userId: UserId
  readonly grants: readonly string[]
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertFamily(db: Db, family: NewFamily): Promise<void> {
  await db.query(sql`
    insert into token_families (id, app_id, user_id, grants, created_at, expires_at)
    values (${family.id}, ${family.appId}, ${family.userId}, ${family.grants}, ${family.at}, ${family.expiresAt})`)
}

/** Ends a login. Returns its app; null if the login is missing or has already ended. */
export async function endFamily(db: Db, id: string, at: Date): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`
    update token_families set ended_at = ${at} where id = ${id} and ended_at is null
    returning app_id`,
  )
  return row && appId(row.app_id)
}

export interface LoginRow {
  id: string
  client_id: string | null
  scope: string | null
  created_at: Date
  expires_at: Date
  last_used_at: Date
}

/**
 * Lists a user's logins whose tokens may still be valid, newest first: with a refresh token, or
 * begun after `since`. Leaves out logins that ended with something that they descend from.
 */
export const listFamilies = (
  db: Db,
  user: { readonly appId: AppId; readonly userId: UserId },
  { at, since, limit }: { readonly at: Date; readonly since: Date; readonly limit: number },
): Promise<LoginRow[]> =>
  many<LoginRow>(
    db,
    sql`
    select f.id, r.client_id, r.scope, f.created_at, f.expires_at, coalesce(r.created_at, f.created_at) as last_used_at
    from token_families f
    left join refresh_tokens r on r.family_id = f.id and r.rotated_at is null
    where f.app_id = ${user.appId} and f.user_id = ${user.userId} and f.ended_at is null and f.expires_at > ${at}
      and (r.family_id is not null or f.created_at > ${since})
      and ended_grants(f.grants || f.id::text, f.created_at) = '{}'
    order by f.created_at desc, f.id
    limit ${limit}`,
  )

/** Whether the login is this user's and has not ended. Locks its row until the transaction ends. */
export async function lockFamily(
  db: Db,
  login: { readonly appId: AppId; readonly userId: UserId; readonly id: string },
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    select id from token_families
    where id = ${login.id} and app_id = ${login.appId} and user_id = ${login.userId} and ended_at is null
    for update`,
  )
  return row !== null
}

/** Ends all logins of a deactivated user. */
export async function endFamiliesOfUser(
  db: Db,
  user: { appId: AppId; id: UserId },
  at: Date,
): Promise<void> {
  await db.query(sql`
    update token_families set ended_at = ${at} where app_id = ${user.appId} and user_id = ${user.id} and ended_at is null`)
}

/** Ends all logins of an end user to an app. Returns their ids. */
export async function endFamilies(
  db: Db,
  { appId, externalUserId }: { appId: AppId; externalUserId: string },
  at: Date,
): Promise<string[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    update token_families f set ended_at = ${at}
    from end_users u
    where u.app_id = ${appId} and u.external_user_id = ${externalUserId}
      and f.app_id = u.app_id and f.user_id = u.id and f.ended_at is null
    returning f.id`,
  )
  return rows.map(({ id }) => id)
}

/** Ends all logins of a deleted app. */
export async function endFamiliesOfApp(db: Db, app: AppId, at: Date): Promise<void> {
  await db.query(
    sql`update token_families set ended_at = ${at} where app_id = ${app} and ended_at is null`,
  )
}

/**
 * Deletes at most `limit` logins that expired before `before`, with their refresh tokens; returns
 * their number.
 */
export async function deleteExpiredFamilies(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`delete from token_families where id in
    (select id from token_families where expires_at < ${before} limit ${limit})`)
  return rowCount ?? 0
}

export interface NewRefreshToken {
  readonly hash: Buffer
  readonly familyId: string
  readonly clientId: string
  readonly accountId: string
  readonly scope: string
  readonly authTime: Date
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertRefreshToken(db: Db, token: NewRefreshToken): Promise<void> {
  await db.query(sql`
    insert into refresh_tokens (token_hash, family_id, client_id, account_id, scope, auth_time, created_at, expires_at)
    values (${token.hash}, ${token.familyId}, ${token.clientId}, ${token.accountId}, ${token.scope}, ${token.authTime},
            ${token.at}, ${token.expiresAt})`)
}

export interface RefreshTokenRow {
  family_id: string
  client_id: string
  account_id: string
  scope: string
  auth_time: Date
  created_at: Date
  expires_at: Date
  rotated_at: Date | null
  app_id: string
  user_id: string
  /** Ids that the login descends from, followed by its start time. */
  grants: string[]
  begun_at: Date
  ended_at: Date | null
}

/** Finds a refresh token with its login and locks both rows until the transaction ends. */
export const lockRefreshToken = (db: Db, hash: Buffer): Promise<RefreshTokenRow | null> =>
  maybeOne<RefreshTokenRow>(
    db,
    sql`
    select r.family_id, r.client_id, r.account_id, r.scope, r.auth_time, r.created_at, r.expires_at, r.rotated_at,
           f.app_id, f.user_id, f.grants, f.created_at as begun_at, f.ended_at
    from refresh_tokens r
    join token_families f on f.id = r.family_id
    where r.token_hash = ${hash}
    for update`,
  )

export const findRefreshToken = (db: Db, hash: Buffer): Promise<RefreshTokenRow | null> =>
  maybeOne<RefreshTokenRow>(
    db,
    sql`
    select r.family_id, r.client_id, r.account_id, r.scope, r.auth_time, r.created_at, r.expires_at, r.rotated_at,
           f.app_id, f.user_id, f.grants, f.created_at as begun_at, f.ended_at
    from refresh_tokens r
    join token_families f on f.id = r.family_id
    where r.token_hash = ${hash}`,
  )

export async function rotateRefreshToken(db: Db, hash: Buffer, at: Date): Promise<void> {
  await db.query(
    sql`update refresh_tokens set rotated_at = ${at} where token_hash = ${hash} and rotated_at is null`,
  )
}
