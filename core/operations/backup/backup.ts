import { to as copyTo } from 'pg-copy-streams'
import { type Db, type Pool, databaseTime, tx } from '../../lib/sql.ts'
import { writeWhole } from '../../lib/files/whole-file.ts'
import type { SealedTable } from '../../shared/sealing/rewrap.ts'
import {
  type SealedPlace,
  type Sealing,
  SealError,
  createSealing,
} from '../../shared/sealing/sealing.ts'
import { migrationNames } from '../../db/migrate.ts'
import * as tables from '../../db/whole-tables.ts'
import { type BackupRecord, writeBackupFile } from './backup-file.ts'
import * as catalog from './catalog.ts'

/** Secrets of a deployment that its database depends on. */
export interface DeploymentSecrets {
  /** Key-encryption keys, the current one first. */
  readonly sealingSecrets: readonly string[]
  readonly peppers: Readonly<Record<string, string>>
}

export interface BackupRequest {
  readonly file: string
  readonly passphrase: string
  readonly release: string
  readonly publicUrl: string | null
  readonly secrets: DeploymentSecrets
  /** Tables with values that a key-encryption key seals. */
  readonly sealedTables: readonly SealedTable[]
  readonly onProgress: (progress: BackupProgress) => void
}

export interface BackupProgress {
  readonly table: string
  /** Bytes of the tables before this one, and of all tables. */
  readonly done: number
  readonly total: number
}

export interface BackupSums {
  readonly at: string
  readonly migration: string
  readonly tables: number
  readonly rows: number
  readonly bytes: number
  readonly sha256: string
  /** What the deployment cannot open or verify already. */
  readonly warnings: readonly string[]
}

/**
 * Writes the whole database to a file, as of one instant and while the service runs. The keys and
 * peppers in `secrets` go with it. Throws if they do not open the sealed values.
 */
export async function writeBackup(pool: Pool, request: BackupRequest): Promise<BackupSums> {
  return writeWhole(request.file, (part) =>
    tx(pool, async (db) => {
      const sizes = await beginBackup(pool, db)
      const migrations = await requireKnownSchema(db)
      const warnings = await checkSecrets(db, request, migrations)
      const at = (await databaseTime(pool)).toISOString()
      const manifest = {
        ...request.secrets,
        release: request.release,
        migrations,
        at,
        ticketMonths: await tables.ticketMonths(db),
        transaction: String(await tables.nextTransaction(db)),
        publicUrl: request.publicUrl,
      }
      let rows = 0
      async function* records(): AsyncGenerator<BackupRecord> {
        yield { kind: 'manifest', manifest }
        for await (const record of readTables(db, sizes, request)) {
          if (record.kind === 'tableEnd') rows += record.rows
          yield record
        }
        // Read last, because sequences are not part of a snapshot: none may be behind its rows.
        const sequences = await catalog.listSequences(db)
        yield { kind: 'end', tables: sizes.length, sequences }
      }
      const size = await writeBackupFile(part, request.passphrase, records())
      const migration = migrations.at(-1) ?? ''
      return { at, migration, tables: sizes.length, rows, ...size, warnings }
    }),
  )
}

type TableSizes = Awaited<ReturnType<typeof catalog.listTables>>

/**
 * Locks all tables against changes of the schema and truncation, then begins the snapshot. Returns
 * the tables.
 */
async function beginBackup(pool: Pool, db: Db): Promise<TableSizes> {
  const names = (await catalog.listTables(pool)).map(({ name }) => tables.quoted(name))
  if (names.length === 0) throw new Error('the database has no tables')
  await db.query('set transaction isolation level repeatable read, read only')
  await tables.prepareTransfer(db)
  // Locking takes no snapshot, so the one of the next query is as new as the locks.
  await db.query(`lock table ${names.join(', ')} in access share mode`)
  return catalog.listTables(db)
}

async function requireKnownSchema(db: Db): Promise<string[]> {
  const applied = await catalog.listMigrations(db)
  if (applied === null) throw new Error('the database has no schema of tollgate')
  const known = new Set(await migrationNames())
  const other = applied.find((name) => !known.has(name))
  if (other !== undefined)
    throw new Error(
      `the database has migration ${other}, which this release does not know; back up with the release that applied it`,
    )
  return applied
}

async function* readTables(
  db: Db,
  sizes: TableSizes,
  { onProgress }: BackupRequest,
): AsyncGenerator<BackupRecord> {
  const total = Number(sizes.reduce((sum, { bytes }) => sum + bytes, 0n))
  let done = 0
  for (const { name, bytes } of sizes) {
    onProgress({ table: name, done, total })
    done += Number(bytes)
    const columns = (await tables.listColumns(db, name)).map((column) => column.name)
    yield { kind: 'table', name, columns }
    const list = columns.map(tables.quoted).join(', ')
    const stream = db.query(copyTo(`copy (select ${list} from ${tables.quoted(name)}) to stdout`))
    for await (const chunk of stream) yield { kind: 'rows', bytes: chunk }
    yield { kind: 'tableEnd', rows: stream.rowCount }
  }
}

/**
 * Throws if the key-encryption keys open no sealed value. Returns warnings for values that do not
 * open, and for hashes whose pepper is missing. A schema that this release would first migrate is
 * not checked.
 */
async function checkSecrets(
  db: Db,
  { secrets, sealedTables }: BackupRequest,
  migrations: readonly string[],
): Promise<string[]> {
  if ((await migrationNames()).length !== migrations.length) return []
  const sealing = createSealing(secrets.sealingSecrets)
  const warnings: string[] = []
  let [opened, closed] = [0, 0]
  for (const table of sealedTables) {
    const count = await countOpen(db, table, sealing)
    opened += count.opened
    closed += count.closed
    if (count.closed > 0)
      warnings.push(
        `KEY_ENCRYPTION_KEY does not open ${count.closed} values of ${table.table}, which stay closed after a restore`,
      )
  }
  if (opened === 0 && closed > 0)
    throw new Error(
      "KEY_ENCRYPTION_KEY opens no value of the database; set the deployment's own KEY_ENCRYPTION_KEY and KEY_ENCRYPTION_KEYS_OLD",
    )
  const used = await catalog.listPepperIds(db, await catalog.listPepperedTables(db))
  const restored = await catalog.listRestoredPepperIds(db)
  const missing = used.filter((id) => !(id in secrets.peppers) && !restored.includes(id))
  return [
    ...warnings,
    ...missing.map(
      (id) =>
        `SECRET_PEPPERS lacks ${id}: the secrets stored with it do not work, and will not after a restore`,
    ),
  ]
}

const rowsAtOnce = 500
// No value begins with this head, so that all rows are listed.
const anyHead = Buffer.alloc(7)

/** Opens every value of a table. Returns how many opened, and how many did not. */
async function countOpen(db: Db, table: SealedTable, sealing: Sealing) {
  const count = { opened: 0, closed: 0 }
  for (let after = ''; ;) {
    const rows = await table.rowsToRewrap(db, { head: anyHead, after, limit: rowsAtOnce })
    for (const { sealed, place } of rows) count[openedOrClosed(sealing, sealed, place)] += 1
    const last = rows.at(-1)
    if (!last || rows.length < rowsAtOnce) return count
    after = last.name
  }
}

function openedOrClosed(sealing: Sealing, sealed: Buffer, place: SealedPlace): 'opened' | 'closed' {
  try {
    sealing.unseal(sealed, place)
    return 'opened'
  } catch (error) {
    if (error instanceof SealError) return 'closed'
    throw error
  }
}
