import { exportBooks, importBooks } from '../../../../core/books/transfer/books-transfer.ts'
import { isTicketFileName } from '../../../../core/books/transfer/ticket-file.ts'
import { listMissing, migrate, migrationNames } from '../../../../core/db/migrate.ts'
import { requireAbsent } from '../../../../core/lib/files/whole-file.ts'
import { createPartitions } from '../../../../core/metering/ingest/partition-store.ts'
import { withPool } from '../../command-pool.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, argument, required, toggle } from '../../options.ts'
import { findDatabase } from '../migrate.ts'

const name = 'tollgate books'

const exporting = action({
  text:
    'Writes the books of the whole deployment at DATABASE_URL to FILE, as of one instant: users, plans, tickets, ' +
    'ledger, credits, invoices, payments and proofs, with SHA-256 checksums. FILE has no keys, secrets, passwords, ' +
    'sessions or queues. It is compressed NDJSON (.ndjson.gz or .ndjson.zst) and appears when it is complete. The ' +
    'service may run meanwhile. An existing FILE is kept unless --force is set.',
  options: { file: required('FILE', { flag: 'out' }), force: toggle() },
  run: async ({ file, force }) => {
    requireName(file)
    await requireAbsent(file, force)
    const { url } = await findDatabase()
    const [missing] = await listMissing(url)
    if (missing !== undefined)
      throw new Error(`the database lacks migration ${missing}; run \`tollgate migrate\` first`)
    return withPool({ url, name }, async (pool) => {
      const migration = await newestMigration()
      return { file, ...(await exportBooks(pool, { file, migration, at: new Date() })) }
    })
  },
  lines: ({ file, tables, rows, sha256 }) => [
    `${file}: ${rows} rows of ${tables} tables, SHA-256 ${sha256}`,
  ],
})

const importing = action({
  text:
    'Fills the empty database at DATABASE_URL from a file of `tollgate books export`, before core first starts ' +
    'there: all rows as they were, or none. The whole file is checked against its checksums first. Run ' +
    '`tollgate verify` when core has started. Keys, secrets and passwords must be issued again.',
  options: { file: argument('FILE') },
  run: async ({ file }) => {
    requireName(file)
    const { url, setting } = await findDatabase()
    await migrate(url, setting)
    return withPool({ url, name }, async (pool) => {
      const { ensure } = createPartitions(pool, () => new Date())
      const migration = await newestMigration()
      return { file, ...(await importBooks(pool, { file, migration, ensureMonths: ensure })) }
    })
  },
  lines: ({ file, tables, rows }) => [`${file}: ${rows} rows of ${tables} tables imported`],
})

export const books = createCommand('books', {
  summary: 'moves the books of a deployment to an empty database',
  examples: [
    'DATABASE_URL=postgres://… ./tollgate books export --out books.ndjson.zst',
    'DATABASE_URL=postgres://… ./tollgate books import books.ndjson.zst',
  ],
  actions: { export: exporting, import: importing },
})

function requireName(file: string): void {
  if (!isTicketFileName(file)) throw new UsageError('the file must end with .gz or .zst')
}

const newestMigration = async (): Promise<string> => (await migrationNames()).at(-1) ?? ''
