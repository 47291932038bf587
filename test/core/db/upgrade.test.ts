import { readFile, readdir } from 'node:fs/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { migrate } from '../../../core/db/migrate.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { createDatabase } from '../../support/postgres.ts'
import { type BooksWorld, startBooks, tollgate } from '../books/support.ts'
import { begin, day, serviceToken } from '../support.ts'

/**
 * Upgrades a database from before plans had names, versions and prices of their own (0035 to 0037).
 */

const lastBefore = '0034'
const folder = new URL('../../../core/db/migrations/', import.meta.url)
const users = ['ada', 'bob', 'cyd']

let old: Client
let before: ReadonlyMap<string, TableState>
let after: ReadonlyMap<string, TableState>
let app: BooksWorld['app']
let world: BooksWorld
let balances: readonly unknown[]
const stops: (() => Promise<unknown>)[] = []
beforeAll(async () => {
  const database = await createDatabase()
  stops.push(database.drop)
  old = await connectTo(database.url)
  stops.push(() => old.end())
  await old.query('drop schema public cascade; create schema public')
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  await old.query(
    'create table migrations (name text primary key, applied_at timestamptz default now())',
  )
  for (const name of names.filter((each) => each < `${lastBefore}~`)) {
    await old.query('insert into migrations (name) values ($1)', [name])
    await old.query(await readFile(new URL(name, folder), 'utf8'))
  }
  balances = await fill(old)
  const columns = await columnsOf(old)
  before = await photograph(old, columns)
  await migrate(database.url)
  after = await photograph(old, columns)
  world = await startBooks({ DATABASE_URL: database.url })
  stops.push(world.stop)
}, 120_000)
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop()
})

async function connectTo(url: string): Promise<Client> {
  const client = new Client({ connectionString: url })
  await client.connect()
  return client
}

type Columns = ReadonlyMap<string, readonly string[]>

/** The writable columns of every table. Partitions count as part of their table. */
async function columnsOf(db: Client): Promise<Columns> {
  const { rows } = await db.query<{ name: string; columns: string[] }>(
    `select c.relname as name, array_agg(quote_ident(a.attname) order by a.attname) as columns
     from pg_class c
     join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
     where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
       and c.relname <> 'migrations'
     group by 1 order by 1`,
  )
  return new Map(rows.map(({ name, columns }) => [name, columns]))
}

interface TableState {
  readonly count: number
  readonly hash: string | null
}

/** The number of rows of every table, and a hash of the values in these columns. */
async function photograph(db: Client, columns: Columns): Promise<Map<string, TableState>> {
  const states = new Map<string, TableState>()
  for (const [name, own] of columns) {
    const { rows } = await db.query<TableState>(
      `select count(*)::int as count, md5(string_agg(t::text, E'\\n' order by t::text)) as hash
       from (select ${own.join(', ')} from ${name}) t`,
    )
    if (rows[0]) states.set(name, rows[0])
  }
  return states
}

/**
 * Fills the old database with the data of a service of that version: users in their second period,
 * one who has overspent, one with credit, one without any. Returns their balances.
 */
async function fill(target: Client): Promise<unknown[]> {
  const writer = await startBooks()
  try {
    const as = writer.as(writer.app.basic)
    const of = (externalUserId: string) => ({ clientId: writer.app.clientId, externalUserId })
    for (const user of users) await as.upsertUser(of(user))
    const ticket = (user: string, micros: bigint) =>
      writer.ingest({
        auth_id: `${writer.app.clientId}:${user}`,
        computed_fee: String((micros * 10n ** 12n) / 3_000n),
        current_time: writer.clock.now().toISOString(),
      })
    await ticket('ada', 6_000_000n)
    await as.createGrant({ ...of('bob'), amountUsdMicros: '250000', source: 'manual' })
    writer.clock.advance(40 * day)
    await ticket('ada', 1_000_000n)
    await ticket('bob', 5_100_000n)
    const answers = await Promise.all(users.map((user) => as.getBalance(of(user))))
    app = writer.app
    const source = await connectTo(writer.databaseUrl)
    await copyTo(target, source).finally(() => source.end())
    return answers.map(({ balance }) => balance)
  } finally {
    await writer.stop()
  }
}

