import type { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis } from '../../core/lib/redis.ts'
import type { Now } from '../../core/lib/time.ts'

/** Counts of the running window, by name. */
export interface Counters {
  /** Adds one and returns the sum. */
  add(name: string): Promise<number>
  read(name: string): Promise<number>
  /** Seconds until the window ends and every count is 0 again. */
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
// After a failure Redis is left alone for a second; otherwise a slow one would cost every request 50 ms.
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
      return (await shared?.command((redis) => increment(redis, keyOf(name)))) ?? own
    },
    read: async (name) => {
      const count = await shared?.command((redis) => redis.get(keyOf(name)).then(Number))
      return count ?? local.read(keyOf(name))
    },
    resetSeconds: () => (windowOf() + 1) * windowSeconds - Math.floor(now().getTime() / 1000),
    stop: () => shared?.stop(),
  }
}

// One key for each command, as a cluster wants it. The name holds its window, so the time to live may be set again.
async function increment(redis: Redis, key: string): Promise<number> {
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
  // Without the library's log: the warning below says what the outage means for rate limits.
  const redis = connectRedis({ url, commandTimeoutMs, whileAway: 'fail', log: null })
  let awayUntil = 0
  let isWarned = false

  /** The answer of Redis; null when it does not answer. */
  async function command<T>(run: (redis: Redis) => Promise<T>): Promise<T | null> {
    if (Date.now() < awayUntil) return null
    try {
      const answer = await run(redis)
      isWarned = false
      return answer
    } catch (error) {
      awayUntil = Date.now() + awayMs
      if (!isWarned)
        log.warn({ err: error }, 'Redis is away; rate limits count in this process alone')
      isWarned = true
      return null
    }
  }

  return { command, stop: () => redis.disconnect() }
}
