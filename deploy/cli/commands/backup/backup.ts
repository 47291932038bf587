import { writeBackup } from '../../../../core/operations/backup/backup.ts'
import { requireAbsent } from '../../../../core/lib/files/whole-file.ts'
import { sealedTables } from '../../../../core/sealed-tables.ts'
import { action, createCommand } from '../../command.ts'
import { required, toggle } from '../../options.ts'
import { createProgressBar } from '../../output.ts'
import { version } from '../../version.ts'
import { withDeployment } from './deployment.ts'

export const backup = createCommand('backup', {
  summary: 'writes the whole database to a file that a passphrase opens',
  examples: [
    'PASSPHRASE_FILE=/run/secrets/passphrase ./tollgate backup --out monday.backup',
    'DATABASE_URL=postgres://… KEY_ENCRYPTION_KEY=… SECRET_PEPPERS=… PASSPHRASE=… ./tollgate backup --out monday.backup',
  ],
  action: action({
    text:
      'Writes every row of the database to FILE as of one instant, while the service runs: of the database at ' +
      'DATABASE_URL, or of the all-in-one service in the data directory. FILE is compressed, and encrypted with ' +
      'PASSPHRASE. It also has KEY_ENCRYPTION_KEY and SECRET_PEPPERS, so that `tollgate restore` can use it in a ' +
      'deployment with others. FILE appears when it is complete; an existing one is kept unless --force is set. ' +
      'SHA-256 is that of FILE, for `sha256sum`.',
    options: { file: required('FILE', { flag: 'out' }), force: toggle() },
    run: async ({ file, force }) => {
      await requireAbsent(file, force)
      return withDeployment(async ({ pool, secrets, passphrase, env }) => {
        const bar = createProgressBar()
        const publicUrl = env['PUBLIC_URL']?.trim() || null
        const fixed = { file, passphrase, secrets, sealedTables, publicUrl, release: version() }
        const sums = await writeBackup(pool, {
          ...fixed,
          onProgress: ({ table, done, total }) =>
            bar.update({ name: 'bytes', note: table, done, total }),
        }).finally(bar.end)
        return { file, ...sums }
      })
    },
    json: (answer) => answer,
    lines: ({ file, at, migration, tables, rows, bytes, sha256, warnings }) => [
      `${file}: ${rows} rows of ${tables} tables as of ${at}, schema ${migration}`,
      `${bytes} bytes, SHA-256 ${sha256}`,
      ...warnings.map((line) => `warning: ${line}`),
    ],
  }),
})
