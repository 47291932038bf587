import type { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis } from '../../core/lib/redis.ts'
import type { Now } from '../../core/lib/time.ts'

/** How many of something there were in the running window. */
export interface Counters {
  /** Counts one; gives the sum with it. */
  add(name: string): Promise<number>
  read(name: string): Promise<number>
  /** Seconds until the window ends and everything begins at nought. */
  resetSeconds(): number
  stop(): void
}

export interface CountersDeps {
  readonly redisUrl: string | undefined
  readonly log: Log
  readonly now: Now
}

const windowSeconds = 60
const commandTimeoutMs = 50
// A Redis that was slow once would else cost every request 50 ms.
const awayMs = 1_000
const localMax = 100_000

/** Counters of one-minute windows, shared through Redis; this process's own where Redis is absent, away or slow. */
export function createCounters({ redisUrl, log, now }: CountersDeps): Counters {
  const local = createLocal()
  const shared = redisUrl === undefined ? null : createShared(redisUrl, log)
  const windowOf = (): number => Math.floor(now().getTime() / 1000 / windowSeconds)
  const keyOf = (name: string): string => `tollgate:limit:${windowOf()}:${name}`

  return {
    add: async (name) => {
      const own = local.add(keyOf(name))
      return (await shared?.ask((redis) => count(redis, keyOf(name)))) ?? own
    },
    read: async (name) => {
      const found = await shared?.ask((redis) => redis.get(keyOf(name)).then(Number))
      return found ?? local.read(keyOf(name))
    },
    resetSeconds: () => (windowOf() + 1) * windowSeconds - Math.floor(now().getTime() / 1000),
    stop: () => shared?.stop(),
  }
}

// One key for each command; the name holds its window, so the time to live may begin again.
async function count(redis: Redis, key: string): Promise<number> {
  const [sum] = await Promise.all([redis.incr(key), redis.expire(key, windowSeconds * 2)])
  return sum
}

function createLocal() {
  const counts = new LRUCache<string, number>({ max: localMax, ttl: windowSeconds * 2_000 })
  const read = (key: string): number => counts.get(key) ?? 0
  const add = (key: string): number => {
    const sum = read(key) + 1
    counts.set(key, sum)
    return sum
  }
  return { add, read }
}

function createShared(url: string, log: Log) {
  // Logs below, with what the outage means for rate limits.
  const redis = connectRedis({ url, commandTimeoutMs, whileAway: 'fail', log: null })
  let awayUntil = 0
  let told = false

  /** Null when Redis does not answer. */
  async function ask<T>(question: (redis: Redis) => Promise<T>): Promise<T | null> {
    if (Date.now() < awayUntil) return null
    try {
      const answer = await question(redis)
      told = false
      return answer
    } catch (error) {
      awayUntil = Date.now() + awayMs
      if (!told) log.warn({ err: error }, 'Redis is away; rate limits count in this process alone')
      told = true
      return null
    }
  }

  return { ask, stop: () => redis.disconnect() }
}
