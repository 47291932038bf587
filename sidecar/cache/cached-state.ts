import { LRUCache } from 'lru-cache'

/**
 * A map of at most `max` entries that evicts those set longest ago. Evicts a sixteenth at once,
 * because finding the oldest entry of a Map steps over all deleted ones. Reads do not reorder
 * entries, which keeps them cheap.
 */
export function createBoundedMap<T>({ max }: { readonly max: number }) {
  const entries = new Map<string, T>()

  const get = (key: string): T | undefined => entries.get(key)

  /** Sets an entry, as the newest. */
  function set(key: string, value: T): void {
    entries.delete(key)
    if (entries.size >= max) evict(Math.ceil(max / 16))
    entries.set(key, value)
  }

  function evict(count: number): void {
    let left = count
    for (const key of entries.keys()) {
      if (left-- === 0) return
      entries.delete(key)
    }
  }

  const remove = (key: string): void => void entries.delete(key)

  return { get, set, remove, size: () => entries.size }
}

/**
 * Runs `work` once for all concurrent calls with the same key. They also share its failure, which
 * is not cached.
 */
export function createSingleFlight<T>() {
  const running = new Map<string, Promise<T>>()

  return (key: string, work: () => Promise<T>): Promise<T> => {
    const shared = running.get(key)
    if (shared) return shared
    const started = work().finally(() => void running.delete(key))
    running.set(key, started)
    return started
  }
}

/**
 * Versions of cached state. Every invalidation increments a counter and stores its value for the
 * invalidated id. A cached entry stores the counter's value from before its read, and is stale when
 * its id was invalidated later. So an invalidation never has to search the caches. When an id is
 * evicted, all entries older than its invalidation become stale.
 */
export function createVersions({ max }: { max: number }) {
  let latest = 0
  let oldestValid = 0
  const invalidations = new LRUCache<string, number>({
    max,
    dispose: (version, _id, reason) => {
      if (reason === 'evict') oldestValid = Math.max(oldestValid, version)
    },
  })

  /** The version to take before a read begins. */
  const current = (): number => latest

  function invalidate(id: string): void {
    latest++
    invalidations.set(id, latest)
  }

  /** Makes all earlier reads stale, after an outage of the invalidations. */
  function invalidateAll(): void {
    latest++
    oldestValid = latest
  }

  /** Whether `id` was invalidated after `version`. */
  function isStale(id: string | null, version: number): boolean {
    if (version < oldestValid) return true
    // Nothing was invalidated since: true for nearly every decision.
    if (version === latest) return false
    return id !== null && (invalidations.peek(id) ?? 0) > version
  }

  /** Whether any of `ids` was invalidated after `version`. */
  function isAnyStale(ids: readonly string[], version: number): boolean {
    if (version < oldestValid) return true
    if (version === latest) return false
    for (const id of ids) if ((invalidations.peek(id) ?? 0) > version) return true
    return false
  }

  return { current, invalidate, invalidateAll, isStale, isAnyStale }
}

export type Versions = ReturnType<typeof createVersions>
