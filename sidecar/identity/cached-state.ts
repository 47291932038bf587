import { LRUCache } from 'lru-cache'

/**
 * A map of at most `max` entries that evicts those set longest ago. It evicts a sixteenth of them
 * at once, because finding the oldest entry of a Map steps over all that were deleted before it.
 * Reading does not reorder entries, which keeps it cheap.
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
 * Runs `work` once for all calls with the same key at the same time. They share its failure too,
 * which is then forgotten.
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
 * Versions of cached state. Every invalidation raises a counter and remembers its value for the
 * invalidated id; a cached entry keeps the counter's value at which its read began, and is stale
 * when its id was invalidated later. So an invalidation never has to search the caches. When an id
 * is evicted from memory, everything older than its invalidation becomes stale.
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

  /** Makes everything read until now stale, for after an outage of the invalidations. */
  function invalidateAll(): void {
    latest++
    oldestValid = latest
  }

  /** True when `id` was invalidated after `version`. */
  function isStale(id: string | null, version: number): boolean {
    if (version < oldestValid) return true
    // Nothing was invalidated since: the case of nearly every decision.
    if (version === latest) return false
    return id !== null && (invalidations.peek(id) ?? 0) > version
  }

  /** As `isStale`, for whichever of `ids`. */
  function isAnyStale(ids: readonly string[], version: number): boolean {
    if (version < oldestValid) return true
    if (version === latest) return false
    for (const id of ids) if ((invalidations.peek(id) ?? 0) > version) return true
    return false
  }

  return { current, invalidate, invalidateAll, isStale, isAnyStale }
}

export type Versions = ReturnType<typeof createVersions>
