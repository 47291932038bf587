import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { AppId, ClientId } from '../../shared/ids.ts'

/** Rules for the tokens that an app trusts. */
export interface TrustRules {
  /** Without a final slash. */
  readonly issuer: string
  /** `aud` must contain at least one of these; empty allows any audience. */
  readonly audiences: readonly string[]
  /**
   * Claim with the client that the token was issued to, which must be in `clientValues`; null skips
   * the check.
   */
  readonly clientClaim: string | null
  readonly clientValues: readonly string[]
  readonly userClaim: string
  /** Prefix of the user claim in external ids. */
  readonly userPrefix: string
  readonly jwksUri: string | null
}

export interface TrustedIssuer extends TrustRules {
  readonly appId: AppId
  readonly id: string
  /** Incremented on every change. */
  readonly generation: number
  readonly createdAt: Date
  readonly updatedAt: Date
}

/** A trusted issuer with its app's public client. */
export interface AppIssuer extends TrustedIssuer {
  readonly clientId: ClientId
}

const columns = `t.app_id as "appId", t.id, t.generation, t.issuer, t.audiences, t.client_claim as "clientClaim",
  t.client_values as "clientValues", t.user_claim as "userClaim", t.user_prefix as "userPrefix", t.jwks_uri as "jwksUri",
  t.created_at as "createdAt", t.updated_at as "updatedAt"`

export const listIssuers = (db: Db, app: AppId): Promise<TrustedIssuer[]> =>
  many<TrustedIssuer>(db, {
    text: `select ${columns} from trusted_issuers t where t.app_id = $1 order by t.created_at, t.id`,
    values: [app],
  })

export const findIssuer = (db: Db, app: AppId, id: string): Promise<TrustedIssuer | null> =>
  maybeOne<TrustedIssuer>(db, {
    text: `select ${columns} from trusted_issuers t where t.app_id = $1 and t.id = $2`,
    values: [app, id],
  })

/** Lists the trust of all apps in an issuer or, with `clientId`, of one app. */
export const listByIssuer = (
  db: Db,
  issuer: string,
  clientId: string | null,
): Promise<AppIssuer[]> =>
  many<AppIssuer>(db, {
    name: 'trusted-issuers',
    text: `
      select ${columns}, c.client_id as "clientId"
      from trusted_issuers t
      join apps a on a.id = t.app_id and a.status = 'active'
      join clients c on c.app_id = t.app_id and c.kind = 'public'
      where t.issuer = $1 and ($2::text is null or c.client_id = $2)
      order by t.created_at, t.id`,
    values: [issuer, clientId],
  })

/**
 * Takes the issuer's advisory lock until commit, so that no other transaction changes the trust in
 * it.
 */
export async function lockIssuer(db: Db, issuer: string): Promise<void> {
  await db.query(
    sql`select pg_advisory_xact_lock(hashtextextended(${`trusted issuer ${issuer}`}, 0))`,
  )
}

/** Inserts a trust, or replaces its rules. */
export async function putIssuer(db: Db, row: TrustedIssuer): Promise<void> {
  await db.query(sql`
    insert into trusted_issuers (app_id, id, generation, issuer, audiences, client_claim, client_values, user_claim,
                                 user_prefix, jwks_uri, created_at, updated_at)
    values (${row.appId}, ${row.id}, ${row.generation}, ${row.issuer}, ${row.audiences}, ${row.clientClaim},
            ${row.clientValues}, ${row.userClaim}, ${row.userPrefix}, ${row.jwksUri}, ${row.createdAt}, ${row.updatedAt})
    on conflict (app_id, id) do update
    set generation = excluded.generation, issuer = excluded.issuer, audiences = excluded.audiences,
        client_claim = excluded.client_claim, client_values = excluded.client_values,
        user_claim = excluded.user_claim, user_prefix = excluded.user_prefix, jwks_uri = excluded.jwks_uri, updated_at = excluded.updated_at`)
}

/**
 * Stores each combination of audience and client that the rules match. Throws a unique violation
 * when another trust has a combination.
 */
export async function replaceMatches(
  db: Db,
  { appId, id, issuer, clientClaim, ...rules }: TrustedIssuer,
): Promise<void> {
  await db.query(sql`
    delete from trusted_issuer_matches where app_id = ${appId} and trusted_issuer_id = ${id}`)
  const audiences = rules.audiences.length > 0 ? rules.audiences : ['']
  const values = clientClaim === null ? [''] : rules.clientValues
  await db.query(sql`
    insert into trusted_issuer_matches (app_id, trusted_issuer_id, issuer, audience, claim, value)
    select ${appId}, ${id}, ${issuer}, audience, ${clientClaim ?? ''}, value
    from unnest(${audiences}::text[]) as audience, unnest(${values}::text[]) as value`)
}

export async function deleteIssuer(db: Db, app: AppId, id: string): Promise<void> {
  await db.query(sql`delete from trusted_issuers where app_id = ${app} and id = ${id}`)
}

export async function deleteIssuersOfApp(db: Db, app: AppId): Promise<void> {
  await db.query(sql`delete from trusted_issuers where app_id = ${app}`)
}
