import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  type BooksChunk,
  type BooksManifest,
  readBooksFile,
  writeBooksFile,
} from '../../../core/books/transfer/books-file.ts'
import { history, notExported } from '../../../core/books/transfer/tables.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { createDatabase } from '../../support/run/postgres.ts'
import { expectRightBooks } from '../balances/ledger/owner-world.ts'
import {
  type CollectionWorld,
  type Payer,
  startCollections,
  usd,
} from '../billing/collection/world.ts'
import { day, second, startTestCore } from '../support.ts'
import { buildRoots, tollgate } from './support.ts'

let world: CollectionWorld
let folder: string
let ada: Payer
const path = (name: string) => join(folder, name)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-books-'))
  world = await startCollections()
})

async function live(): Promise<void> {
  ada = await world.payer(await world.merchant(), { threshold: usd(1_000) })
  await world.spend(ada, 5)
  await world.settled(ada.user)
  // A refund with its credit note, a failed charge, a void invoice and a checkout.
  const [payment] = await world.rows('select processor_id from payments')
  world.stripe.refundPayment(ada.at, payment?.['processor_id'] ?? '', 400)
  const notes = async () => (await world.rows('select id from payment_returns')).length
  await expect.poll(notes, { timeout: 10_000 }).toBe(1)
  const bob = await world.payer(ada.merchant, { name: 'bob', card: 'card_declined' })
  await world.spend(bob, 3)
  const states = async () => (await world.collections(bob.user)).map(({ state }) => state)
  await expect.poll(states, { timeout: 10_000 }).toEqual(['retrying'])
  const [owed] = await world.rows(`select id from invoices where user_id = $1`, [bob.user.userId])
  await world.operator.invoices.voidInvoice({
    clientId: bob.merchant.clientId,
    invoiceId: owed?.['id'] ?? '',
    reason: 'a mistake',
  })
  const shop = await world.merchant({ isTest: true })
  await world.operator.testClocks.advanceTestClock({
    clientId: shop.clientId,
    move: { to: undefined, advanceSeconds: 3_600 },
  })
  // The second plan is paid in part by the unused time of the first one.
  const seller = await world.merchant({ isOwned: false })
  const cas = await world.payer(seller, { name: 'cas' })
  await world.changePlan(cas, await world.plan(seller, '30.00'))
  world.clock.advance(day)
  await world.changePlan(cas, await world.plan(seller, '60.00'))
  await world.sql.query(
    `insert into checkouts (app_id, user_id, id, opened_by, purpose, amount_cents, plane, account_id, processor_id, url, success_url,
                            cancel_url, state, created_at, check_at)
     values ($1, $2, gen_random_uuid(), $1, 'top_up', 500, 'live', $3, 'cs_1', 'https://pay.example/secret-page', 'https://a.example',
             'https://b.example', 'open', now(), now() + interval '1 day')`,
    [ada.user.appId, ada.user.userId, ada.at.account],
  )
  await world.sql.query(
    `update accounts set password_hash = '$scrypt$a-password-hash' where email = $1`,
    [ada.merchant.email],
  )
  world.clock.advance(day + second)
  await buildRoots(world)
  await tollgate('verify', '--head')
  await expectRightBooks()
}
afterAll(async () => {
  await world.stop()
  await rm(folder, { recursive: true })
})

async function run(url: string, ...argv: string[]) {
  vi.stubEnv('DATABASE_URL', url)
  const printed = await tollgate('books', ...argv)
  return { ...printed, url }
}

const linesOf = async (name: string): Promise<string[]> =>
  zstdDecompressSync(await readFile(path(name)))
    .toString()
    .trimEnd()
    .split('\n')

/** The number of rows of each table of a file. */
async function countRows(name: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for await (const part of readBooksFile(path(name)))
    if ('table' in part) counts[part.table] = (counts[part.table] ?? 0) + part.lines.length
  return counts
}

