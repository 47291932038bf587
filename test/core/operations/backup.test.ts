import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { restoreBackup } from '../../../core/operations/backup/restore.ts'
import { applyWithin, migrate, migrationNames } from '../../../core/db/migrate.ts'
import { type Pool, createPool, tx } from '../../../core/lib/sql.ts'
import { createPartition } from '../../../core/metering/ingest/partition-store.ts'
import { sealedTables } from '../../../core/sealed-tables.ts'
import { createDatabase } from '../../support/run/postgres.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { expectRightBooks } from '../balances/ledger/owner-world.ts'
import { type BooksWorld, startBooks, tollgate } from '../books/support.ts'
import { bearerOf, outcome, pepper, second, startProxy, startTestCore } from '../support.ts'

const own = {
  KEY_ENCRYPTION_KEY: 'sealing-key-of-the-core-tests-0123456789',
  SECRET_PEPPERS: `p1:${pepper}`,
}
/** Secrets of another deployment; its pepper has the same id. */
const others = {
  KEY_ENCRYPTION_KEY: registerSecret('key-encryption-key-of-the-other-deployment'),
  SECRET_PEPPERS: `p1:${registerSecret('pepper-of-the-other-deployment-0123456789')}`,
}
const passphrase = registerSecret('correct horse battery staple')

let world: BooksWorld
let folder: string
let file: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-backup-'))
  file = join(folder, 'all.backup')
  world = await startBooks()
})
afterAll(async () => {
  await world.stop()
  await rm(folder, { recursive: true })
})

interface Settings {
  readonly url: string
  readonly secrets?: Readonly<Record<string, string>>
  readonly passphrase?: string
}

async function run(settings: Settings, ...argv: string[]) {
  const { secrets = own } = settings
  vi.stubEnv('DATABASE_URL', settings.url)
  vi.stubEnv('PASSPHRASE', settings.passphrase ?? passphrase)
  vi.stubEnv('TOLLGATE_DATA_DIR', join(folder, 'none'))
  for (const [name, value] of Object.entries(secrets)) vi.stubEnv(name, value)
  return tollgate(...argv)
}

/** Runs `work` with an empty database, by default with the schema of this release. */
async function withDatabase(work: (url: string, sql: Pool) => Promise<void>, isBare = false) {
  const database = await createDatabase()
  const sql = openPool(database.url)
  try {
    if (isBare) await sql.query('drop schema public cascade; create schema public')
    await work(database.url, sql)
  } finally {
    await sql.end()
    await database.drop()
  }
}

const openPool = (url: string): Pool => {
  const pool = createPool({ url, max: 2, name: 'test', statementTimeoutMs: 30_000 })
  return pool.on('error', () => {})
}

const keyOf = (n: number) => ({
  clientId: world.app.clientId,
  externalUserId: 'ada',
  idempotencyKey: `key-${n}`,
})

/** Ingests tickets without a pause until it is stopped. */
function ingestMeanwhile() {
  const ingest = { isOver: false }
  let tickets = 0
  const work = (async () => {
    while (!ingest.isOver) {
      tickets += (await world.ingest({}, {}, { auth_id: `${world.app.clientId}:bob` })).tickets
      world.clock.advance(second)
    }
  })()
  const stop = async () => {
    ingest.isOver = true
    await work
  }
  return { stop, tickets: () => tickets }
}

const entries = `select app_id, user_id, seq, encode(hash, 'hex') as hash from ledger_entries order by 1, 2, 3`
const texts = async (sql: Pool, text: string): Promise<string[]> =>
  (await sql.query<object>(text)).rows.map((row) => Object.values(row).join(' '))

