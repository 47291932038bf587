import { hkdfSync } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { from as copyFrom } from 'pg-copy-streams'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { DamagedFile } from '../../lib/files/whole-file.ts'
import { insertRestoredPepper } from '../../shared/pepper-store.ts'
import { type SealedTable, createRewrap } from '../../shared/sealing/rewrap.ts'
import { createSealing } from '../../shared/sealing/sealing.ts'
import { applyWithin, migrationNames } from '../../db/migrate.ts'
import * as tables from '../../db/whole-tables.ts'
import type { DeploymentSecrets } from './backup.ts'
import {
  type BackupManifest,
  type BackupRecord,
  type SequenceState,
  readBackupFile,
} from './backup-file.ts'
import * as catalog from './catalog.ts'

export interface RestoreRequest {
  readonly file: string
  readonly passphrase: string
  /** Secrets of the deployment that will use the database. */
  readonly secrets: DeploymentSecrets
  readonly sealedTables: readonly SealedTable[]
  /** Creates the table of a month of tickets. */
  readonly createPartition: (db: Db, month: string) => Promise<void>
  readonly onProgress: (progress: RestoreProgress) => void
}

export interface RestoreProgress {
  /** The table that is filled; null while the file is checked. */
  readonly table: string | null
  readonly rows: number
  /** Unknown while the file is checked. */
  readonly total: number | null
}

export interface FileContent {
  readonly manifest: BackupManifest
  readonly tables: number
  readonly rows: number
}

/** Reads a whole file. Throws WrongPassphrase, or DamagedFile at the first fault. */
export async function checkBackup({
  file,
  passphrase,
  onProgress,
}: Pick<RestoreRequest, 'file' | 'passphrase' | 'onProgress'>): Promise<FileContent> {
  let manifest: BackupManifest | null = null
  let [count, rows] = [0, 0]
  for await (const record of readBackupFile(file, passphrase)) {
    if (record.kind === 'manifest') manifest = record.manifest
    if (record.kind !== 'tableEnd') continue
    count += 1
    rows += record.rows
    onProgress({ table: null, rows, total: null })
  }
  if (manifest === null) throw new DamagedFile('it has no manifest')
  return { manifest, tables: count, rows }
}

/**
 * Fills an empty database from a backup, then migrates it to this release and seals its secrets
 * with the keys of this deployment: all in one transaction. Checks the whole file first. Throws for
 * a database with rows, and for a file of a newer release.
 */
export async function restoreBackup(pool: Pool, request: RestoreRequest): Promise<FileContent> {
  const content = await checkBackup(request)
  const { manifest } = content
  const known = await migrationNames()
  requireKnown(manifest, known)
  await requireEmpty(pool, manifest)
  await tables.passTransactions(pool, BigInt(manifest.transaction))
  await tx(pool, async (db) => {
    await tables.prepareTransfer(db)
    await applyWithin(db, manifest.migrations)
    await requireEmpty(db, manifest)
    for (const month of manifest.ticketMonths) await request.createPartition(db, month)
    const keys = await catalog.dropForeignKeys(db)
    await fillTables(db, request, content)
    await catalog.addForeignKeys(db, keys)
    await applyWithin(db, known)
    await carrySecrets(db, manifest, request)
  })
  // Everything is restored; without it, the server analyzes by itself within minutes.
  await pool.query('analyze').catch(() => {})
  return content
}

function requireKnown({ migrations, release }: BackupManifest, known: readonly string[]): void {
  const other = migrations.find((name, at) => name !== known[at])
  if (other === undefined) return
  throw new Error(
    `the file is of release ${release}, with migration ${other} that this release does not know; restore it with release ${release} or a newer one`,
  )
}

/** Throws if a table has rows, or if the schema is not one that the file's can follow. */
async function requireEmpty(db: Db, { migrations }: BackupManifest): Promise<void> {
  const applied = await catalog.listMigrations(db)
  for (const { name } of await catalog.listTables(db))
    if (applied === null || (await tables.hasRows(db, name)))
      throw new Error(
        `the database is not empty: it has the table ${name}${applied === null ? '' : ' with rows'}; restore into a new database`,
      )
  const newer = applied?.find((name, at) => name !== migrations[at])
  if (newer !== undefined)
    throw new Error(
      `the database has migration ${newer}, which is newer than the file; restore into a new database, which is then migrated`,
    )
}

