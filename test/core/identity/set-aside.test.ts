import { readFile, readdir } from 'node:fs/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { migrate } from '../../../core/db/migrate.ts'
import { restoreSetAside } from '../../../core/identity/accounts/set-aside.ts'
import { type Log, silentLog } from '../../../core/lib/log.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { type TestDatabase, createDatabase } from '../../support/postgres.ts'

const folder = new URL('../../../core/db/migrations/', import.meta.url)
let database: TestDatabase

beforeAll(async () => {
  database = await createDatabase()
})
afterAll(() => database.drop())

it('keeps every account in an upgrade and logs those that lost their address', async () => {
  const client = new Client({ connectionString: database.url })
  await client.connect()
  await client.query('drop schema public cascade')
  await client.query('create schema public')
  await client.query(
    'create table migrations (name text primary key, applied_at timestamptz default now())',
  )
  for (const name of (await readdir(folder)).toSorted().filter((file) => file < '0018')) {
    await client.query(await readFile(new URL(name, folder), 'utf8'))
    await client.query('insert into migrations (name) values ($1)', [name])
  }
  const add = (email: string, day: number) =>
    client.query(
      `insert into accounts (id, email, password_hash, created_at)
       values ($1, $2, 'kept', make_date(2026, 1, $3))`,
      [`00000000-0000-7000-8000-00000000000${day}`, email, day],
    )
  await add('Ada@Example.com', 1)
  await add(' ada@example.com', 2)
  await add('İda@example.com', 3)
  await add('Kim@Bücher.example', 4)
  await add('eve@bücher.example', 5)
  await add('eve@xn--bcher-kva.example', 6)
  await migrate(database.url)
  const pool = createPool({ url: database.url, max: 2, name: 'test', statementTimeoutMs: 10_000 })
  const lines: string[] = []
  const log: Log = silentLog()
  log.warn = (_: unknown, line?: unknown) => void lines.push(String(line))
  await restoreSetAside(pool, log)
  const { rows } = await client.query(
    'select email, password_hash from accounts order by created_at',
  )
  expect(rows.map(({ email }) => email)).toEqual([
    'ada@example.com',
    '00000000-0000-7000-8000-000000000002@set-aside.invalid',
    '00000000-0000-7000-8000-000000000003@set-aside.invalid',
    'kim@xn--bcher-kva.example',
    '00000000-0000-7000-8000-000000000005@set-aside.invalid',
    'eve@xn--bcher-kva.example',
  ])
  expect(rows.every(({ password_hash }) => password_hash === 'kept')).toBe(true)
  expect(
    lines.map((line) => /its e-mail address (.*); .*--id (\S+) --new/.exec(line)?.slice(1)),
  ).toEqual([
    ['also belongs to an older account', '00000000-0000-7000-8000-000000000002'],
    ['is not a usable address', '00000000-0000-7000-8000-000000000003'],
    ['also belongs to another account', '00000000-0000-7000-8000-000000000005'],
  ])
  for (const email of ['Ada@example.com', 'İda@example.com', 'ada', 'ada@x y'])
    await expect(
      client.query(
        'insert into accounts (id, email, created_at) values (gen_random_uuid(), $1, now())',
        [email],
      ),
    ).rejects.toThrow('accounts_email_normal')
  await pool.end()
  await client.end()
})
