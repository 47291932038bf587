import { readFile, readdir } from 'node:fs/promises'
import { Client } from 'pg'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { listMissing, migrate, requireMigrated } from '../../../core/db/migrate.ts'
import { tollgate } from '../../deploy/cli/support.ts'
import { startTestCore } from '../support.ts'
import { type TestDatabase, createDatabase } from '../../support/run/postgres.ts'

const folder = new URL('../../../core/db/migrations/', import.meta.url)
const { version } = JSON.parse(
  await readFile(new URL('../../../package.json', import.meta.url), 'utf8'),
)
const files = (await readdir(folder)).toSorted()

let database: TestDatabase
let client: Client
beforeEach(async () => {
  database = await createDatabase()
  client = new Client({ connectionString: database.url })
  await client.connect()
  await client.query('drop schema public cascade; create schema public')
})
afterEach(async () => {
  await client.end()
  await database.drop()
})

const recorded = async (): Promise<string[]> => {
  const { rows } = await client.query<{ name: string }>('select name from migrations order by name')
  return rows.map(({ name }) => name)
}

const record = (name: string, release: string | null = null, oldest: string | null = null) =>
  client.query(
    `insert into migrations select * from jsonb_populate_record(null::migrations, jsonb_build_object(
       'name', $1::text, 'applied_at', now(), 'release', $2::text, 'oldest_release', $3::text))`,
    [name, release, oldest],
  )

async function openOther() {
  const other = new Client({ connectionString: database.url })
  await other.connect()
  return { other, stop: () => other.end() }
}

describe('migrate', () => {
  it('applies each file once when several processes start at the same time', async () => {
    const applied = await Promise.all([1, 2, 3].map(() => migrate(database.url)))
    expect(applied.flat().toSorted()).toEqual(files)
    expect(await recorded()).toEqual(files)
    expect(await migrate(database.url)).toEqual([])
  })

  it('accepts a file of a newer release that runs on this one, too', async () => {
    await migrate(database.url)
    await record('0998_later.sql', '99.0.0', '0.1.0')
    expect(await migrate(database.url)).toEqual([])
  })

  it('rejects a file of a newer release that does not run on this one, with the one to use', async () => {
    await migrate(database.url)
    await record('0998_later.sql', '99.0.0', '0.1.0')
    for (const [release, oldest, cure] of [
      ['99.1.0', '98.0.0', 'tollgate 98.0.0 or a newer release'],
      ['99.1.0', null, 'tollgate 99.1.0 or a newer release'],
      [null, null, 'the release that applied it'],
    ] as const) {
      await record('0999_later.sql', release, oldest)
      const message = `DATABASE_URL: the database has migration 0999_later.sql, with which tollgate ${version} does not run; use ${cure}`
      await expect(migrate(database.url)).rejects.toThrow(message)
      await expect(requireMigrated(database.url)).rejects.toThrow(message)
      await client.query(`delete from migrations where name = '0999_later.sql'`)
    }
    await record('0999_later.sql')
    await expect(startTestCore({ DATABASE_URL: database.url })).rejects.toThrow('0999_later.sql')
    expect(await recorded()).toHaveLength(files.length + 2)
  })

  /** A file that can be applied again. It changes the table subscriptions. */
  const repeatable = '0019_past_due.sql'
  const forget = () => client.query('delete from migrations where name = $1', [repeatable])

  it('records the release that applied a file, in a table of release 0.1.0, too', async () => {
    await migrate(database.url)
    await client.query('alter table migrations drop column release, drop column oldest_release')
    await forget()
    expect(await listMissing(database.url)).toEqual([repeatable])
    expect(await migrate(database.url)).toEqual([repeatable])
    const { rows } = await client.query(
      'select name, release from migrations where release is not null',
    )
    expect(rows).toEqual([{ name: repeatable, release: version }])
  })

  it('waits for a table in use, and does not make other requests to it wait', async () => {
    await migrate(database.url)
    await forget()
    const { other, stop } = await openOther()
    await client.query('begin; lock table subscriptions in access share mode')
    const migrating = migrate(database.url)
    const waits = `select 1 from pg_locks where relation = 'subscriptions'::regclass and not granted`
    await expect.poll(async () => (await other.query(waits)).rowCount).toBe(1)
    await other.query(`set statement_timeout = '10s'`)
    await other.query('select 1 from subscriptions')
    await client.query('commit')
    expect(await migrating).toEqual([repeatable])
    await stop()
  })

  it('names a half-migrated schema, and the first missing file', async () => {
    await migrate(database.url)
    await client.query('delete from migrations where name = $1', [files[4]])
    const line = `DATABASE_URL: the database is half-migrated: it has migration ${files.at(-1)}, but lacks ${files[4]}; restore a backup`
    await expect(migrate(database.url)).rejects.toThrow(line)
    await client.query('drop table migrations')
    await expect(migrate(database.url)).rejects.toThrow(
      'half-migrated: it has the table apps, but no migration is applied',
    )
  })

  it('names a read-only database, with MIGRATE=off, too', async () => {
    await migrate(database.url)
    const name = new URL(database.url).pathname.slice(1)
    await client.query(`alter database "${name}" set default_transaction_read_only = on`)
    const line = /^DATABASE_URL: the database at postgres:.* is read-only; allow writes/
    await expect(migrate(database.url)).rejects.toThrow(line)
    const starting = startTestCore({ DATABASE_URL: database.url, MIGRATE: 'off' })
    await expect(starting).rejects.toThrow(line)
  })

  it('names a wrong password, but not its value', async () => {
    const url = Object.assign(new URL(database.url), { password: 'not-the-password' }).href
    const failure = await migrate(url).catch((error: unknown) => String(error))
    expect(failure).toMatch(/DATABASE_URL: cannot use the database at .*password authentication/)
    expect(failure).not.toContain('not-the-password')
  })

  it('rejects the schema of a version before 0.1.0, and changes nothing', async () => {
    await client.query('create table migrations (name text primary key, applied_at timestamptz)')
    await record('0001_identity.sql')
    await record('0002_keys.sql')
    await expect(migrate(database.url)).rejects.toThrow(
      'DATABASE_URL: the database has the schema of a version before 0.1.0 (migration 0002_keys.sql); use an empty database',
    )
    expect(await recorded()).toEqual(['0001_identity.sql', '0002_keys.sql'])
  })
})

