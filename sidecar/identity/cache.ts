import type { Redis } from 'ioredis'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis, redisAnswers } from '../../core/lib/redis.ts'

/** Keys that several sidecars share. Any method may reject; its caller then continues without it. */
export interface Cache {
  get(key: string): Promise<string | null>
  set(key: string, value: string, ttlSeconds: number): Promise<void>
  del(key: string): Promise<void>
  ready(): Promise<boolean>
  stop(): Promise<void>
}

/** A client for the cache or the invalidations, whose commands fail fast while Redis is away. */
export const connectSharedRedis = (url: string, log: Log): Redis =>
  connectRedis({ url, commandTimeoutMs: 50, whileAway: 'fail', log })

/**
 * The Redis adapter. One key per command, so that it works on a cluster; a command that takes
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
