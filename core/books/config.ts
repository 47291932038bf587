import type { EnvReader } from '../lib/env.ts'

export interface BooksConfig {
  /** Whole months kept in addition to the current one; 0 keeps all. */
  readonly retentionMonths: number
  /** Folder for archived months; null only if all are kept. */
  readonly archiveDir: string | null
}

/** Declares and reads the settings of the archive. */
export function readBooksConfig(env: EnvReader): BooksConfig {
  const retentionMonths = env.integer('RETENTION_MONTHS', {
    fallback: '0',
    min: 0,
    max: 1_200,
    meaning:
      'Whole months of tickets that stay in the database in addition to the current month; older ones are written to ARCHIVE_DIR and dropped. 0 keeps all.',
  })
  const archiveDir =
    env.optional('ARCHIVE_DIR', {
      meaning: 'Folder to which core writes archived months of tickets; all cores must share it.',
    }) ?? null
  if (retentionMonths > 0 && archiveDir === null)
    env.problem('ARCHIVE_DIR must be set when RETENTION_MONTHS is not 0')
  return { retentionMonths, archiveDir }
}
