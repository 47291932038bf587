import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { distribute } from '../../core/db/distribution/distribute.ts'
import { listPlacements, placeTables } from '../../core/db/distribution/place.ts'
import { tableKinds } from '../../core/db/distribution/tables.ts'
import { migrate } from '../../core/db/migrate.ts'
import { createEmptyDatabase } from '../support/run/citus-cluster.ts'
import type { TestDatabase } from '../support/run/postgres.ts'

const app = '01890000-0000-7000-8000-000000000001'
const user = '5f0c7a36-0000-4000-8000-000000000001'
const placedCount = Object.values(tableKinds).filter((kind) => kind !== 'local').length

let database: TestDatabase
let client: Client
beforeAll(async () => {
  database = await createEmptyDatabase(inject('parts').databaseUrl ?? '')
  await migrate(database.url)
  client = new Client({ connectionString: database.url })
  await client.connect()
  await client.query(`
    insert into apps (id, name, starter_usd_micros, created_at) values ('${app}', 'acme', 0, now());
    insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
    values ('${app}', '${user}', 'ada', 'active', now(), now());
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    values ('${app}', '${user}', now(), now(), now(), now())`)
}, 60_000)
afterAll(async () => {
  await client?.end()
  await database?.drop()
})

const address = () => ({ url: database.url, setting: 'DATABASE_URL' })

async function kindsInCluster(): Promise<Map<string, string>> {
  const { rows } = await client.query<{ table: string; kind: string }>(
    `select table_name::text as table, citus_table_type as kind from citus_tables`,
  )
  return new Map(rows.map((row) => [row.table, row.kind]))
}

describe('distribute', () => {
  it('lists every table in a dry run, and changes nothing', async () => {
    expect(await distribute(address(), { shards: 4, isDryRun: true })).toHaveLength(placedCount)
    expect(await kindsInCluster()).toEqual(new Map())
  })

  it('refuses while core is connected', async () => {
    const core = new Client({
      connectionString: database.url,
      application_name: 'tollgate-core',
    })
    await core.connect()
    await expect(distribute(address(), { shards: 4 })).rejects.toThrow(
      'DATABASE_URL: tollgate-core is connected to the database; stop every core and collector first',
    )
    await core.end()
  })

  it('continues after a crash, moves the rows, and then has nothing to do', async () => {
    const first = (await listPlacements(client)).slice(0, 15)
    await placeTables(client, first, 4)
    const rest = await distribute(address(), { shards: 4 })
    expect([...first, ...rest]).toHaveLength(placedCount)
    const kinds = await kindsInCluster()
    for (const [table, kind] of Object.entries(tableKinds))
      expect([table, kinds.get(table) ?? 'local']).toEqual([table, kind])
    const { rows } = await client.query(
      `select u.external_user_id from balances b join end_users u on u.app_id = b.app_id and u.id = b.user_id`,
    )
    expect(rows).toEqual([{ external_user_id: 'ada' }])
    expect(await distribute(address(), { shards: 4 })).toEqual([])
  }, 120_000)

  it('keeps the foreign keys between distributed tables', async () => {
    const { rows } = await client.query<{ name: string }>(
      `
      select conname as name
      from pg_constraint
      where contype = 'f' and conrelid = any($1::regclass[]) and confrelid = any($1::regclass[])
      order by conname`,
      [Object.keys(tableKinds).filter((table) => tableKinds[table] === 'distributed')],
    )
    expect(rows.map(({ name }) => name)).toEqual([
      'invoice_lines_invoice',
      'invoices_corrected',
      'payment_returns_payment',
      'payments_invoice',
    ])
  })

  it('stores the shards of all tables of an app on one node', async () => {
    const { rows } = await client.query<{ nodes: bigint }>(
      `
      select count(distinct s.nodeport) as nodes
      from citus_shards s
      where s.citus_table_type = 'distributed'
        and s.shardid = get_shard_id_for_distribution_column(s.table_name, $1::uuid)`,
      [app],
    )
    expect(rows[0]?.nodes).toBe(1n)
  })
})

describe('a migration after that', () => {
  it('gives its new tables their kind', async () => {
    await client.query('drop table prorations')
    await client.query(
      `create table prorations (app_id uuid not null, user_id uuid not null, primary key (app_id, user_id))`,
    )
    expect((await kindsInCluster()).has('prorations')).toBe(false)
    await migrate(database.url)
    expect((await kindsInCluster()).get('prorations')).toBe('distributed')
  })
})
