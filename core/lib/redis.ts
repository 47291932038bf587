import { Redis } from 'ioredis'
import type { Log } from './log.ts'
import { type SentinelAddress, parseRedisUrl, toRedisAddress } from './settings/redis-url.ts'

export interface RedisOptions {
  readonly url: string
  /** Timeout of a command in milliseconds. */
  readonly commandTimeoutMs: number
  /**
   * Behaviour of a command without a connection: `fail` rejects at once, for callers that can work
   * without Redis; `wait` waits for one reconnection.
   */
  readonly whileAway: 'fail' | 'wait'
  /** Receives one warning per outage; null disables logging. */
  readonly log: Log | null
}

const pingMs = 3_000
const silenceMs = 2_000
const connectMs = 1_000

/**
 * Returns a client of the Redis at `url`, or of the master that its Sentinels name. It always
 * reconnects, after pauses that grow from 100 ms to 2 s. It does not subscribe again by itself: a
 * subscriber subscribes each time the client is ready.
 */
export function connectRedis({ url, commandTimeoutMs, whileAway, log }: RedisOptions): Redis {
  const settings = {
    commandTimeout: commandTimeoutMs,
    // ioredis leaves the promise of its own SUBSCRIBE unhandled: a time-out would end the process.
    autoResubscribe: false,
    retryStrategy: (attempt: number) => Math.min(attempt * 100, 2_000),
    // Ends a connection whose peer vanished silently, within `pingMs + silenceMs`.
    socketTimeout: silenceMs,
    ...(whileAway === 'wait'
      ? { maxRetriesPerRequest: 1, enableOfflineQueue: true }
      : {
          connectTimeout: connectMs,
          maxRetriesPerRequest: 0,
          enableOfflineQueue: false,
          // Commands of the same turn of the event loop share a round trip.
          enableAutoPipelining: true,
        }),
  }
  const sentinels = parseRedisUrl(url)?.sentinels
  const redis = sentinels
    ? new Redis({ ...settings, ...throughSentinels(sentinels) })
    : new Redis(url, settings)
  let isAway = false
  redis.on('error', (error: Error) => {
    if (!isAway)
      log?.warn({ err: error.message }, `REDIS_URL: Redis is unavailable at ${toRedisAddress(url)}`)
    isAway = true
  })
  redis.on('ready', () => void (isAway = false))
  keepBusy(redis)
  return redis
}

function throughSentinels(address: SentinelAddress) {
  const { hosts, name, isTls, username, password, sentinelPassword, db } = address
  return {
    sentinels: [...hosts],
    name,
    db,
    // A Sentinel that hangs must not delay the search for the master.
    connectTimeout: connectMs,
    sentinelCommandTimeout: connectMs,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
    ...(isTls && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
  }
}

/** Sends a ping at intervals, because a subscriber sends nothing that could time out. */
function keepBusy(redis: Redis): void {
  const timer = setInterval(() => {
    if (redis.status === 'ready') redis.ping().catch(() => {})
  }, pingMs)
  timer.unref()
  redis.once('end', () => clearInterval(timer))
}

/** True when Redis answers. */
export const redisAnswers = (redis: Redis): Promise<boolean> =>
  redis.ping().then(
    () => true,
    () => false,
  )
