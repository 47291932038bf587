import type { AppId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Capability } from './profile.ts'

/** Writes catalog_entries, catalog_reads and seen_capabilities. */

interface CapabilityRow {
  pipeline: string
  model_id: string
}

const toCapability = ({ pipeline, model_id: modelId }: CapabilityRow): Capability => ({
  pipeline,
  modelId,
})

/** Returns the entries for these pipelines in the catalogue and in the app's own tickets. */
export async function findOffers(
  db: Db,
  app: AppId,
  pipelines: readonly string[],
): Promise<Capability[]> {
  const rows = await many<CapabilityRow>(
    db,
    sql`
    select pipeline, model_id
    from catalog_entries
    where source in ('operator', 'url') and pipeline = any(${pipelines}::text[])
    union
    select pipeline, model_id
    from seen_capabilities
    where app_id = ${app} and pipeline = any(${pipelines}::text[])`,
  )
  return rows.map(toCapability)
}

/** Returns up to `limit` capabilities that the app may use, for an error message. */
export async function someOffers(db: Db, app: AppId, limit: number): Promise<Capability[]> {
  const rows = await many<CapabilityRow>(
    db,
    sql`
    select pipeline, model_id
    from (
      select pipeline, model_id from catalog_entries
      union
      select pipeline, model_id from seen_capabilities where app_id = ${app}) offers
    order by pipeline, model_id
    limit ${limit}`,
  )
  return rows.map(toCapability)
}

/** Stores the capabilities of the app's tickets since `since`. */
export async function noteSeen(
  db: Db,
  app: AppId,
  { since, at }: { since: Date; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into seen_capabilities (app_id, pipeline, model_id, seen_at)
    select distinct app_id, pipeline, model_id, ${at}::timestamptz
    from usage_hourly
    where app_id = ${app} and hour >= ${since}
    on conflict do nothing`)
}

/** Like `noteSeen`, for all apps. */
export async function noteAllSeen(db: Db, { since, at }: { since: Date; at: Date }): Promise<void> {
  await db.query(sql`
    insert into seen_capabilities (app_id, pipeline, model_id, seen_at)
    select distinct u.app_id, u.pipeline, u.model_id, ${at}::timestamptz
    from apps a
    join usage_hourly u on u.app_id = a.id and u.hour >= ${since}
    on conflict do nothing`)
}

/** Result of reading the catalogue's address. */
export interface CatalogRead {
  /** Null before the first success. */
  readonly readAt: Date | null
  readonly triedAt: Date
  readonly error: string | null
}

export const findRead = (db: Db, url: string): Promise<CatalogRead | null> =>
  maybeOne<CatalogRead>(
    db,
    sql`
    select read_at as "readAt", tried_at as "triedAt", error
    from catalog_reads
    where url = ${url}`,
  )

/**
 * Claims the next read of an address. Returns true if the last try was at or before `usual`, or at
 * or before `soon` without success; the caller must then read it.
 */
export async function claimRead(
  db: Db,
  url: string,
  { at, usual, soon }: { at: Date; usual: Date; soon: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into catalog_reads (url, tried_at) values (${url}, ${at})
    on conflict (url) do update
    set tried_at = excluded.tried_at
    where catalog_reads.tried_at <= ${usual}
       or (catalog_reads.tried_at <= ${soon} and (catalog_reads.error is not null or catalog_reads.read_at is null))`)
  return rowCount === 1
}

export async function saveRead(db: Db, url: string, read: CatalogRead): Promise<void> {
  await db.query(sql`
    insert into catalog_reads (url, read_at, tried_at, error)
    values (${url}, ${read.readAt}, ${read.triedAt}, ${read.error})
    on conflict (url) do update
    set read_at = coalesce(excluded.read_at, catalog_reads.read_at), tried_at = excluded.tried_at, error = excluded.error`)
}

/** Replaces all entries of a source. */
export async function replaceEntries(
  db: Db,
  source: 'url',
  { entries, at }: { entries: readonly Capability[]; at: Date },
): Promise<void> {
  const pipelines = entries.map(({ pipeline }) => pipeline)
  const models = entries.map(({ modelId }) => modelId)
  await db.query(sql`
    delete from catalog_entries e
    where e.source = ${source} and not exists (
      select from unnest(${pipelines}::text[], ${models}::text[]) as n (pipeline, model_id)
      where n.pipeline = e.pipeline and n.model_id = e.model_id)`)
  await insertEntries(db, source, { entries, at })
}

export async function insertEntries(
  db: Db,
  source: 'url' | 'operator',
  { entries, at }: { entries: readonly Capability[]; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into catalog_entries (source, pipeline, model_id, added_at)
    select ${source}, pipeline, model_id, ${at}
    from unnest(${entries.map(({ pipeline }) => pipeline)}::text[], ${entries.map(({ modelId }) => modelId)}::text[])
      as n (pipeline, model_id)
    on conflict do nothing`)
}

/** Returns false when operators have added no such entry. */
export async function deleteEntry(db: Db, { pipeline, modelId }: Capability): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    delete from catalog_entries where source = 'operator' and pipeline = ${pipeline} and model_id = ${modelId}`)
  return rowCount === 1
}

export interface Offer extends Capability {
  readonly source: string
  readonly addedAt: Date
}

/** Lists entries by pipeline and model, including those from the tickets of `app`. */
export async function listOffers(
  db: Db,
  app: AppId | null,
  { after, limit }: { after: Capability; limit: number },
): Promise<Offer[]> {
  return many<Offer>(
    db,
    sql`
    select source, pipeline, model_id as "modelId", added_at as "addedAt"
    from (
      select source, pipeline, model_id, added_at from catalog_entries
      union all
      select 'ticket', pipeline, model_id, seen_at from seen_capabilities where app_id = ${app}) offers
    where (pipeline, model_id) > (${after.pipeline}, ${after.modelId})
    order by pipeline, model_id, source
    limit ${limit}`,
  )
}
