import { Redis } from 'ioredis'
import type { Log } from './log.ts'
import { addressOf } from './settings.ts'

export interface RedisOptions {
  readonly url: string
  /** A command that takes longer rejects. */
  readonly commandTimeoutMs: number
  /**
   * A command without a connection rejects at once (`fail`), for callers that can do without Redis, or waits for one
   * reconnection (`wait`).
   */
  readonly whileAway: 'fail' | 'wait'
  /** Logs one warning for each outage; null logs nothing. */
  readonly log: Log | null
}

/** A Redis client that always reconnects, after pauses that grow from 100 ms to 2 s. */
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
          // Commands of one turn of the event loop share a round trip.
          enableAutoPipelining: true,
        }),
  })
  let isAway = false
  redis.on('error', (error: Error) => {
    if (!isAway) log?.warn({ err: error.message }, `REDIS_URL: Redis is away at ${addressOf(url)}`)
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
