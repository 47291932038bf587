import { Redis } from 'ioredis'
import type { Log } from './log.ts'
import { toAddress } from './settings.ts'

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

/** Returns a Redis client that always reconnects, after pauses that grow from 100 ms to 2 s. */
export function connectRedis({ url, commandTimeoutMs, whileAway, log }: RedisOptions): Redis {
  const redis = new Redis(url, {
    commandTimeout: commandTimeoutMs,
    retryStrategy: (attempt: number) => Math.min(attempt * 100, 2_000),
    ...(whileAway === 'wait'
      ? { maxRetriesPerRequest: 1, enableOfflineQueue: true }
      : {
          connectTimeout: 1_000,
          maxRetriesPerRequest: 0,
          enableOfflineQueue: false,
          // Commands of the same turn of the event loop share a round trip.
          enableAutoPipelining: true,
        }),
  })
  let isAway = false
  redis.on('error', (error: Error) => {
    if (!isAway)
      log?.warn({ err: error.message }, `REDIS_URL: Redis is unavailable at ${toAddress(url)}`)
    isAway = true
  })
  redis.on('ready', () => void (isAway = false))
  return redis
}

/** True when Redis answers. */
export const redisAnswers = (redis: Redis): Promise<boolean> =>
  redis.ping().then(
    () => true,
    () => false,
  )