/** Copies a file, with another manifest. */
async function rewrite(change: (manifest: BooksManifest) => BooksManifest): Promise<string> {
  const name = 'changed.ndjson.zst'
  const parts = readBooksFile(path('books.ndjson.zst'))
  const { value: manifest } = await parts.next()
  await writeBooksFile(path(name), change(manifest as BooksManifest), {
    name,
    chunks: parts as AsyncGenerator<BooksChunk>,
  })
  return path(name)
}

describe('a books file', () => {
  it('is written while the service runs', async () => {
    await live()
    const out = path('books.ndjson.zst')
    expect(await run(world.databaseUrl, 'export', '--out', out)).toMatchObject({ code: 0 })
    const again = await run(world.databaseUrl, 'export', '--out', out)
    expect([again.code, again.text]).toEqual([1, expect.stringContaining('exists')])
  }, 120_000)

  it('restores every row in an empty database, where verify finds no difference', async () => {
    const target = await createDatabase()
    expect(await run(target.url, 'import', path('books.ndjson.zst'))).toMatchObject({ code: 0 })
    expect(await run(target.url, 'export', '--out', path('again.ndjson.zst'))).toMatchObject({
      code: 0,
    })
    const [before, after] = [await linesOf('books.ndjson.zst'), await linesOf('again.ndjson.zst')]
    const counts = await countRows('again.ndjson.zst')
    expect(counts).toEqual(await countRows('books.ndjson.zst'))
    // The first line is the manifest, the last has the checksum of all, manifest included.
    expect(after.slice(1, -1)).toEqual(before.slice(1, -1))
    expect(Object.keys(counts)).toEqual(Object.keys(history))
    for (const table of [
      'tickets',
      'ledger_entries',
      'invoices',
      'invoice_lines',
      'payments',
      'payment_returns',
      'payment_attempts',
      'collections',
      'plan_orders',
      'prorations',
      'checkouts',
      'processor_customers',
      'processor_accounts',
      'receipt_roots',
      'checkpoints',
      'test_clock_moves',
      'audit_log',
    ])
      expect([table, counts[table]]).not.toEqual([table, 0])
    const other = await startTestCore({ ...world.stripe.env, DATABASE_URL: target.url })
    try {
      vi.stubEnv('CORE_TARGET', other.core.target)
      await expectRightBooks()
      // Generated ids continue.
      const { rows } = await other.sql.query<{ id: bigint }>(
        `insert into rates (usd_attos_per_eth, source, observed_at) values (1, 'later', now()) returning id`,
      )
      const [last] = await world.rows('select max(id) as id from rates')
      expect(rows[0]?.id).toBeGreaterThan(BigInt(last?.['id'] ?? ''))
    } finally {
      vi.stubEnv('CORE_TARGET', world.core.target)
      await other.stop()
      await target.drop()
    }
  }, 120_000)

  it('has no secret', async () => {
    const text = (await linesOf('books.ndjson.zst')).join('\n')
    const columns = await world.rows(
      `select c.table_name, c.column_name, c.data_type from information_schema.columns c
       where c.table_schema = current_schema() and c.table_name = any($1)
         and c.column_name ~ '(hash|sealed|secret|csrf_token|^key$)' and c.data_type in ('bytea', 'text')`,
      [Object.keys(notExported)],
    )
    const secrets = ['$scrypt$a-password-hash', 'https://pay.example/secret-page']
    for (const { table_name: table, column_name: column, data_type: type } of columns) {
      const value = type === 'bytea' ? `encode("${column}", 'hex')` : `"${column}"`
      const found = await world.rows(
        `select ${value} as value from "${table}" where length(${value}) >= 24 limit 100`,
      )
      secrets.push(...found.map((row) => row['value'] ?? ''))
    }
    expect(secrets.length).toBeGreaterThan(5)
    expect(secrets.filter((value) => text.includes(value))).toEqual([])
  })

  it('fills no database that has rows', async () => {
    const again = await run(world.databaseUrl, 'import', path('books.ndjson.zst'))
    expect([again.code, again.text]).toEqual([1, expect.stringContaining('is not empty')])
  })

  it('changes nothing when it is damaged or of another release', async () => {
    const target = await createDatabase()
    const lines = await linesOf('books.ndjson.zst')
    const at = lines.findIndex((line) => line.includes('"INV-') || line.startsWith('["'))
    lines[at] = (lines[at] ?? '').replace(/\d/, (digit) => String((Number(digit) + 1) % 10))
    await writeFile(path('damaged.ndjson.zst'), zstdCompressSync(`${lines.join('\n')}\n`))
    const damaged = await run(target.url, 'import', path('damaged.ndjson.zst'))
    expect([damaged.code, damaged.text]).toEqual([1, expect.stringContaining('checksum')])
    const old = await rewrite((manifest) => ({ ...manifest, migration: '0001_identity.sql' }))
    const refused = await run(target.url, 'import', old)
    expect([refused.code, refused.text]).toEqual([1, expect.stringContaining('0001_identity')])
    const sql = createPool({ url: target.url, max: 1, name: 'test', statementTimeoutMs: 5_000 })
    const { rows } = await sql.query('select from apps')
    expect(rows).toHaveLength(0)
    await sql.end()
    await target.drop()
  })

  it('passes the transaction ids of its cluster, up to a bound', async () => {
    const target = await createDatabase()
    const ahead = (by: bigint) => (manifest: BooksManifest) => ({
      ...manifest,
      transaction: String(BigInt(manifest.transaction) + by),
    })
    const far = await run(target.url, 'import', await rewrite(ahead(10n ** 12n)))
    expect([far.code, far.text]).toEqual([1, expect.stringContaining('pg_resetwal')])
    const file = await rewrite(ahead(20_000n))
    expect(await run(target.url, 'import', file)).toMatchObject({ code: 0 })
    const sql = createPool({ url: target.url, max: 1, name: 'test', statementTimeoutMs: 5_000 })
    const { rows } = await sql.query<{ id: string }>('select pg_current_xact_id()::text as id')
    const { value } = await readBooksFile(file).next()
    expect(BigInt(rows[0]?.id ?? '')).toBeGreaterThanOrEqual(
      BigInt((value as BooksManifest).transaction),
    )
    await sql.end()
    await target.drop()
  })
})

