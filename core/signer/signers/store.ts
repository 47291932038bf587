import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'

export type Purpose = 'decisions' | 'events'

export interface SignerRow {
  readonly id: string
  readonly name: string
  readonly all_apps: boolean
  readonly may_push_events: boolean
  readonly created_at: Date
  readonly client_ids: string[]
  readonly secrets: number
}

export interface SecretRow {
  readonly id: string
  readonly signer: string
  readonly purpose: Purpose
  readonly key: Buffer
  readonly hash: Buffer
  readonly all_apps: boolean
  readonly client_ids: string[]
  readonly ends_at: Date | null
}

export interface NewSigner {
  readonly id: string
  readonly name: string
  readonly allApps: boolean
  readonly mayPushEvents: boolean
}

/** Returns false when the name is taken. */
export async function insertSigner(db: Db, signer: NewSigner, at: Date): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into signers (id, name, all_apps, may_push_events, created_at)
    values (${signer.id}, ${signer.name}, ${signer.allApps}, ${signer.mayPushEvents}, ${at})
    on conflict (name) do nothing`)
  return rowCount === 1
}

/** Replaces the apps of a signer. Returns how many of the client ids belong to apps. */
export async function replaceApps(
  db: Db,
  signer: Pick<NewSigner, 'id' | 'allApps'>,
  clientIds: readonly string[],
): Promise<number> {
  await db.query(sql`
    update signers
    set all_apps = ${signer.allApps}
    where id = ${signer.id}`)
  await db.query(sql`
    delete from signer_apps
    where signer_id = ${signer.id}`)
  const { rowCount } = await db.query(sql`
    insert into signer_apps (signer_id, app_id)
    select ${signer.id}::uuid, c.app_id
    from clients c
    where c.client_id = any (${clientIds}::text[]) and c.kind = 'public'`)
  return rowCount ?? 0
}

interface LockedSigner extends Pick<SignerRow, 'id' | 'may_push_events'> {
  /** The app that owns this signer; null for an operator's signer. */
  readonly app_id: AppId | null
}

/** Locks the signer with this name until the transaction ends. */
export const lockSigner = (db: Db, name: string): Promise<LockedSigner | null> =>
  maybeOne(
    db,
    sql`
    select id, may_push_events, app_id
    from signers
    where name = ${name}
    for update`,
  )

export const listSigners = (db: Db, at: Date): Promise<SignerRow[]> =>
  many(
    db,
    sql`
    select s.id, s.name, s.all_apps, s.may_push_events, s.created_at,
           array(select c.client_id
                 from signer_apps a
                 join clients c on c.app_id = a.app_id and c.kind = 'public'
                 where a.signer_id = s.id
                 order by c.client_id) as client_ids,
           (select count(*)::integer
            from signer_secrets x
            where x.signer_id = s.id and (x.ends_at is null or x.ends_at > ${at})) as secrets
    from signers s
    order by s.name`,
  )

/** Returns all secrets valid at `at`, with the apps of their signers. */
export const listSecrets = (db: Db, at: Date): Promise<SecretRow[]> =>
  many(
    db,
    sql`
    select x.id, s.name as signer, x.purpose, x.key, x.hash, s.all_apps, x.ends_at,
           array(select c.client_id
                 from signer_apps a
                 join clients c on c.app_id = a.app_id and c.kind = 'public'
                 where a.signer_id = s.id) as client_ids
    from signer_secrets x
    join signers s on s.id = x.signer_id
    where (x.ends_at is null or x.ends_at > ${at}) and (x.purpose = 'decisions' or s.may_push_events)`,
  )

export interface NewSecret {
  readonly id: string
  readonly purpose: Purpose
  readonly key: Buffer
  readonly hash: Buffer
}

export async function insertSecret(
  db: Db,
  { signerId, secret, at }: { signerId: string; secret: NewSecret; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into signer_secrets (id, signer_id, purpose, key, hash, created_at)
    values (${secret.id}, ${signerId}, ${secret.purpose}, ${secret.key}, ${secret.hash}, ${at})`)
}

/** Ends the secrets of a signer at `endsAt`, or earlier if they already end earlier. */
export async function endSecrets(db: Db, signerId: string, endsAt: Date): Promise<void> {
  await db.query(sql`
    update signer_secrets
    set ends_at = least(ends_at, ${endsAt})
    where signer_id = ${signerId}`)
}

/** Returns false for an unknown name. */
export async function deleteSigner(db: Db, name: string): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    delete from signers
    where name = ${name}`)
  return rowCount === 1
}

interface OwnApp {
  readonly appId: AppId
  readonly clientId: string
}

/**
 * Locks the app's own signer, and creates it if missing. Returns null for an app that is no longer
 * active.
 */
export async function lockOwnSigner(
  db: Db,
  { appId, clientId }: OwnApp,
  signer: { readonly id: string; readonly at: Date },
): Promise<LockedSigner | null> {
  const app = await maybeOne(
    db,
    sql`
    select id
    from apps
    where id = ${appId} and status = 'active'
    for share`,
  )
  if (!app) return null
  const { rowCount } = await db.query(sql`
    insert into signers (id, name, app_id, all_apps, may_push_events, created_at)
    values (${signer.id}, ${clientId}, ${appId}, false, true, ${signer.at})
    on conflict do nothing`)
  if (rowCount === 1)
    await db.query(sql`
      insert into signer_apps (signer_id, app_id)
      values (${signer.id}, ${appId})`)
  return lockSigner(db, clientId)
}

export interface OwnSecretRow {
  readonly id: string
  readonly purpose: Purpose
  readonly created_at: Date
  readonly ends_at: Date | null
}

/** Returns the valid secrets of the app's own signer at `at`. */
export const listOwnSecrets = (db: Db, appId: AppId, at: Date): Promise<OwnSecretRow[]> =>
  many(
    db,
    sql`
    select x.id, x.purpose, x.created_at, x.ends_at
    from signer_secrets x
    join signers s on s.id = x.signer_id
    where s.app_id = ${appId} and (x.ends_at is null or x.ends_at > ${at})
    order by x.created_at, x.id`,
  )

/**
 * Ends the secrets of a purpose at `endsAt`, or earlier if they already end earlier. Deletes the
 * signer's ended secrets.
 */
export async function endSignerSecrets(
  db: Db,
  { signerId, purpose }: { readonly signerId: string; readonly purpose: Purpose },
  { at, endsAt }: { readonly at: Date; readonly endsAt: Date | null },
): Promise<void> {
  await db.query(sql`
    delete from signer_secrets
    where signer_id = ${signerId} and ends_at <= ${at}`)
  await db.query(sql`
    update signer_secrets
    set ends_at = least(ends_at, ${endsAt})
    where signer_id = ${signerId} and purpose = ${purpose}`)
}

/**
 * Deletes a secret of the app's own signer. Returns its purpose; null when the app has no such
 * secret.
 */
export async function deleteOwnSecret(db: Db, appId: AppId, id: string): Promise<Purpose | null> {
  const row = await maybeOne<{ purpose: Purpose }>(
    db,
    sql`
    delete from signer_secrets x
    using signers s
    where x.id = ${id} and s.id = x.signer_id and s.app_id = ${appId}
    returning x.purpose`,
  )
  return row?.purpose ?? null
}

/** Deletes the app's own signer with its secrets. */
export async function deleteOwnSigner(db: Db, appId: AppId): Promise<void> {
  await db.query(sql`
    delete from signers
    where app_id = ${appId}`)
}
