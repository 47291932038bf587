import type { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import type { Log } from '../../core/lib/log.ts'
import { connectRedis } from '../../core/lib/redis.ts'
import type { Now } from '../../core/lib/time.ts'

/** An increment of a counter. */
export interface Reservation {
  /** The count after the increment. */
  readonly sum: number
  /**
   * Subtracts it from the window to which it was added. Not awaited, because nothing depends on it.
   */
  takeBack(): void
}

/** Counts of the current window by name, and names remembered for a day. */
export interface Counters {
  /** Adds one and returns the sum. Concurrent calls, in any gateway, get different sums. */
  add(name: string): Promise<number>
  /**
   * Adds one that can be taken back. A window other than a minute needs a name that no other call
   * uses.
   */
  reserve(name: string, windowSeconds?: number): Promise<Reservation>
  read(name: string): Promise<number>
  /** Seconds until the window ends and its counts restart at 0. */
  resetSeconds(windowSeconds?: number): number
  remember(name: string): void
  forget(name: string): void
  isRemembered(name: string): Promise<boolean>
  stop(): void
}

export interface CountersDeps {
  readonly redisUrl: string | undefined
  readonly log: Log
  readonly now: Now
}

const minute = 60
const memorySeconds = 86_400
const commandTimeoutMs = 50
// After a failure, skip Redis for a second; otherwise a slow one would add 50 ms to every request.
const awayMs = 1_000
const localMax = 100_000

/**
 * Creates counters with windows of a minute, or a given length, shared through Redis. They are
 * local to the process if Redis is not configured, unavailable or slow.
 */
export function createCounters({ redisUrl, log, now }: CountersDeps): Counters {
  const local = createLocal()
  const shared = redisUrl === undefined ? null : createShared(redisUrl, log)
  const windowOf = (seconds: number): number => Math.floor(now().getTime() / 1000 / seconds)
  const keyOf = (name: string, windowSeconds = minute): string =>
    `tollgate:limit:${windowOf(windowSeconds)}:${name}`

  async function reserve(name: string, windowSeconds = minute): Promise<Reservation> {
    const key = keyOf(name, windowSeconds)
    const addShared = (amount: 1 | -1) =>
      shared?.command((redis) => increment(redis, key, { amount, windowSeconds }))
    const own = local.add(key, 1, windowSeconds)
    const sum = await addShared(1)
    const takeBack = (): void => {
      local.add(key, -1, windowSeconds)
      // Subtract from Redis only what was added there.
      if (typeof sum === 'number') void addShared(-1)
    }
    // The local count includes increments that Redis missed while it was slow.
    return { sum: Math.max(sum ?? 0, own), takeBack }
  }

  return {
    add: async (name) => (await reserve(name)).sum,
    reserve,
    read: async (name) => {
      const count = await shared?.command((redis) => redis.get(keyOf(name)).then(Number))
      return count ?? local.read(keyOf(name))
    },
    resetSeconds: (windowSeconds = minute) =>
      (windowOf(windowSeconds) + 1) * windowSeconds - Math.floor(now().getTime() / 1000),
    ...createMemory(shared),
    stop: () => shared?.stop(),
  }
}

// One key per command, as a cluster requires. The name contains its window, so the time to live may
// be set again.
async function increment(
  redis: Redis,
  key: string,
  { amount, windowSeconds }: { amount: number; windowSeconds: number },
): Promise<number> {
  const [sum] = await Promise.all([redis.incrby(key, amount), redis.expire(key, windowSeconds * 2)])
  return sum
}

function createLocal() {
  const counts = new LRUCache<string, number>({ max: localMax, ttl: minute * 2_000 })
  const read = (key: string): number => counts.get(key) ?? 0
  const add = (key: string, amount: number, windowSeconds: number): number => {
    const sum = read(key) + amount
    counts.set(key, sum, { ttl: windowSeconds * 2_000 })
    return sum
  }
  return { add, read }
}

/**
 * Names remembered for a day. Each process has its own and queries Redis for names remembered by
 * others.
 */
function createMemory(
  shared: Shared | null,
): Pick<Counters, 'remember' | 'forget' | 'isRemembered'> {
  const own = new LRUCache<string, true>({ max: localMax, ttl: memorySeconds * 1_000 })
  const keyOf = (name: string): string => `tollgate:known:${name}`

  function remember(name: string): void {
    // Older entries are written again, so that a name stays as long as it is used.
    const isRecent = own.getRemainingTTL(name) > (memorySeconds * 1_000) / 2
    if (isRecent) return
    own.set(name, true)
    void shared?.command((redis) => redis.set(keyOf(name), '1', 'EX', memorySeconds))
  }

  function forget(name: string): void {
    own.delete(name)
    void shared?.command((redis) => redis.del(keyOf(name)))
  }

  async function isRemembered(name: string): Promise<boolean> {
    if (own.has(name)) return true
    const count = await shared?.command((redis) => redis.exists(keyOf(name)))
    if (count === 1) own.set(name, true)
    return count === 1
  }

  return { remember, forget, isRemembered }
}

type Shared = ReturnType<typeof createShared>

function createShared(url: string, log: Log) {
  // Without the library's log: the warning below explains the outage's effect on rate limits.
  const redis = connectRedis({ url, commandTimeoutMs, whileAway: 'fail', log: null })
  let awayUntil = 0
  let isWarned = false

  /** Returns the result of a Redis command; null if Redis is unavailable. */
  async function command<T>(run: (redis: Redis) => Promise<T>): Promise<T | null> {
    if (Date.now() < awayUntil) return null
    try {
      const answer = await run(redis)
      isWarned = false
      return answer
    } catch (error) {
      awayUntil = Date.now() + awayMs
      if (!isWarned)
        log.warn({ err: error }, 'Redis is unavailable; rate limits count in this process only')
      isWarned = true
      return null
    }
  }

  return { command, stop: () => redis.disconnect() }
}
