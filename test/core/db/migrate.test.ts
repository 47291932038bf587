import { readdir } from 'node:fs/promises'
import { Client } from 'pg'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { migrate } from '../../../core/db/migrate.ts'
import { type TestDatabase, createDatabase } from '../../support/postgres.ts'

const folder = new URL('../../../core/db/migrations/', import.meta.url)
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

const record = (name: string) => client.query('insert into migrations (name) values ($1)', [name])

describe('migrate', () => {
  it('applies each file once when several processes start at the same time', async () => {
    const applied = await Promise.all([1, 2, 3].map(() => migrate(database.url)))
    expect(applied.flat().toSorted()).toEqual(files)
    expect(await recorded()).toEqual(files)
    expect(await migrate(database.url)).toEqual([])
  })

  it('accepts the schema of a newer release, which has more files', async () => {
    await migrate(database.url)
    await record('0999_later.sql')
    expect(await migrate(database.url)).toEqual([])
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
