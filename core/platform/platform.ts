import { setTimeout as sleep } from 'node:timers/promises'
import { migrate } from '../db/migrate.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import { startLoop } from '../lib/loop.ts'
import { type Pool, createPool, databaseAnswers, databaseTime } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { type Clocks, createClocks } from './clocks/clocks.ts'
import type { PlatformConfig, SharedConfig } from './config.ts'
import { type DatabaseClock, clockBy, createDatabaseClock } from './database-clock.ts'
import { type Grants, createGrants } from './grants/grants.ts'
import { startListener } from './grants/listener.ts'
import { type Idempotency, createIdempotency } from './idempotency.ts'
import { type Invalidations, createInvalidations } from './invalidations.ts'
import { type Sealing, createSealing } from './sealing/sealing.ts'
import { type Secrets, createSecrets } from './secrets.ts'

/** Shared by core and the collector. */
export interface SharedPlatform {
  readonly pool: Pool
  readonly log: Log
  readonly metrics: Metrics
  /** Same as `time.now`. */
  readonly now: Now
  readonly time: DatabaseClock
  /** Clocks of apps. */
  readonly clocks: Clocks
  readonly invalidations: Invalidations
  readonly grants: Grants
  /** Aborts when the process begins to drain. */
  readonly stopping: AbortSignal
}

/** Shared by all domains of core. The first argument of every module. */
export interface Platform extends SharedPlatform {
  readonly config: PlatformConfig
  readonly secrets: Secrets
  readonly sealing: Sealing
  readonly idempotency: Idempotency
}

export interface ProcessDeps {
  readonly log: Log
  readonly metrics: Metrics
  /** Default is the database's clock. */
  readonly now?: Now
}

const statementTimeoutMs = 10_000
const measurePauseMs = 1_000

/**
 * Migrates the database and opens the resources that every process of core needs. Rejects with one
 * clear error on failure.
 */
export async function openSharedPlatform(
  { databaseUrl, databasePoolMax, redisUrl, revocationBoundSeconds }: SharedConfig,
  { name, log, metrics, now: injectedNow }: ProcessDeps & { readonly name: string },
) {
  await migrate(databaseUrl)
  const pool = createPool({ url: databaseUrl, max: databasePoolMax, name, statementTimeoutMs })
  pool.on('error', (error) => log.warn({ err: error }, 'idle database connection lost'))
  const time = injectedNow ? clockBy(injectedNow) : createClock(pool)
  await time.measure()
  const { now } = time
  const invalidations = await openInvalidations(redisUrl, revocationBoundSeconds, log)
  const stopping = new AbortController()
  const shared: SharedPlatform = {
    pool,
    log,
    metrics,
    now,
    time,
    clocks: createClocks(),
    invalidations,
    grants: createGrants({ pool, invalidations, now }),
    stopping: stopping.signal,
  }

  const measuring = startLoop({
    name: 'database clock',
    log,
    pauseMs: measurePauseMs,
    delayed: true,
    // `ready` reports an unavailable database.
    round: () => time.measure().catch(() => {}),
  })

  const ready = async (): Promise<Record<string, boolean>> => ({
    database: await databaseAnswers(pool),
    redis: await invalidations.ready(),
  })

  /**
   * Closes the connections. Waits at most `graceMs`, because a hanging statement has its own time
   * limit.
   */
  async function close(graceMs: number): Promise<void> {
    invalidations.stop()
    void measuring.stop()
    await Promise.race([pool.end(), sleep(graceMs, undefined, { ref: false })])
  }

  return { shared, ready, close, abort: () => stopping.abort() }
}

const createClock = (pool: Pool): DatabaseClock =>
  createDatabaseClock({
    read: () => databaseTime(pool),
    mono: () => performance.now(),
    wall: Date.now,
  })

/** Opens the platform that core's modules use. */
export async function openPlatform(config: PlatformConfig, deps: ProcessDeps) {
  const { shared, ...rest } = await openSharedPlatform(config, { ...deps, name: 'tollgate-core' })
  const { pool, grants, invalidations, now } = shared
  const { databaseUrl } = config
  const { sender } = grants
  const listener = startListener({ databaseUrl, sender, invalidations, log: deps.log, now })
  const sealing = createSealing(config.sealingSecrets)
  const platform: Platform = {
    ...shared,
    config,
    secrets: createSecrets(config.peppers),
    sealing,
    idempotency: createIdempotency({ pool, sealing, now }),
  }
  /** Periodic work, like a module's `upkeep`. */
  const upkeep = [platform.idempotency.forgetOld, platform.grants.deleteExpired]

  async function close(graceMs: number): Promise<void> {
    await Promise.race([listener.stop(), sleep(graceMs, undefined, { ref: false })])
    await rest.close(graceMs)
  }

  return { platform, upkeep, ...rest, close }
}

const redisCommandTimeoutMs = 1_000

// Load the Redis client on demand, which saves memory in a process without Redis, above all in a
// collector.
async function openInvalidations(
  url: string | undefined,
  tombstoneSeconds: number,
  log: Log,
): Promise<Invalidations> {
  if (url === undefined) return createInvalidations({ redis: null, tombstoneSeconds, log })
  const { connectRedis } = await import('../lib/redis.ts')
  const connect = () =>
    connectRedis({ url, commandTimeoutMs: redisCommandTimeoutMs, whileAway: 'wait', log })
  const redis = { publisher: connect(), subscriber: connect() }
  return createInvalidations({ redis, tombstoneSeconds, log })
}