describe('a process with MIGRATE=off', () => {
  const late = files.slice(-2)

  it('refuses an empty database and an older schema, naming the first missing file, and changes nothing', async () => {
    await expect(requireMigrated(database.url)).rejects.toThrow(
      `DATABASE_URL: the database lacks migration ${files[0]} and ${files.length - 1} more, and MIGRATE is off; run \`tollgate migrate\` first`,
    )
    expect(await listMissing(database.url)).toEqual(files)
    await migrate(database.url)
    await client.query('delete from migrations where name = any($1)', [late])
    await expect(requireMigrated(database.url)).rejects.toThrow(
      `lacks migration ${late[0]} and 1 more`,
    )
    expect(await recorded()).toEqual(files.slice(0, -2))
  })

  it('starts as core only on a schema that is up to date', async () => {
    const env = { DATABASE_URL: database.url, MIGRATE: 'off' }
    await expect(startTestCore(env)).rejects.toThrow('run `tollgate migrate` first')
    await migrate(database.url)
    await (await startTestCore(env)).stop()
  })

  it('accepts the schema of its release, and of a newer one that it runs on', async () => {
    await migrate(database.url)
    await record('0999_later.sql', '99.0.0', version)
    await expect(requireMigrated(database.url)).resolves.toBeUndefined()
    expect(await listMissing(database.url)).toEqual([])
  })
})

describe('tollgate migrate', () => {
  it('lists what is missing, applies it, and has nothing left to do', async () => {
    vi.stubEnv('DATABASE_URL', database.url)
    const lines = (outcome: string): string => files.map((name) => `${name}  ${outcome}\n`).join('')
    expect(await tollgate('migrate', '--dry-run')).toEqual({ code: 0, text: lines('is missing') })
    expect(await tollgate('migrate')).toEqual({ code: 0, text: lines('applied') })
    const done = { code: 0, text: 'The schema is up to date.\n' }
    expect(await tollgate('migrate')).toEqual(done)
    expect(await tollgate('migrate', '--dry-run')).toEqual(done)
    expect(JSON.parse((await tollgate('migrate', '--json')).text)).toEqual({ applied: [] })
    vi.unstubAllEnvs()
  })

  it('needs DATABASE_URL, and reports a database that does not answer', async () => {
    vi.stubEnv('DATABASE_URL', '')
    expect((await tollgate('migrate')).text).toContain('DATABASE_URL is not set')
    vi.stubEnv('DATABASE_URL', 'postgres://127.0.0.1:1/none')
    const { code, text } = await tollgate('migrate')
    expect([code, text]).toEqual([1, expect.stringContaining('cannot use the database at')])
    vi.unstubAllEnvs()
  })
})
