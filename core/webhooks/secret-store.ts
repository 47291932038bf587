import { type Db, many, sql } from '../lib/sql.ts'
import type { AppId } from '../shared/ids.ts'
import { sealedColumn } from '../shared/sealing/column-sql.ts'
import type { SealedPlace } from '../shared/sealing/sealing.ts'
import type { EndpointKey } from './endpoint-store.ts'

/** Reads and writes webhook_secrets. */

export const signings = ['hmac', 'ed25519'] as const
export type Signing = (typeof signings)[number]

export interface StoredSecret {
  readonly id: string
  readonly endpointId: string
  readonly signing: Signing
  readonly sealed: Buffer
  readonly publicKey: string | null
  readonly createdAt: Date
  readonly endsAt: Date | null
}

/** Returns the valid secrets of an app's endpoints, or of one of them, newest first. */
export const listSecrets = (
  db: Db,
  { appId: app, id }: { readonly appId: AppId; readonly id?: string },
  at: Date,
): Promise<StoredSecret[]> =>
  many<StoredSecret>(
    db,
    sql`
    select id, endpoint_id as "endpointId", signing, sealed_secret as sealed, public_key as "publicKey",
           created_at as "createdAt", ends_at as "endsAt"
    from webhook_secrets
    where app_id = ${app} and (${id ?? null}::uuid is null or endpoint_id = ${id ?? null})
      and (ends_at is null or ends_at > ${at})
    order by ends_at is not null, created_at desc, id desc`,
  )

export async function insertSecret(
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  row: Omit<StoredSecret, 'endpointId' | 'endsAt'>,
): Promise<void> {
  await db.query(sql`
    insert into webhook_secrets (app_id, endpoint_id, id, signing, sealed_secret, public_key, created_at)
    values (${app}, ${endpoint}, ${row.id}, ${row.signing}, ${row.sealed}, ${row.publicKey}, ${row.createdAt})`)
}

/** Makes valid secrets end by `endsAt`, and deletes those that have ended. */
export async function endSecrets(
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  { at, endsAt }: { readonly at: Date; readonly endsAt: Date },
): Promise<void> {
  await db.query(sql`
    update webhook_secrets
    set ends_at = least(ends_at, ${endsAt}::timestamptz)
    where app_id = ${app} and endpoint_id = ${endpoint}`)
  await db.query(sql`
    delete from webhook_secrets where app_id = ${app} and endpoint_id = ${endpoint} and ends_at <= ${at}`)
}

export const placeOfSecret = (id: string): SealedPlace => ({
  purpose: 'webhook-secret',
  context: `webhook-secret:${id}`,
})

/** Signing secrets, for re-encryption under a new key-encryption key. */
export const sealedWebhookSecrets = sealedColumn({
  table: 'webhook_secrets',
  column: 'sealed_secret',
  key: ['id'],
  isUuid: true,
  placeOf: placeOfSecret,
})
