import { migrate, requireMigrated, requireWritable } from '../../db/migrate.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import { currentValue } from '../../lib/settings/reloadable.ts'
import { type Pool, createPool } from '../../lib/sql.ts'
import { noteDistribution } from './app-groups.ts'
import type { DatabaseConfig } from './config.ts'
import { observeDatabase } from './metrics.ts'
import { missingLimits } from './store.ts'

const statementTimeoutMs = 10_000

/**
 * Opens the database after its migrations, which use the direct address. Rejects with one clear
 * error if the schema or the pooler cannot be used.
 */
export async function openDatabase(
  config: DatabaseConfig,
  { name, log, metrics }: { readonly name: string; readonly log: Log; readonly metrics: Metrics },
): Promise<Pool> {
  const { url, poolMax: max } = config
  const directUrl = currentValue(config.directUrl)
  const isPooled = directUrl !== currentValue(url)
  const setting = isPooled ? 'DATABASE_DIRECT_URL' : 'DATABASE_URL'
  if (config.migrates) await migrate(directUrl, setting)
  else {
    await requireMigrated(directUrl, setting)
    await requireWritable(directUrl, setting)
  }
  const pool = createPool({ url, max, name, statementTimeoutMs, isPooled })
  pool.on('error', (error) => log.warn({ err: error }, 'idle database connection lost'))
  try {
    await noteDistribution(pool)
    if (isPooled) await requireTimeLimits(pool)
  } catch (error) {
    await pool.end()
    throw error
  }
  observeDatabase(pool, metrics)
  return pool
}

/** Throws if the pooler's connections have no time limits, which clients cannot set there. */
async function requireTimeLimits(pool: Pool): Promise<void> {
  const missing = await missingLimits(pool)
  if (missing.length === 0) return
  throw new Error(
    `DATABASE_URL: the pooler's connections have no ${missing.join(', ')}; set them by connect_query in pgbouncer.ini (deploy/pgbouncer/pgbouncer.ini)`,
  )
}
