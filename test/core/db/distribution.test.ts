import { readFile } from 'node:fs/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { distribute } from '../../../core/db/distribution/distribute.ts'
import { groupConnected } from '../../../core/db/distribution/place.ts'
import { type TableKind, tableKinds } from '../../../core/db/distribution/tables.ts'
import { type TestDatabase, createDatabase } from '../../support/run/postgres.ts'

let database: TestDatabase
let client: Client
beforeAll(async () => {
  database = await createDatabase()
  client = new Client({ connectionString: database.url })
  await client.connect()
})
afterAll(async () => {
  await client.end()
  await database.drop()
})

const tablesOf = (kind: TableKind): string[] =>
  Object.keys(tableKinds).filter((table) => tableKinds[table] === kind)

async function listNames(text: string, values: unknown[] = []): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(text, values)
  return rows.map(({ name }) => name)
}

describe('the kinds of tables', () => {
  it('include every table of the schema and no other', async () => {
    const names = await listNames(`
      select relname as name
      from pg_class
      where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and not relispartition`)
    expect(names.length).toBeGreaterThan(100)
    expect(Object.keys(tableKinds).toSorted()).toEqual(names.toSorted())
  })

  it('leave no identity column on distributed and reference tables', async () => {
    const names = await listNames(
      `
      select attrelid::regclass || '.' || attname as name
      from pg_attribute
      where attidentity <> '' and attrelid = any($1::regclass[])`,
      [[...tablesOf('distributed'), ...tablesOf('reference')]],
    )
    expect(names).toEqual([])
  })

  it('have app_id in every unique index of a distributed table', async () => {
    const names = await listNames(
      `
      select i.indexrelid::regclass::text as name
      from pg_index i
      where i.indisunique and i.indrelid = any($1::regclass[]) and not exists (
        select
        from pg_attribute a
        where a.attrelid = i.indrelid and a.attname = 'app_id' and a.attnum = any(i.indkey))`,
      [tablesOf('distributed')],
    )
    expect(names).toEqual([])
  })

  it('refer to tables of their kind, or from distributed to reference tables', async () => {
    const { rows } = await client.query<{ name: string; from: string; to: string }>(`
      select conname as name, conrelid::regclass::text as from, confrelid::regclass::text as to
      from pg_constraint
      where contype = 'f' and conparentid = 0`)
    const kinds = rows.map(
      ({ name, from, to }) => `${name}: ${tableKinds[from]} to ${tableKinds[to]}`,
    )
    const refused =
      /: (distributed to local|reference to (local|distributed)|local to distributed)$/
    expect(kinds.length).toBeGreaterThan(40)
    expect(kinds.filter((text) => refused.test(text))).toEqual([])
  })

  it('have app_id first in every foreign key between distributed tables', async () => {
    const names = await listNames(
      `
      select k.conname as name
      from pg_constraint k
      join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
      join pg_attribute r on r.attrelid = k.confrelid and r.attnum = k.confkey[1]
      where k.contype = 'f' and k.conrelid = any($1::regclass[]) and k.confrelid = any($1::regclass[])
        and (a.attname, r.attname) <> ('app_id', 'app_id')`,
      [tablesOf('distributed')],
    )
    expect(names).toEqual([])
  })

  it('are those of docs/citus.md', async () => {
    const page = await readFile(new URL('../../../docs/citus.md', import.meta.url), 'utf8')
    const listOf = (title: string): string[] => {
      const [, item = ''] = new RegExp(`^- \\*\\*${title}\\*\\*([^]*?)\\.\\n`, 'm').exec(page) ?? []
      return [...item.slice(item.indexOf(': ')).matchAll(/`(\w+)`/g)].map(([, name = '']) => name)
    }
    expect(listOf('Distributed')).toEqual(tablesOf('distributed'))
    expect(listOf('Reference')).toEqual(tablesOf('reference'))
  })
})

describe('groupConnected', () => {
  const group = (...keys: [table: string, referenced: string][]) =>
    groupConnected(
      ['a', 'b', 'c', 'd', 'e'].map((table) => ({ table, kind: 'distributed' as const })),
      keys.map(([table, referenced]) => ({ table, referenced })),
    ).map((tables) => tables.map(({ table }) => table).join(''))

  it('leaves tables without foreign keys alone', () =>
    expect(group()).toEqual(['a', 'b', 'c', 'd', 'e']))

  it('joins tables that refer to each other, directly or through others', () => {
    expect(group(['b', 'd'])).toEqual(['a', 'bd', 'c', 'e'])
    expect(group(['a', 'c'], ['b', 'd'], ['d', 'c'])).toEqual(['acbd', 'e'])
    expect(group(['a', 'b'], ['c', 'd'], ['e', 'a'], ['e', 'd'])).toEqual(['abcde'])
  })
})

describe('distribute', () => {
  it('rejects a database without Citus, and names the setting', async () => {
    await expect(
      distribute({ url: database.url, setting: 'DATABASE_URL' }, { shards: 4 }),
    ).rejects.toThrow(
      'DATABASE_URL: the database does not have the extension citus; create it on each node first (docs/citus.md)',
    )
  })
})
