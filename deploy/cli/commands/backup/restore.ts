import {
  type FileContent,
  type RestoreProgress,
  checkBackup,
  restoreBackup,
} from '../../../../core/operations/backup/restore.ts'
import { DamagedFile } from '../../../../core/lib/files/whole-file.ts'
import { createPartition } from '../../../../core/metering/ingest/partition-store.ts'
import { sealedTables } from '../../../../core/sealed-tables.ts'
import { action, createCommand } from '../../command.ts'
import { argument, toggle } from '../../options.ts'
import { createProgressBar } from '../../output.ts'
import { findPassphrase, withNewDeployment } from './deployment.ts'

export const restore = createCommand('restore', {
  summary: 'fills an empty database from a file of `tollgate backup`',
  examples: [
    'PASSPHRASE_FILE=/run/secrets/passphrase ./tollgate restore monday.backup --check',
    'DATABASE_URL=postgres://… KEY_ENCRYPTION_KEY=… SECRET_PEPPERS=… PASSPHRASE=… ./tollgate restore monday.backup',
  ],
  action: action({
    text:
      'Restores FILE into the empty database at DATABASE_URL, or into a new data directory of the all-in-one ' +
      'service: everything or nothing, in one transaction. Checks the whole file first; --check does only that. ' +
      'The file may be of an older release: its schema is restored, and then migrated. What the database ' +
      "encrypts is encrypted again with this deployment's KEY_ENCRYPTION_KEY, and the peppers of the file are " +
      'kept in the database, so that keys, secrets and logins still work. Then start core and run `tollgate verify`.',
    options: { file: argument('FILE'), check: toggle() },
    run: async ({ file, check }) => {
      const bar = createProgressBar()
      const onProgress = ({ table, rows, total }: RestoreProgress): void =>
        bar.update({ name: 'rows', note: table ?? 'checking', done: rows, total: total ?? rows })
      try {
        if (check) {
          const passphrase = await findPassphrase()
          const content = await checkBackup({ file, passphrase, onProgress })
          return toAnswer(file, 'checked', { content, publicUrl: null })
        }
        return await withNewDeployment(async ({ env, ...deployment }) => {
          const fixed = { ...deployment, file, sealedTables, createPartition, onProgress }
          const content = await restoreBackup(deployment.pool, fixed)
          return toAnswer(file, 'restored', { content, publicUrl: env['PUBLIC_URL'] ?? null })
        })
      } catch (error) {
        if (!(error instanceof DamagedFile)) throw error
        throw new Error(`${file} is damaged: ${error.message}; nothing was restored`, {
          cause: error,
        })
      } finally {
        bar.end()
      }
    },
    json: (answer) => answer,
    lines: ({ file, outcome, at, release, migration, tables, rows, warnings }) => [
      `${file}: ${rows} rows of ${tables} tables ${outcome}, as of ${at}, of release ${release} with schema ${migration}`,
      ...warnings.map((line) => `warning: ${line}`),
    ],
  }),
})

interface Context {
  readonly content: FileContent
  /** PUBLIC_URL of the deployment that will use the database. */
  readonly publicUrl: string | null
}

function toAnswer(file: string, outcome: string, { content, publicUrl }: Context) {
  const { manifest, tables, rows } = content
  const { at, release, migrations } = manifest
  const isMoved =
    publicUrl !== null && manifest.publicUrl !== null && publicUrl !== manifest.publicUrl
  const warnings = isMoved
    ? [
        `PUBLIC_URL was ${manifest.publicUrl} and is ${publicUrl}: tokens of the old address are refused, people sign in again`,
      ]
    : []
  return { file, outcome, at, release, migration: migrations.at(-1) ?? '', tables, rows, warnings }
}