async function fillTables(
  db: Db,
  { file, passphrase, onProgress }: RestoreRequest,
  { rows: total }: FileContent,
): Promise<void> {
  const known = new Set((await catalog.listTables(db)).map(({ name }) => name))
  let filled = 0
  let end: SequenceState[] | null = null
  const records = readBackupFile(file, passphrase)
  for await (const record of records) {
    if (record.kind === 'table') {
      if (!known.delete(record.name))
        throw new DamagedFile(`it has the table ${record.name}, which its schema does not have`)
      onProgress({ table: record.name, rows: filled, total })
      filled += await fillTable(db, record, records)
    }
    if (record.kind === 'end') end = [...record.sequences]
  }
  const [missing] = known
  if (missing !== undefined) throw new DamagedFile(`it lacks the table ${missing}`)
  for (const sequence of end ?? []) await catalog.setSequence(db, sequence)
}

type TableRecord = Extract<BackupRecord, { readonly kind: 'table' }>

/** Copies the rows up to the end of a table. Returns their number. */
async function fillTable(
  db: Db,
  { name, columns }: TableRecord,
  records: AsyncGenerator<BackupRecord>,
): Promise<number> {
  const expected = (await tables.listColumns(db, name)).map((column) => column.name)
  if (expected.join() !== columns.join())
    throw new DamagedFile(
      `${name} has the columns ${columns.join()} in place of ${expected.join()}`,
    )
  const list = columns.map(tables.quoted).join(', ')
  const copy = db.query(copyFrom(`copy ${tables.quoted(name)} (${list}) from stdin`))
  let expectedRows = -1
  // Does not end `records`, unlike a loop over it.
  async function* readRows(): AsyncGenerator<Buffer> {
    for (;;) {
      const next = await records.next()
      if (!next.done && next.value.kind === 'rows') yield next.value.bytes
      else if (!next.done && next.value.kind === 'tableEnd') {
        expectedRows = next.value.rows
        return
      } else throw new DamagedFile(`${name} has no end`)
    }
  }
  await pipeline(Readable.from(readRows(), { objectMode: false }), copy)
  if (copy.rowCount !== expectedRows)
    throw new DamagedFile(`${name} has ${copy.rowCount} rows in place of ${expectedRows}`)
  return expectedRows
}

/** Seals every value with this deployment's key, and keeps the peppers of the file. */
async function carrySecrets(
  db: Db,
  manifest: BackupManifest,
  { secrets, sealedTables }: RestoreRequest,
): Promise<void> {
  const now = (): Date => new Date()
  const sealing = createSealing([...secrets.sealingSecrets, ...manifest.sealingSecrets])
  const { rewrap } = createRewrap({ pool: db, sealing, tables: sealedTables, now })
  for (let cursor: string | null = ''; cursor !== null;) {
    const batch: Awaited<ReturnType<typeof rewrap>> = await rewrap(cursor, 'tollgate restore')
    cursor = batch.cursor === '' ? null : batch.cursor
  }
  const names = new Map<string, string>()
  for (const [id, value] of Object.entries(manifest.peppers)) {
    const [same] = Object.entries(secrets.peppers).find(([, own]) => own === value) ?? []
    const name = same ?? restoredId(value)
    if (name !== id) names.set(id, name)
    if (same === undefined)
      await insertRestoredPepper(
        db,
        { id: name, value: Buffer.from(value) },
        { sealing, at: now() },
      )
  }
  if (names.size > 0)
    for (const table of await catalog.listPepperedTables(db))
      await catalog.renamePeppers(db, table, names)
}

/** The id of a pepper of another deployment, where the same id may mean another pepper. */
const restoredId = (value: string): string =>
  `r-${Buffer.from(hkdfSync('sha256', value, '', 'tollgate pepper id', 6)).toString('hex')}`
