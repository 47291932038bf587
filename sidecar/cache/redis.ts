import type { Redis } from 'ioredis'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis, redisAnswers } from '../../core/lib/redis.ts'

/**
 * A cache that several sidecars share. Any method may reject; its caller then continues without the
 * cache.
 */
export interface Cache {
  get(key: string): Promise<string | null>
  set(key: string, value: string, ttlSeconds: number): Promise<void>
  del(key: string): Promise<void>
  ready(): Promise<boolean>
  stop(): Promise<void>
}

/** The cache's name for a revoked id. Keys have their bare id there. */
export const tombstone = (id: string): string => `tollgate:revoked:${id.replace(/^key:/, '')}`

/**
 * Redis client for the cache or the invalidations. Commands fail fast while Redis is unavailable.
 */
export const connectSharedRedis = (url: string, log: Log): Redis =>
  connectRedis({ url, commandTimeoutMs: 50, whileAway: 'fail', log })

/**
 * The Redis adapter. Uses one key per command, so that it works on a cluster. A command that takes
 * longer than 50 ms rejects.
 */
export function createRedisCache({ url, log }: { url: string; log: Log }): Cache {
  const redis = connectSharedRedis(url, log)
  return {
    get: (key) => redis.get(key),
    set: async (key, value, ttlSeconds) => void (await redis.set(key, value, 'EX', ttlSeconds)),
    del: async (key) => void (await redis.del(key)),
    ready: () => redisAnswers(redis),
    stop: async () => redis.disconnect(),
  }
}
