import { readFile, readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from 'pg'
import { toMessage } from '../lib/process.ts'
import type { Db } from '../lib/sql.ts'
import { toAddress } from '../lib/settings/shared.ts'
import { type Address, lockSchema, withClient } from './connect.ts'
import { isDistributed, listPlacements, placeTables } from './distribution/place.ts'

const folder = new URL('./migrations/', import.meta.url)

/**
 * Applies the missing migrations to the database at `url`: numbered files, forward only, one
 * transaction each. Each transaction first inserts the file's row, so that a second starting
 * process waits and then has nothing to do. Returns the names of the applied files. Errors name
 * `setting`, which holds the address.
 */
export const migrate = (url: string, setting = 'DATABASE_URL'): Promise<string[]> =>
  withClient({ url, setting }, async (client) => {
    await refuseReadOnly(client, { url, setting })
    // A role may have a time limit for the statements of core, which a migration may exceed.
    await client.query('set statement_timeout = 0')
    // "if not exists" races with itself in Postgres; the lock makes the second process wait.
    await lockSchema(client)
    await createTable(client)
    const names = await migrationNames()
    await refuseOtherSchema(client, names, setting)
    await refuseHalfMigrated(client, setting)
    const applied: string[] = []
    for (const name of names) {
      const isApplied = await apply(client, name).catch(async (error: unknown) => {
        throw await explainFailure(client, { error, name, setting })
      })
      if (isApplied) applied.push(name)
    }
    await placeNewTables(client)
    return applied
  })

/**
 * Applies those files of `names` that are missing, all in the transaction `db`. Other processes
 * that migrate wait for its end.
 */
export async function applyWithin(db: Db, names: readonly string[]): Promise<void> {
  await db.query(`select pg_advisory_xact_lock(hashtext('tollgate.migrations'))`)
  await createTable(db)
  for (const name of names) await applyText(db, name, await readFile(new URL(name, folder), 'utf8'))
}

/** Returns the names of the migrations that the database at `url` lacks. Changes nothing. */
export const listMissing = (url: string, setting = 'DATABASE_URL'): Promise<string[]> =>
  withClient({ url, setting }, async (client) => {
    const names = await migrationNames()
    const { rows } = await client.query<{ exists: boolean }>(
      `select to_regclass('migrations') is not null as exists`,
    )
    if (rows[0]?.exists !== true) return names
    await refuseOtherSchema(client, names, setting)
    await refuseHalfMigrated(client, setting)
    const applied = await client.query<{ name: string }>('select name from migrations')
    const present = new Set(applied.rows.map(({ name }) => name))
    return names.filter((name) => !present.has(name))
  })

/**
 * Throws if the database at `url` lacks a migration, or has one with which this release does not
 * run. Changes nothing.
 */
export async function requireMigrated(url: string, setting = 'DATABASE_URL'): Promise<void> {
  const [first, ...others] = await listMissing(url, setting)
  if (first === undefined) return
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  throw new Error(
    `${setting}: the database lacks migration ${first}${more}, and MIGRATE is off; run \`tollgate migrate\` first`,
  )
}

/** Throws if the database at `url` cannot be written to. */
export const requireWritable = (url: string, setting = 'DATABASE_URL'): Promise<void> =>
  withClient({ url, setting }, (client) => refuseReadOnly(client, { url, setting }))

async function refuseReadOnly(client: Client, { url, setting }: Address): Promise<void> {
  const { rows } = await client.query<{ standby: boolean; writable: boolean }>(
    `select pg_is_in_recovery() as standby, current_setting('transaction_read_only') = 'off' as writable`,
  )
  const [state] = rows
  if (state?.writable) return
  const cure = state?.standby
    ? 'is a standby, which is read-only; set it to the address of the primary'
    : 'is read-only; allow writes (default_transaction_read_only)'
  throw new Error(`${setting}: the database at ${toAddress(url)} ${cure}`)
}

async function createTable(db: Db): Promise<void> {
  await db.query(`
    create table if not exists migrations (
      name       text        not null primary key,
      applied_at timestamptz not null default now()
    )`)
  // Release 0.1.0 created the table without these. A change takes a lock, so it is made only once.
  const { rows } = await db.query<{ names: string[] }>(
    `select array_agg(attname::text) as names from pg_attribute
     where attrelid = 'migrations'::regclass and attname in ('release', 'oldest_release')`,
  )
  if (rows[0]?.names?.length !== 2)
    await db.query(`
      alter table migrations
        -- The release that applied the file, and the oldest release that runs on it.
        add column if not exists release text,
        add column if not exists oldest_release text`)
}

/**
 * Throws for the schema of a version before 0.1.0, whose files had other names, and for a file of a
 * newer release with which this one does not run.
 */
async function refuseOtherSchema(
  client: Client,
  names: readonly string[],
  setting: string,
): Promise<void> {
  // The columns are missing in a database of release 0.1.0.
  const { rows } = await client.query<UnknownFile>(
    `select name, to_jsonb(m) ->> 'release' as release, to_jsonb(m) ->> 'oldest_release' as oldest
     from migrations m where name <> all($1) order by name`,
    [names],
  )
  const [first] = rows
  if (first && first.name < (names.at(-1) ?? ''))
    throw new Error(
      `${setting}: the database has the schema of a version before 0.1.0 (migration ${first.name}); use an empty database`,
    )
  const own = await ownRelease()
  const refused = rows.find(({ oldest }) => oldest === null || isOlder(own, oldest))
  if (!refused) return
  const needed = refused.oldest ?? refused.release
  const cure =
    needed === null ? 'the release that applied it' : `tollgate ${needed} or a newer release`
  throw new Error(
    `${setting}: the database has migration ${refused.name}, with which tollgate ${own} does not run; use ${cure}`,
  )
}

const halfMigratedCure = 'restore a backup into an empty database (docs/backup.md)'

/** Throws if tables exist although no file is applied. */
async function refuseHalfMigrated(client: Client, setting: string): Promise<void> {
  const { rows } = await client.query(
    `select 1 from pg_class where oid = to_regclass('apps') and not exists (select from migrations)`,
  )
  if (rows.length > 0)
    throw new Error(
      `${setting}: the database is half-migrated: it has the table apps, but no migration is applied; ${halfMigratedCure}`,
    )
}

/** Names the setting and, if a later file than the failed one is applied, the cure. */
async function explainFailure(
  client: Client,
  { error, name, setting }: { error: unknown; name: string; setting: string },
): Promise<Error> {
  const last = await client
    .query<{ last: string | null }>('select max(name) as last from migrations')
    .then(
      ({ rows }) => rows[0]?.last ?? '',
      // The connection is lost; the error reports it.
      () => '',
    )
  const half =
    last > name
      ? `the database is half-migrated: it has migration ${last}, but lacks ${name}; ${halfMigratedCure}: `
      : ''
  return new Error(`${setting}: ${half}${toMessage(error)}`, { cause: error })
}

interface UnknownFile {
  readonly name: string
  readonly release: string | null
  /** The oldest release that runs on it; null if only the release of the file and newer ones do. */
  readonly oldest: string | null
}

/** Returns the version of this release. */
async function ownRelease(): Promise<string> {
  const manifest = new URL('../../package.json', import.meta.url)
  return String(JSON.parse(await readFile(manifest, 'utf8')).version)
}

/** Whether version `a` is older than `b`; both are three numbers. */
function isOlder(a: string, b: string): boolean {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number))
  for (const place of [0, 1, 2]) {
    const difference = (left?.[place] ?? 0) - (right?.[place] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

/** Gives new tables of a distributed schema their kind. */
async function placeNewTables(client: Client): Promise<void> {
  if (!(await isDistributed(client))) return
  const placements = await listPlacements(client)
  if (placements.length > 0) await placeTables(client, placements)
}

/** Returns the names of this release's migrations, in their order. */
export async function migrationNames(): Promise<string[]> {
  const files = await readdir(folder)
  return files.filter((file) => file.endsWith('.sql')).sort()
}

/** A migration waits this long for a table. Requests that need the table wait behind it. */
const lockMs = 1_000
const lockAttempts = 60
/** The time limit of locks, and a deadlock with a process that works meanwhile. */
const inUse = new Set<unknown>(['55P03', '40P01'])

/** Applies a file; returns false if it is applied already. Repeats it if a table is in use. */
async function apply(client: Client, name: string): Promise<boolean> {
  const text = await readFile(new URL(name, folder), 'utf8')
  for (let attempt = 1; ; attempt++) {
    try {
      return await applyOnce(client, name, text)
    } catch (error) {
      const isInUse = error instanceof Error && 'code' in error && inUse.has(error.code)
      if (!isInUse || attempt === lockAttempts)
        throw new Error(`migration ${name} failed: ${toMessage(error)}`, { cause: error })
      await sleep(lockMs)
    }
  }
}

/** The line of a file with which it states the oldest release that runs on it. */
const oldestLine = /^-- The oldest release that runs on it: (\d+\.\d+\.\d+)$/m

async function applyOnce(client: Client, name: string, text: string): Promise<boolean> {
  await client.query('begin')
  try {
    await client.query(`set local lock_timeout = ${lockMs}`)
    const isMissing = await applyText(client, name, text)
    await client.query('commit')
    return isMissing
  } catch (error) {
    await client.query('rollback')
    throw error
  }
}

/** Applies a file in the transaction `db`; returns false if it is applied already. */
async function applyText(db: Db, name: string, text: string): Promise<boolean> {
  const row = await db.query(
    `insert into migrations (name, release, oldest_release) values ($1, $2, $3)
     on conflict do nothing returning name`,
    [name, await ownRelease(), oldestLine.exec(text)?.[1] ?? null],
  )
  if (row.rowCount === 1) await db.query(text)
  return row.rowCount === 1
}
