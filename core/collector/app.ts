import { setTimeout as sleep } from 'node:timers/promises'
import { createLedger } from '../allowances/ledger.ts'
import { migrate } from '../db/migrate.ts'
import { createUsers } from '../identity/users/users.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import type { EnvReader } from '../lib/env.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import { settlesWithin } from '../lib/process.ts'
import { readDatabase, readRedisUrl, readRevocationBound } from '../lib/settings.ts'
import { createPool } from '../lib/sql.ts'
import { type Now, systemNow } from '../lib/time.ts'
import { type BackendConfig, readBackendConfig } from '../metering/backend/config.ts'
import { createEmitter } from '../metering/backend/emit.ts'
import { type MeteringConfig, readCollectingConfig } from '../metering/config.ts'
import { createMetering } from '../metering/service.ts'
import { createPlans } from '../plans/service.ts'

/** The part of core that collects events, by itself: no gRPC, no secrets, no more memory than it takes. */
export interface CollectorConfig {
  readonly databaseUrl: string
  readonly databasePoolMax: number
  readonly redisUrl: string | undefined
  readonly revocationBoundSeconds: number
  readonly metering: MeteringConfig
  readonly backend: BackendConfig
}

/** Reads the collector's settings: core's, as far as it needs them. Problems are collected in the reader. */
export const readCollectorConfig = (env: EnvReader): CollectorConfig => ({
  ...readDatabase(env),
  redisUrl: readRedisUrl(env),
  revocationBoundSeconds: readRevocationBound(env),
  metering: readCollectingConfig(env),
  backend: readBackendConfig(env),
})

const statementTimeoutMs = 10_000
const drainMs = 3_000
const closeMs = 500

/** Migrates, wires metering and collects. Rejects with one clear error when it cannot start. */
export async function startCollector(
  config: CollectorConfig,
  { log, metrics, now = systemNow }: { log: Log; metrics: Metrics; now?: Now },
) {
  await migrate(config.databaseUrl)
  const pool = createPool({
    url: config.databaseUrl,
    max: config.databasePoolMax,
    name: 'tollgate-collector',
    statementTimeoutMs,
  })
  pool.on('error', (error) => log.warn({ err: error }, 'idle database connection lost'))
  const invalidations = await openInvalidations(config, log)
  const ledger = createLedger()
  // What is to reach a backend is written here and sent by core.
  const emitter = config.backend.name === 'openmeter' ? createEmitter() : undefined
  const users = createUsers({
    pool,
    plans: createPlans({ ledger }),
    invalidations,
    log,
    now,
    emitCustomer: emitter?.emitCustomer,
  })
  const metering = createMetering({
    config: config.metering,
    pool,
    users,
    ledger,
    invalidations,
    emitter,
    log,
    metrics,
    now,
    lean: true,
  })
  await metering.start()

  async function ready(): Promise<Record<string, boolean>> {
    const database = await pool.query('select 1').then(
      () => true,
      () => false,
    )
    return { database, redis: await invalidations.ready(), ...(await metering.ready()) }
  }

  /** Lets the batch that is being written finish, and leaves the group, so that others go on at once. */
  async function stop(): Promise<void> {
    await settlesWithin(metering.stop(), drainMs)
    invalidations.stop()
    await Promise.race([pool.end(), sleep(closeMs, undefined, { ref: false })])
  }

  const { topic = '', group = '' } = config.metering.kafka ?? {}
  return { ready, stop, summary: { topic, group } }
}

// Nobody watches this process. Without Redis nobody hears of it at all, and its library is not loaded.
async function openInvalidations(
  { redisUrl, revocationBoundSeconds: tombstoneSeconds }: CollectorConfig,
  log: Log,
): Promise<Pick<Invalidations, 'publish' | 'ready' | 'stop'>> {
  if (redisUrl === undefined)
    return { publish: async () => {}, ready: async () => true, stop: () => {} }
  const { createInvalidations } = await import('../platform/invalidations.ts')
  return createInvalidations({ redisUrl, tombstoneSeconds, log })
}