describe('a backup', { timeout: 120_000 }, () => {
  it('is written while core ingests, and has the books as of one instant', async () => {
    const rpcs = world.as(world.app.basic)
    await rpcs.upsertUser({ clientId: world.app.clientId, externalUserId: 'ada' })
    const key = await rpcs.createKey(keyOf(1))
    const token = await rpcs.mintUserToken({
      clientId: world.app.clientId,
      externalUserId: 'ada',
    })
    const ingest = ingestMeanwhile()
    await vi.waitFor(() => expect(ingest.tickets()).toBeGreaterThan(10), { timeout: 10_000 })
    const before = ingest.tickets()
    const written = await run({ url: world.databaseUrl }, 'backup', '--out', file, '--json')
    const after = ingest.tickets()
    await ingest.stop()
    expect(after).toBeGreaterThan(before)
    const { sha256, bytes } = JSON.parse(written.text)
    const content = await readFile(file)
    expect([bytes, sha256]).toEqual([
      content.length,
      createHash('sha256').update(content).digest('hex'),
    ])
    await withDatabase(async (url, sql) => {
      expect(await run({ url, secrets: others }, 'restore', file)).toMatchObject({ code: 0 })
      const copied = await texts(sql, 'select count(*) from tickets')
      expect(Number(copied[0])).toBeGreaterThanOrEqual(before)
      expect(Number(copied[0])).toBeLessThanOrEqual(after + 3)
      const [all, some] = [await texts(world.sql, entries), await texts(sql, entries)]
      expect(some.length).toBeGreaterThan(10)
      expect(all).toEqual(expect.arrayContaining(some))
      const other = await startTestCore({ DATABASE_URL: url, ...others })
      try {
        vi.stubEnv('CORE_TARGET', other.core.target)
        await expectRightBooks()
        // The stored reply opens, and the key, the client's secret and the token are accepted.
        const moved = other.as(world.app.basic)
        expect(await moved.createKey(keyOf(1))).toEqual(key)
        await moved.createKey(keyOf(2))
        expect(await other.as().verifyApiKey({ apiKey: key.apiKey })).toBeTruthy()
        expect(await outcome(other.as(bearerOf(token.accessToken)).getOwnBalance())).toBe('OK')
        expect((await tollgate('keys', 'rewrap', '--check')).code).toBe(0)
      } finally {
        vi.stubEnv('CORE_TARGET', world.core.target)
        await other.stop()
      }
    })
  }, 120_000)

  it('is not written with a wrong KEY_ENCRYPTION_KEY or without PASSPHRASE', async () => {
    const out = join(folder, 'never.backup')
    const url = world.databaseUrl
    const wrong = await run({ url, secrets: others }, 'backup', '--out', out)
    expect(wrong).toMatchObject({ code: 1, text: expect.stringContaining('KEY_ENCRYPTION_KEY') })
    const short = await run({ url, passphrase: 'short' }, 'backup', '--out', out)
    expect(short.text).toContain('PASSPHRASE must have at least 12 characters')
    const again = await run({ url }, 'backup', '--out', file)
    expect(again.text).toContain('exists; --force replaces it')
    expect((await readdir(folder)).filter((name) => name.startsWith('never'))).toEqual([])
  })

  it('restores nothing from a file that is damaged, cut off or of a newer release', async () => {
    const content = await readFile(file)
    const flipped = Buffer.from(content)
    flipped.writeUInt8((flipped[content.length >> 1] ?? 0) ^ 1, content.length >> 1)
    const added = Buffer.concat([content, randomBytes(9)])
    const damages: readonly (readonly [Buffer, string])[] = [
      [flipped, 'was changed'],
      [content.subarray(0, content.length - 30), 'its end is missing'],
      [added, 'added behind its end'],
      [Buffer.from('a text\n'), 'not a file of `tollgate backup`'],
      [Buffer.concat([Buffer.from('tollgate-backup 9\n'), content.subarray(18)]), 'has format 9'],
    ]
    await withDatabase(async (url, sql) => {
      for (const [bytes, problem] of damages) {
        const damaged = join(folder, 'damaged.backup')
        await writeFile(damaged, bytes)
        const refused = await run({ url }, 'restore', damaged)
        expect([refused.code, refused.text]).toEqual([1, expect.stringContaining(problem)])
        expect(refused.text.trim().split('\n')).toHaveLength(1)
      }
      const wrong = await run({ url, passphrase: 'another passphrase' }, 'restore', file)
      expect(wrong.text).toContain('PASSPHRASE is not the one')
      expect(await texts(sql, 'select count(*) from apps')).toEqual(['0'])
    })
  })

  it('is checked without a database', async () => {
    expect(await run({ url: 'postgres://nowhere' }, 'restore', file, '--check')).toMatchObject({
      code: 0,
      text: expect.stringContaining('checked'),
    })
  })

  it('fills no database that has rows', async () => {
    const refused = await run({ url: world.databaseUrl }, 'restore', file)
    expect([refused.code, refused.text]).toEqual([1, expect.stringContaining('is not empty')])
    await withDatabase(async (url, sql) => {
      await sql.query('create table notes (id int)')
      const foreign = await run({ url }, 'restore', file)
      expect(foreign.text).toContain('it has the table notes')
    }, true)
  })

  it('leaves nothing when the connection is lost, and is restored by a repeat', async () => {
    await withDatabase(async (url, sql) => {
      const direct = new URL(url)
      const proxy = await startProxy({ host: direct.hostname, port: Number(direct.port) })
      const proxied = new URL(url)
      proxied.host = `127.0.0.1:${proxy.port}`
      const pool = openPool(proxied.href)
      const request = {
        file,
        passphrase,
        secrets: { sealingSecrets: [own.KEY_ENCRYPTION_KEY], peppers: { p1: pepper } },
        sealedTables,
        createPartition,
      }
      const cut = ({ table }: { table: string | null }): void => {
        if (table === 'tickets') proxy.mode('pass')
      }
      await expect(restoreBackup(pool, { ...request, onProgress: cut })).rejects.toThrow(
        /terminat/i,
      )
      expect(await texts(sql, `select to_regclass('apps') is null as gone`)).toEqual(['true'])
      const { rows } = await restoreBackup(pool, { ...request, onProgress: () => {} })
      expect(rows).toBeGreaterThan(10)
      await pool.end()
      proxy.stop()
    }, true)
  })

  it('of an older schema is restored to that schema, and migrated', async () => {
    const old = join(folder, 'old.backup')
    const names = await migrationNames()
    await withDatabase(async (url, sql) => {
      await tx(sql, (db) => applyWithin(db, names.slice(0, 20)))
      await sql.query(
        `insert into accounts (id, email, created_at) values (gen_random_uuid(), 'old@example.com', now())`,
      )
      expect(await run({ url }, 'backup', '--out', old)).toMatchObject({ code: 0 })
    }, true)
    await withDatabase(async (url, sql) => {
      expect(await run({ url }, 'restore', old)).toMatchObject({ code: 0 })
      expect(await texts(sql, 'select email from accounts')).toEqual(['old@example.com'])
      expect(await migrate(url)).toEqual([])
    }, true)
    await withDatabase(async (url) => {
      const refused = await run({ url }, 'restore', old)
      expect(refused.text).toContain('which is newer than the file; restore into a new database')
    })
  })
})