describe('the tables of the schema', () => {
  it('are each in one list', async () => {
    const rows = await world.rows(
      `select relname from pg_class where relkind in ('r', 'p') and not relispartition
         and relnamespace = current_schema()::regnamespace order by 1`,
    )
    const listed = [...Object.keys(history), ...Object.keys(notExported)]
    expect(rows.map(({ relname }) => relname)).toEqual(listed.sort())
  })

  it('are exported without columns that sound secret, unless they are hashes of facts', async () => {
    const rows = await world.rows(
      `select table_name || '.' || column_name as name from information_schema.columns
       where table_schema = current_schema() and table_name = any($1)
         and column_name ~ '(secret|password|token|sealed|private|pepper|hash|key|url)'
       order by 1`,
      [Object.keys(history)],
    )
    const omitted = Object.entries(history).flatMap(([table, { without = [] }]) =>
      without.map((column) => `${table}.${column}`),
    )
    const names = rows.map(({ name }) => name ?? '')
    expect(names.filter((name) => !omitted.includes(name))).toEqual(harmless)
  })
})

/** Hashes of rows, addresses of apps and signers, and ids. */
const harmless = [
  'apps.dmz_url',
  'apps.website_url',
  'authorisations.key_id',
  'balances.head_hash',
  'book_heads.hash',
  'checkouts.cancel_url',
  'checkouts.success_url',
  'checkpoints.prices_hash',
  'checkpoints.receipt_hash',
  'end_users.tokens_valid_after',
  'envelopes.key',
  'grants.feature_key',
  'ledger_entries.hash',
  'ledger_entries.tickets_hash',
  'limits.key_id',
  'plans.name_key',
  'price_chain.hash',
  'price_heads.hash',
  'receipt_chunks.hash',
  'receipt_roots.root_hash',
  'tickets.orch_url',
]
