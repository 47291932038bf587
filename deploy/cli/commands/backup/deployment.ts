import { join } from 'node:path'
import type { DeploymentSecrets } from '../../../../core/operations/backup/backup.ts'
import { startEmbeddedPostgres } from '../../../../core/db/embedded/embedded.ts'
import { findEmbedded } from '../../../../core/db/embedded/running.ts'
import { type Env, createEnvReader } from '../../../../core/lib/env.ts'
import { readEnvironment } from '../../../../core/lib/settings/environment.ts'
import type { Pool } from '../../../../core/lib/sql.ts'
import { readPeppers, readSealingSecrets } from '../../../../core/shared/config.ts'
import { findSecrets, loadSecrets, openDataDir, resolveDataDir } from '../../../local/data-dir.ts'
import { withPool } from '../../command-pool.ts'
import { readPassphrase } from '../../settings.ts'
import { findDatabaseUrl } from '../migrate.ts'

const name = 'tollgate backup'

/** The database, the secrets and the passphrase of a backup or restore. */
export interface Deployment {
  readonly pool: Pool
  readonly secrets: DeploymentSecrets
  readonly passphrase: string
  readonly env: Env
}

/** Runs `work` with the deployment of the settings, whose database exists. */
export async function withDeployment<T>(work: (deployment: Deployment) => Promise<T>): Promise<T> {
  const { env } = await readEnvironment(process.env)
  const dataDir = resolveDataDir(env)
  const settings = readSettings({ ...(await findSecrets(dataDir)), ...env })
  const external = findDatabaseUrl(env)
  if (external)
    return withPool({ url: external.url, name }, (pool) => work({ ...settings, pool, env }))
  const { isCreated, url } = await findEmbedded(join(dataDir, 'postgres'))
  if (!isCreated)
    throw new Error(
      `DATABASE_URL is not set, and ${dataDir} has no embedded database; set DATABASE_URL or TOLLGATE_DATA_DIR`,
    )
  if (url !== null) return withPool({ url, name }, (pool) => work({ ...settings, pool, env }))
  return withEmbedded(dataDir, (pool) => work({ ...settings, pool, env }))
}

/**
 * Like `withDeployment`, for a deployment that is not used yet: creates the embedded database and
 * its secrets if no other database is set.
 */
export async function withNewDeployment<T>(
  work: (deployment: Deployment) => Promise<T>,
): Promise<T> {
  const { env } = await readEnvironment(process.env)
  readPassphraseOf(env)
  const dataDir = resolveDataDir(env)
  const external = findDatabaseUrl(env)
  if (external) {
    const settings = readSettings({ ...(await findSecrets(dataDir)), ...env })
    return withPool({ url: external.url, name }, (pool) => work({ ...settings, pool, env }))
  }
  await openDataDir(dataDir)
  const settings = readSettings({ ...(await loadSecrets(dataDir)), ...env })
  return withEmbedded(dataDir, (pool) => work({ ...settings, pool, env }))
}

/** Reads only the passphrase, for a file that is not restored. */
export async function findPassphrase(): Promise<string> {
  const { env } = await readEnvironment(process.env)
  return readPassphraseOf(env)
}

function readPassphraseOf(env: Env): string {
  const reader = createEnvReader(env)
  const passphrase = readPassphrase(reader)
  refuse(reader.problems)
  return passphrase
}

function readSettings(env: Env) {
  const reader = createEnvReader(env)
  const passphrase = readPassphrase(reader)
  const sealingSecrets = readSealingSecrets(reader)
  const { byId } = readPeppers(reader)
  refuse(reader.problems)
  const peppers = Object.fromEntries([...byId].map(([id, value]) => [id, value.toString('utf8')]))
  return { passphrase, secrets: { sealingSecrets, peppers } }
}

function refuse(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(problems.join('; '))
}

async function withEmbedded<T>(dataDir: string, work: (pool: Pool) => Promise<T>): Promise<T> {
  const postgres = await startEmbeddedPostgres({ dataDir: join(dataDir, 'postgres') })
  try {
    return await withPool({ url: postgres.url, name }, work)
  } finally {
    await postgres.stop()
  }
}
