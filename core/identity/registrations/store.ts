import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { AppId, RegisteredClientId } from '../../shared/ids.ts'
import type { ClientMetadata } from './metadata.ts'

export interface NewInitialToken {
  readonly id: string
  readonly appId: AppId
  readonly label: string
  readonly hash: Buffer
  readonly pepperId: string
  readonly usesMax: number
  readonly at: Date
  readonly expiresAt: Date
}

export async function insertInitialToken(db: Db, token: NewInitialToken): Promise<void> {
  await db.query(sql`
    insert into registration_tokens (id, app_id, label, token_hash, pepper_id, uses_max, created_at, expires_at)
    values (${token.id}, ${token.appId}, ${token.label}, ${token.hash}, ${token.pepperId}, ${token.usesMax}, ${token.at},
            ${token.expiresAt})`)
}

export interface InitialTokenRow {
  readonly id: string
  readonly label: string
  readonly uses: number
  readonly uses_max: number
  readonly created_at: Date
  readonly expires_at: Date
  readonly revoked_at: Date | null
}

/** Lists the newest 1,000 initial access tokens of an app, oldest first. */
export const listInitialTokens = (db: Db, app: AppId): Promise<InitialTokenRow[]> =>
  many<InitialTokenRow>(
    db,
    sql`
    select id, label, uses, uses_max, created_at, expires_at, revoked_at
    from (
      select id, label, uses, uses_max, created_at, expires_at, revoked_at
      from registration_tokens
      where app_id = ${app}
      order by created_at desc, id desc
      limit 1000) newest
    order by created_at, id`,
  )

/**
 * Revokes the token; the first revocation time stays. Returns false when the app has no such token.
 */
export async function revokeInitialToken(
  db: Db,
  { app, id, at }: { app: AppId; id: string; at: Date },
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    update registration_tokens set revoked_at = coalesce(revoked_at, ${at})
    where app_id = ${app} and id = ${id}
    returning 1`,
  )
  return row !== null
}

/** Counts one more use of a valid token and locks its row. Returns null for an invalid token. */
export const useInitialToken = (
  db: Db,
  hashes: readonly Buffer[],
  at: Date,
): Promise<{ id: string; app_id: AppId; scopes: string[] } | null> =>
  maybeOne<{ id: string; app_id: AppId; scopes: string[] }>(
    db,
    sql`
    update registration_tokens t set uses = uses + 1
    from clients c, apps a
    where t.token_hash = any(${hashes}::bytea[]) and t.revoked_at is null and t.expires_at > ${at} and t.uses < t.uses_max
      and c.app_id = t.app_id and c.kind = 'public' and a.id = t.app_id and a.status = 'active'
    returning t.id, t.app_id, c.scopes`,
  )

/**
 * Call with the app's row locked, so that two concurrent registrations cannot both take the last
 * place.
 */
export async function countRegisteredClients(db: Db, app: AppId): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`select count(*)::int as count from registered_clients where app_id = ${app}`,
  )
  return count
}

export interface NewRegistration {
  readonly clientId: RegisteredClientId
  readonly appId: AppId
  readonly initialTokenId: string
  readonly hash: Buffer
  readonly pepperId: string
  readonly metadata: ClientMetadata
  readonly at: Date
}

export async function insertRegistration(db: Db, client: NewRegistration): Promise<void> {
  const { name, clientUri, softwareId, softwareVersion } = client.metadata
  await db.query(sql`
    insert into registered_clients (client_id, app_id, initial_token_id, token_hash, pepper_id, name, client_uri,
                                    software_id, software_version, created_at, updated_at)
    values (${client.clientId}, ${client.appId}, ${client.initialTokenId}, ${client.hash}, ${client.pepperId}, ${name},
            ${clientUri}, ${softwareId}, ${softwareVersion}, ${client.at}, ${client.at})`)
}

export async function updateRegistration(
  db: Db,
  clientId: RegisteredClientId,
  { metadata, at }: { metadata: ClientMetadata; at: Date },
): Promise<void> {
  await db.query(sql`
    update registered_clients
    set name = ${metadata.name}, client_uri = ${metadata.clientUri}, software_id = ${metadata.softwareId},
        software_version = ${metadata.softwareVersion}, updated_at = ${at}
    where client_id = ${clientId}`)
}

interface RegistrationRow {
  app_id: AppId
  token_hash: Buffer
  pepper_id: string
  name: string
  client_uri: string | null
  software_id: string | null
  software_version: string | null
  created_at: Date
  scopes: string[]
  grant_types: string[]
  redirect_uris: string[]
  public_scopes: string[]
}

const registrationText = `
  select r.app_id, r.token_hash, r.pepper_id, r.name, r.client_uri, r.software_id, r.software_version, r.created_at,
         c.scopes, c.grant_types, c.redirect_uris, p.scopes as public_scopes
  from registered_clients r
  join clients c on c.client_id = r.client_id
  join clients p on p.app_id = r.app_id and p.kind = 'public'
  join apps a on a.id = r.app_id and a.status = 'active'
  where r.client_id = $1`

/** Finds a registration with its client's settings. */
export async function findRegistration(db: Db, clientId: RegisteredClientId) {
  const row = await maybeOne<RegistrationRow>(db, { text: registrationText, values: [clientId] })
  return row && fromRow(row)
}

/** Same as `findRegistration`, but locks both rows until the transaction ends. */
export async function lockRegistration(db: Db, clientId: RegisteredClientId) {
  const text = `${registrationText} for no key update of r, c`
  const row = await maybeOne<RegistrationRow>(db, { text, values: [clientId] })
  return row && fromRow(row)
}

const fromRow = (row: RegistrationRow) => ({
  appId: row.app_id,
  hash: row.token_hash,
  pepperId: row.pepper_id,
  createdAt: row.created_at,
  appScopes: row.public_scopes,
  /** Scopes in the client's row. The app may have fewer by now. */
  storedScopes: row.scopes,
  metadata: {
    redirectUris: row.redirect_uris,
    grantTypes: row.grant_types,
    scopes: row.scopes.filter((scope) => row.public_scopes.includes(scope)),
    name: row.name,
    clientUri: row.client_uri,
    softwareId: row.software_id,
    softwareVersion: row.software_version,
  } satisfies ClientMetadata,
})

/**
 * Lists clients registered before `before` and unused since: no consent was given and no login
 * refreshed. Oldest first.
 */
export const listUnusedClients = (
  db: Db,
  before: Date,
  limit: number,
): Promise<{ client_id: RegisteredClientId; app_id: AppId }[]> =>
  many<{ client_id: RegisteredClientId; app_id: AppId }>(
    db,
    sql`
    select r.client_id, r.app_id
    from registered_clients r
    where r.created_at < ${before}
      and not exists (select from consents c where c.client_id = r.client_id and c.updated_at >= ${before})
      and not exists (
        select from refresh_tokens t
        where t.client_id = r.client_id and t.client_id like 'dyn\\_%' and t.created_at >= ${before})
    order by r.created_at
    limit ${limit}`,
  )
