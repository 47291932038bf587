import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import type { AppId, ExternalUserId } from '../../shared/ids.ts'

export interface ProviderUserKey {
  readonly app: AppId
  readonly externalUserId: ExternalUserId
  readonly directory: string
}

export interface ProviderUserRow {
  /** Null until the user is confirmed at the provider. */
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
  /** After this time another caller may take over the row. */
  readonly until: Date
}

/**
 * Claims the user's row and creates it if it is missing. Returns null while another claim holds it.
 */
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

/**
 * Stores the provider's current data and ends the claim. Returns false when another caller has
 * taken over the claim.
 */
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

/**
 * Ends a claim after a failure. Also deletes the row if the user was never confirmed at the
 * provider.
 */
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
