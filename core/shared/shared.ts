import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import { clockProblem } from '../lib/core-link/check.ts'
import type { Metrics } from '../lib/metrics.ts'
import { startLoop } from '../lib/loop.ts'
import { type Pool, databaseAnswers, databaseTime } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { type Clocks, createClocks } from './clocks/clocks.ts'
import type { SharedConfig, SharedBaseConfig } from './config.ts'
import { type DatabaseClock, clockBy, createDatabaseClock } from './database-clock.ts'
import { openDatabase } from './database/open.ts'
import { type Read, openReplica, readPrimary } from './database/replica.ts'
import { type Grants, createGrants } from './lineage/grants.ts'
import { startListener } from './lineage/listener.ts'
import { type Idempotency, createIdempotency } from './idempotency.ts'
import { type Invalidations, createInvalidations } from './invalidations.ts'
import { readRestoredPeppers } from './pepper-store.ts'
import { type Sealing, createSealing } from './sealing/sealing.ts'
import { type Secrets, createSecrets, withRestored } from './secrets.ts'

/** Shared by core and the collector. */
export interface SharedBase {
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
export interface Shared extends SharedBase {
  readonly config: SharedConfig
  /** Reads usage, whose answer may be `DATABASE_READ_MAX_LAG_SECONDS` old. */
  readonly read: Read
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

const measurePauseMs = 1_000

/**
 * Migrates the database, unless the settings leave that to `tollgate migrate`, and opens the
 * resources that every process of core needs. Rejects with one clear error on failure.
 */
export async function openSharedBase(
  { database, redisUrl, revocationBoundSeconds }: SharedBaseConfig,
  { name, log, metrics, now: injectedNow }: ProcessDeps & { readonly name: string },
) {
  const pool = await openDatabase(database, { name, log, metrics })
  const time = injectedNow ? clockBy(injectedNow) : createClock(pool)
  await time.measure()
  if (!injectedNow) warnOfClock(time.now(), log)
  const { now } = time
  const invalidations = await openInvalidations(redisUrl, revocationBoundSeconds, log)
  const stopping = new AbortController()
  const shared: SharedBase = {
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
    metrics,
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

function warnOfClock(databaseTime: Date, log: Log): void {
  const problem = clockProblem(databaseTime, Date.now())
  if (problem !== undefined) log.error(problem)
}

const createClock = (pool: Pool): DatabaseClock =>
  createDatabaseClock({
    read: () => databaseTime(pool),
    mono: () => performance.now(),
    wall: Date.now,
  })

/** Opens the resources that core's modules share. */
export async function openShared(config: SharedConfig, deps: ProcessDeps) {
  const { shared: base, ...rest } = await openSharedBase(config, { ...deps, name: 'tollgate-core' })
  const { pool, grants, invalidations, now } = base
  const databaseUrl = config.database.directUrl
  const { sender } = grants
  const listener = startListener({ databaseUrl, sender, invalidations, log: deps.log, now })
  const reads = config.replica
    ? openReplica(config.replica, { ...deps, primary: pool, poolMax: config.database.poolMax })
    : readPrimary(pool)
  const sealing = createSealing(config.sealingSecrets)
  const peppers = withRestored(config.peppers, await readRestoredPeppers(pool, sealing))
  const shared: Shared = {
    ...base,
    config,
    read: reads.read,
    secrets: createSecrets(peppers),
    sealing,
    idempotency: createIdempotency({ pool, sealing, now }),
  }
  /** Periodic work, like a module's `upkeep`. */
  const upkeep = [shared.idempotency.forgetOld, shared.grants.deleteExpired]

  async function close(graceMs: number): Promise<void> {
    const closing = Promise.all([listener.stop(), reads.stop()])
    await Promise.race([closing, sleep(graceMs, undefined, { ref: false })])
    await rest.close(graceMs)
  }

  return { shared, upkeep, ...rest, close }
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
