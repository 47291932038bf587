import type { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis, redisAnswers } from '../../core/lib/redis.ts'

/** What several sidecars share. Any method may reject; its caller then goes on without it. */
export interface Cache {
  get(key: string): Promise<string | null>
  set(key: string, value: string, ttlSeconds: number): Promise<void>
  del(key: string): Promise<void>
  /**
   * Empties a cache of this process alone, when invalidations may have been missed. A shared one
   * keeps its entries, because it holds the tombstones of revoked ids too.
   */
  clear(): void
  ready(): Promise<boolean>
  stop(): Promise<void>
}

/** The adapter without Redis: the memory of this process, bounded. */
export function createMemoryCache({ max }: { max: number }): Cache {
  const entries = new LRUCache<string, string>({ max })
  return {
    get: async (key) => entries.get(key) ?? null,
    set: async (key, value, ttlSeconds) => void entries.set(key, value, { ttl: ttlSeconds * 1000 }),
    del: async (key) => void entries.delete(key),
    clear: () => entries.clear(),
    ready: async () => true,
    stop: async () => entries.clear(),
  }
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
    clear: () => undefined,
    ready: () => redisAnswers(redis),
    stop: async () => redis.disconnect(),
  }
}
