import type { AppId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Capability, Policy, Profile, ProfileCapability } from './profile.ts'

interface ProfileRow {
  id: string
  name: string
  policy: Policy
  capabilities: ProfileCapability[]
  created_at: Date
  updated_at: Date
}

const fromRow = (row: ProfileRow): Profile => ({
  id: row.id,
  name: row.name,
  policy: row.policy,
  capabilities: row.capabilities,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
})

/** Returns null when the app has never written a manifest. */
export async function findExcluded(db: Db, app: AppId): Promise<Capability[] | null> {
  const row = await maybeOne<{ excluded: Capability[] }>(
    db,
    sql`select excluded from manifests where app_id = ${app}`,
  )
  return row && row.excluded
}

export async function putExcluded(
  db: Db,
  app: AppId,
  { excluded, at }: { excluded: readonly Capability[]; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into manifests (app_id, excluded, updated_at) values (${app}, ${JSON.stringify(excluded)}, ${at})
    on conflict (app_id) do update set excluded = excluded.excluded, updated_at = excluded.updated_at`)
}

export async function listProfiles(db: Db, app: AppId): Promise<Profile[]> {
  const rows = await many<ProfileRow>(
    db,
    sql`
    select id, name, policy, capabilities, created_at, updated_at
    from discovery_profiles
    where app_id = ${app}
    order by created_at, id`,
  )
  return rows.map(fromRow)
}

export async function findProfile(db: Db, app: AppId, id: string): Promise<Profile | null> {
  const row = await maybeOne<ProfileRow>(
    db,
    sql`
    select id, name, policy, capabilities, created_at, updated_at
    from discovery_profiles
    where app_id = ${app} and id = ${id}`,
  )
  return row && fromRow(row)
}

/** Like `findProfile`, but locks the row until the transaction ends. */
export async function lockProfile(db: Db, app: AppId, id: string): Promise<Profile | null> {
  const row = await maybeOne<ProfileRow>(
    db,
    sql`
    select id, name, policy, capabilities, created_at, updated_at
    from discovery_profiles
    where app_id = ${app} and id = ${id}
    for no key update`,
  )
  return row && fromRow(row)
}

/** Whether another profile of the app has that name, ignoring case. */
export async function isNameInUse(
  db: Db,
  app: AppId,
  { name, but }: { name: string; but: string | null },
): Promise<boolean> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`
    select id from discovery_profiles
    where app_id = ${app} and lower(name) = lower(${name}) and id is distinct from ${but}::uuid`,
  )
  return row !== null
}

/** Returns null when another profile of the app has the name. */
export async function insertProfile(db: Db, app: AppId, profile: Profile): Promise<Profile | null> {
  const row = await maybeOne<ProfileRow>(
    db,
    sql`
    insert into discovery_profiles (app_id, id, name, policy, capabilities, created_at, updated_at)
    values (${app}, ${profile.id}, ${profile.name}, ${JSON.stringify(profile.policy)}, ${JSON.stringify(profile.capabilities)},
            ${profile.createdAt}, ${profile.updatedAt})
    on conflict do nothing
    returning id, name, policy, capabilities, created_at, updated_at`,
  )
  return row && fromRow(row)
}

export async function updateProfile(db: Db, app: AppId, profile: Profile): Promise<Profile> {
  return fromRow(
    await one<ProfileRow>(
      db,
      sql`
    update discovery_profiles
    set name = ${profile.name}, policy = ${JSON.stringify(profile.policy)}, capabilities = ${JSON.stringify(profile.capabilities)},
        updated_at = ${profile.updatedAt}
    where app_id = ${app} and id = ${profile.id}
    returning id, name, policy, capabilities, created_at, updated_at`,
    ),
  )
}

export async function deleteProfile(db: Db, app: AppId, id: string): Promise<boolean> {
  const { rowCount } = await db.query(
    sql`delete from discovery_profiles where app_id = ${app} and id = ${id}`,
  )
  return rowCount === 1
}

/** Serialises changes to one app's catalog until the transaction ends. */
export async function lockCatalog(db: Db, app: AppId): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtextextended(${`catalog ${app}`}, 0))`)
}

/** Returns the pipelines and models that the app's plans name, with the names of the plans. */
export async function findPriced(
  db: Db,
  app: AppId,
): Promise<{ plan: string; pipeline: string; modelId: string }[]> {
  return many(
    db,
    sql`
    select p.name as plan, b.pipeline, b.model_id as "modelId"
    from plans p
    cross join lateral (
      select max(version) as version from plan_versions where app_id = p.app_id and plan_id = p.id) v
    join plan_bundles b on b.app_id = p.app_id and b.plan_id = p.id and b.version = v.version
    where p.app_id = ${app} and p.deleted_at is null
    order by p.created_at, p.id, b.position`,
  )
}
