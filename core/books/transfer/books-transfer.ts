import * as tables from '../../db/whole-tables.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { writeWhole } from '../../lib/files/whole-file.ts'
import { beginSnapshot } from '../store.ts'
import {
  type BooksChunk,
  type BooksManifest,
  type BooksSums,
  readBooksFile,
  writeBooksFile,
} from './books-file.ts'
import * as store from './books-store.ts'
import { history } from './tables.ts'

/** Moves the books of a whole deployment: all money and its history, without secrets. */

const rowsAtOnce = 500

export interface BooksExport {
  readonly file: string
  /** The newest migration of this release. */
  readonly migration: string
  readonly at: Date
}

/** Writes all tables of `history` as of one instant, while the service runs. */
export async function exportBooks(
  pool: Pool,
  { file, migration, at }: BooksExport,
): Promise<BooksSums> {
  return writeWhole(file, (part) =>
    tx(pool, async (db) => {
      await beginSnapshot(db)
      await tables.prepareTransfer(db)
      const manifest: BooksManifest = {
        format: 'tollgate-books',
        version: 1,
        migration,
        exportedAt: at.toISOString(),
        ticketMonths: await tables.ticketMonths(db),
        transaction: String(await tables.nextTransaction(db)),
      }
      return writeBooksFile(part, manifest, { name: file, chunks: readTables(db) })
    }),
  )
}

async function* readTables(db: Db): AsyncGenerator<BooksChunk> {
  for (const [table, definition] of Object.entries(history)) {
    const columns = await tables.listColumns(db, table, definition.without)
    const names = columns.map(({ name }) => name)
    yield { table, columns: names, lines: [] }
    await store.openRows(db, table, { definition, columns })
    const limit = definition.rowsAtOnce ?? rowsAtOnce
    for (let lines: string[] = []; ;) {
      lines = await store.fetchRows(db, limit)
      if (lines.length > 0) yield { table, columns: names, lines }
      if (lines.length < limit) break
    }
    await store.closeRows(db)
  }
}

export interface BooksImport {
  readonly file: string
  /** The newest migration of this release, which the database has. */
  readonly migration: string
  /** Makes the tables of tickets of these times (milliseconds). */
  readonly ensureMonths: (times: readonly number[]) => Promise<void>
}

/**
 * Fills an empty database from a file, all or nothing. Checks the whole file first. Throws for a
 * database with rows, and for a file of another release.
 */
export async function importBooks(
  pool: Pool,
  { file, migration, ensureMonths }: BooksImport,
): Promise<BooksSums> {
  const { manifest, sums } = await checkBooksFile(file)
  if (manifest.migration !== migration)
    throw new Error(
      `the file has the schema of ${manifest.migration}, this release that of ${migration}; import it with the release that wrote it, then upgrade`,
    )
  await requireEmpty(pool)
  await ensureMonths(manifest.ticketMonths.map((month) => Date.parse(`${month}-01T00:00:00Z`)))
  await tables.passTransactions(pool, BigInt(manifest.transaction))
  await tx(pool, async (db) => {
    await tables.prepareTransfer(db)
    await requireEmpty(db)
    await insertTables(db, file)
  })
  return sums
}

async function checkBooksFile(file: string) {
  const reader = readBooksFile(file)
  const first = await reader.next()
  if (first.done || !('format' in first.value)) throw new Error('the file has no manifest')
  for (;;) {
    const next = await reader.next()
    if (next.done) return { manifest: first.value, sums: next.value }
  }
}

async function requireEmpty(db: Db): Promise<void> {
  for (const table of Object.keys(history))
    if (await tables.hasRows(db, table))
      throw new Error(
        `the database is not empty: ${table} has rows; import before core first starts`,
      )
}

async function insertTables(db: Db, file: string): Promise<void> {
  const expected = Object.entries(history).values()
  let [table, columns] = ['', [] as tables.Column[]]
  for await (const chunk of readBooksFile(file)) {
    if ('format' in chunk) continue
    if (chunk.table !== table) {
      if (table !== '') await store.continueIds(db, table)
      const [name = '', definition = {}] = expected.next().value ?? []
      columns = await tables.listColumns(db, name, definition.without)
      const known = columns.map((column) => column.name).join(', ')
      if (name !== chunk.table || known !== chunk.columns.join(', '))
        throw new Error(
          `the file has ${chunk.table} (${chunk.columns.join(', ')}) in place of ${name} (${known})`,
        )
      table = name
    }
    if (chunk.lines.length > 0) await store.insertRows(db, table, { columns, lines: chunk.lines })
  }
  const missing = expected.next().value
  if (missing) throw new Error(`the file has no table ${missing[0]}`)
}
