import { readFile, readdir } from 'node:fs/promises'
import { Client } from 'pg'
import { toMessage } from '../lib/process.ts'
import { toAddress } from '../lib/settings.ts'

const folder = new URL('./migrations/', import.meta.url)

/**
 * Applies the missing migrations to the database at `url`: numbered files, forward only, one
 * transaction each. Each transaction first inserts the file's row, so that a second starting
 * process waits and then has nothing to do. Returns the names of the applied files.
 */
export async function migrate(url: string): Promise<string[]> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 })
  await client.connect().catch((error: unknown) => {
    throw new Error(
      `DATABASE_URL: cannot use the database at ${toAddress(url)}: ${toMessage(error)}`,
      { cause: error },
    )
  })
  try {
    // "if not exists" races with itself in Postgres; the lock makes the second process wait.
    await client.query(`select pg_advisory_lock(hashtext('tollgate.migrations'))`)
    await client.query(`
      create table if not exists migrations (
        name       text        not null primary key,
        applied_at timestamptz not null default now()
      )`)
    const names = await migrationNames()
    await refuseOtherSchema(client, names)
    const applied: string[] = []
    for (const name of names) {
      if (await apply(client, name)) applied.push(name)
    }
    return applied
  } finally {
    await client.end()
  }
}

/**
 * Throws for the schema of a version before 0.1.0, whose files had other names. A newer release has only added files, behind
 * all that are known here.
 */
async function refuseOtherSchema(client: Client, names: readonly string[]): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    'select name from migrations where name <> all($1) and name < $2 order by name limit 1',
    [names, names.at(-1)],
  )
  const [other] = rows
  if (other)
    throw new Error(
      `DATABASE_URL: the database has the schema of a version before 0.1.0 (migration ${other.name}); use an empty database`,
    )
}

async function migrationNames(): Promise<string[]> {
  const files = await readdir(folder)
  return files.filter((file) => file.endsWith('.sql')).sort()
}

async function apply(client: Client, name: string): Promise<boolean> {
  await client.query('begin')
  try {
    const row = await client.query(
      `insert into migrations (name) values ($1) on conflict do nothing returning name`,
      [name],
    )
    if (row.rowCount === 1) await client.query(await readFile(new URL(name, folder), 'utf8'))
    await client.query('commit')
    return row.rowCount === 1
  } catch (error) {
    await client.query('rollback')
    throw new Error(`migration ${name} failed`, { cause: error })
  }
}
