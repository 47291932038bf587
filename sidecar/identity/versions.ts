import { LRUCache } from 'lru-cache'

/**
 * Remembers which ids were invalidated, in the order of a counter, so that nothing has to be
 * searched for: what was read before its id was marked is stale. A mark that falls out of memory
 * makes all that is older stale.
 */
export function createMarks({ max }: { max: number }) {
  let count = 0
  let floor = 0
  const marks = new LRUCache<string, number>({
    max,
    dispose: (at, _id, why) => {
      if (why === 'evict') floor = Math.max(floor, at)
    },
  })

  /** The point in the order of marks at which a read begins. */
  const point = (): number => count

  function mark(id: string): void {
    count++
    marks.set(id, count)
  }

  /** Everything read until now is stale: after an outage nobody knows what was missed. */
  function markAll(): void {
    count++
    floor = count
  }

  /** True when `id` was marked after `since`, a `point()` taken before the read. */
  function isStale(id: string | null, since: number): boolean {
    if (since < floor) return true
    // Nothing was marked since: the case of nearly every decision.
    if (since === count) return false
    return id !== null && (marks.peek(id) ?? 0) > since
  }

  return { point, mark, markAll, isStale }
}

export type Marks = ReturnType<typeof createMarks>
