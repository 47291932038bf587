import { type Db, many, maybeOne, sql } from '../lib/sql.ts'
import type { SecretHolder } from './letters.ts'
import { type AppId, type UserKey, ownerAccountPrefix } from '../shared/ids.ts'

/** Reads the recipients of notices about an app. Writes nothing. */

/** Returns the address of the account behind a user of the platform app; null for other users. */
export async function findPayerEmail(
  db: Db,
  { appId: app, userId: user }: UserKey,
): Promise<string | null> {
  const row = await maybeOne<{ email: string }>(
    db,
    sql`
    select a.email
    from end_users u
    join platform_app p on p.app_id = u.app_id
    join accounts a on u.external_user_id = ${ownerAccountPrefix} || a.id
    where u.app_id = ${app} and u.id = ${user}`,
  )
  return row?.email ?? null
}

export interface OwnerAddress {
  readonly email: string
  readonly appName: string
}

export const listOwners = (db: Db, app: AppId): Promise<OwnerAddress[]> =>
  many<OwnerAddress>(
    db,
    sql`
    select a.email, p.name as "appName"
    from members m
    join accounts a on a.id = m.account_id
    join apps p on p.id = m.app_id and p.status <> 'deleted'
    where m.app_id = ${app} and m.role = 'owner'
    order by a.id`,
  )

export interface ExpiringSecret extends OwnerAddress {
  /** Names the mail about this secret to this owner. */
  readonly once: string
  readonly holder: SecretHolder
  /** The client with the secret; for other holders the app's public client. */
  readonly clientId: string
  /** The webhook endpoint with the secret; null for other holders. */
  readonly endpointId: string | null
  readonly expiresAt: Date
}

/** Lists owners of apps with a secret that expires in the range, of which they have no mail. */
export const listExpiringSecrets = (
  db: Db,
  { at, until, limit }: { at: Date; until: Date; limit: number },
): Promise<ExpiringSecret[]> =>
  many<ExpiringSecret>(
    db,
    sql`
    with ending as (
      select s.id::text as id, c.app_id, 'client' as holder, s.client_id, null::uuid as endpoint_id, s.expires_at
      from client_secrets s
      join clients c on c.client_id = s.client_id
      where s.expires_at > ${at} and s.expires_at <= ${until}
      union all
      select s.id, g.app_id, 'signer', c.client_id, null, s.ends_at
      from signer_secrets s
      join signers g on g.id = s.signer_id
      join clients c on c.app_id = g.app_id and c.kind = 'public'
      where s.ends_at > ${at} and s.ends_at <= ${until}
      union all
      select s.id::text, s.app_id, 'webhook', c.client_id, s.endpoint_id, s.ends_at
      from webhook_secrets s
      join clients c on c.app_id = s.app_id and c.kind = 'public'
      where s.ends_at > ${at} and s.ends_at <= ${until}
    )
    select 'secret:' || s.id || ':' || a.email as once, a.email, p.name as "appName", s.holder,
           s.client_id as "clientId", s.endpoint_id as "endpointId", s.expires_at as "expiresAt"
    from ending s
    join apps p on p.id = s.app_id and p.status <> 'deleted'
    join members m on m.app_id = p.id and m.role = 'owner'
    join accounts a on a.id = m.account_id
    where not exists (select from mails x where x.once = 'secret:' || s.id || ':' || a.email)
    order by s.expires_at, s.id, a.id
    limit ${limit}`,
  )