/**
 * The Network Price plan and the chain of this ledger, with retail prices in its entries, were
 * added after 0034.
 */
const asItWas: Readonly<
  Record<string, { where?: string; values?: Readonly<Record<string, string>> }>
> = {
  plans: { where: 'not is_network_default' },
  plan_versions: {
    where: 'plan_id not in (select id from plans where is_network_default)',
  },
  ledger_entries: { values: { hash: 'null', tickets_hash: 'null' } },
  balances: { values: { head_hash: 'null', unchained_seq: 'seq' } },
}

async function copyTo(target: Client, source: Client): Promise<void> {
  const [wanted, there] = [await columnsOf(target), await columnsOf(source)]
  const { rows: partitions } = await source.query<{ name: string; parent: string; bound: string }>(
    `select c.relname as name, i.inhparent::regclass::text as parent, pg_get_expr(c.relpartbound, c.oid) as bound
     from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where c.relispartition and c.relkind in ('r', 'p') order by c.oid`,
  )
  for (const { name, parent, bound } of partitions)
    if (wanted.has(parent))
      await target.query(`create table if not exists ${name} partition of ${parent} ${bound}`)
  await target.query('set session_replication_role = replica')
  for (const [name, columns] of wanted) {
    const shared = columns.filter((column) => there.get(name)?.includes(column))
    const { where = 'true', values = {} } = asItWas[name] ?? {}
    const list = shared.map((column) => `${values[column] ?? column} as ${column}`).join(', ')
    const { rows } = await source.query<{ rows: string }>(
      `select coalesce(jsonb_agg(to_jsonb(t)), '[]')::text as rows from (select ${list} from ${name} where ${where}) t`,
    )
    await target.query(`delete from ${name}`)
    await target.query(
      `insert into ${name} (${shared.join(', ')}) overriding system value
       select ${shared.join(', ')} from jsonb_populate_recordset(null::${name}, $1)`,
      [rows[0]?.rows],
    )
  }
  await target.query('set session_replication_role = origin')
}

describe('upgrade of a database without plan versions', () => {
  it('starts with rows in the changed tables', () => {
    const sizes = ['plans', 'plan_versions', 'subscriptions', 'periods', 'grants', 'tickets'].map(
      (name) => before.get(name)?.count,
    )
    expect(sizes).toEqual([1, 1, 3, 6, 7, 3])
  })

  it('keeps the values of all columns', () => {
    expect([...after].filter(([name, state]) => !isSame(state, before.get(name)))).toEqual([])
  })

  it('returns the same balances and verifies its books', async () => {
    world.clock.set(new Date(begin.getTime() + 40 * day))
    expect(await balancesOf()).toEqual(balances)
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('accepts tickets, a new period and another plan', async () => {
    world.clock.set(new Date(begin.getTime() + 41 * day))
    const signedAt = world.clock.now().toISOString()
    const auth = (user: string) => `${app.clientId}:${user}`
    const events = users.map((user) => ({ auth_id: auth(user), current_time: signedAt }))
    expect(await world.ingest(...events)).toMatchObject({ tickets: 3 })
    const operator = connectCore({ target: world.core.target, token: serviceToken })
    const added = await operator.addPlan({
      clientId: app.clientId,
      planJson: JSON.stringify({ name: 'More', type: 'free', includedUsdMicros: '9000000' }),
    })
    await operator.switchSubscription({
      clientId: app.clientId,
      externalUserId: 'ada',
      planId: added.plan?.id ?? '',
      timing: 'next_billing_cycle',
      idempotencyKey: undefined,
    })
    operator.close()
    world.clock.set(new Date(begin.getTime() + 75 * day))
    const remaining = (await balancesOf()).map((balance) => balance?.balanceUsdMicros)
    expect(remaining[0]).toBe('9000000')
    expect(remaining[2]).toBe('5000000')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })
})

const isSame = (a: TableState, b: TableState | undefined): boolean =>
  a.count === b?.count && a.hash === b.hash

const balancesOf = () =>
  Promise.all(
    users.map(async (externalUserId) => {
      const of = { clientId: app.clientId, externalUserId }
      return (await world.as(app.basic).getBalance(of)).balance
    }),
  )
