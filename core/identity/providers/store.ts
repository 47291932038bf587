import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import type { AppId, ExternalUserId } from '../../platform/ids.ts'

export interface ProviderUserKey {
  readonly app: AppId
  readonly externalUserId: ExternalUserId
  readonly directory: string
}

export interface ProviderUserRow {
  /** Null while the provider is not known to have the user. */
  readonly providerUserId: string | null
  readonly email: string | null
}

interface Row {
  provider_user_id: string | null
  email: string | null
}

const fromRow = (row: Row): ProviderUserRow => ({
  providerUserId: row.provider_user_id,
  email: row.email,
})

export async function findProviderUser(
  db: Db,
  { app, externalUserId, directory }: ProviderUserKey,
): Promise<ProviderUserRow | null> {
  const row = await maybeOne<Row>(
    db,
    sql`
    select provider_user_id, email
    from provider_users
    where app_id = ${app} and external_user_id = ${externalUserId} and directory = ${directory}`,
  )
  return row && fromRow(row)
}

export interface Claim {
  readonly id: string
  readonly at: Date
  /** From then on another caller may take the row over. */
  readonly until: Date
}

/** Claims the user's row, which it makes where there is none. Null while another claim holds it. */
export async function claimProviderUser(
  db: Db,
  { app, externalUserId, directory }: ProviderUserKey,
  { id, at, until }: Claim,
): Promise<ProviderUserRow | null> {
  const row = await maybeOne<Row>(
    db,
    sql`
    insert into provider_users
      (app_id, external_user_id, directory, claim, claimed_until, created_at, updated_at)
    values (${app}, ${externalUserId}, ${directory}, ${id}, ${until}, ${at}, ${at})
    on conflict (app_id, external_user_id, directory) do update
    set claim = excluded.claim, claimed_until = excluded.claimed_until
    where provider_users.claim is null or provider_users.claimed_until <= ${at}
    returning provider_user_id, email`,
  )
  return row && fromRow(row)
}

export interface ClaimedKey extends ProviderUserKey {
  readonly claim: string
}

export interface KnownProviderUser {
  readonly providerUserId: string
  readonly email: string | null
  readonly at: Date
}

/** Writes what the provider has now, and ends the claim. False when another caller has taken it over. */
export async function settleClaim(
  db: Db,
  { app, externalUserId, directory, claim }: ClaimedKey,
  { providerUserId, email, at }: KnownProviderUser,
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    update provider_users
    set provider_user_id = ${providerUserId}, email = ${email}, updated_at = ${at}, claim = null, claimed_until = null
    where app_id = ${app} and external_user_id = ${externalUserId} and directory = ${directory} and claim = ${claim}
    returning 1`,
  )
  return row !== null
}

/** Ends a claim that came to nothing. A row of a user whom the provider is not known to have goes with it. */
export async function releaseClaim(
  db: Db,
  { app, externalUserId, directory, claim }: ClaimedKey,
): Promise<void> {
  await db.query(
    sql`
    with mine as (
      select ctid, provider_user_id
      from provider_users
      where app_id = ${app} and external_user_id = ${externalUserId} and directory = ${directory} and claim = ${claim}),
    gone as (
      delete from provider_users p using mine where p.ctid = mine.ctid and mine.provider_user_id is null)
    update provider_users p
    set claim = null, claimed_until = null
    from mine
    where p.ctid = mine.ctid and mine.provider_user_id is not null`,
  )
}
