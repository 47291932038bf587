export interface BoundedMapOptions<T> {
  readonly max: number
  /** Told of every entry that is forgotten for want of room. */
  readonly forgotten?: (value: T) => void
}

/**
 * A map of at most `max` entries that forgets those set longest ago, a sixteenth of them at a time:
 * looking for the oldest entry of a Map passes by all that were deleted before it. Reading moves
 * nothing, which keeps it cheap.
 */
export function createBoundedMap<T>({ max, forgotten }: BoundedMapOptions<T>) {
  const entries = new Map<string, T>()

  const get = (name: string): T | undefined => entries.get(name)

  /** Sets an entry, as the newest. */
  function set(name: string, value: T): void {
    entries.delete(name)
    if (entries.size >= max) forgetOldest(Math.ceil(max / 16))
    entries.set(name, value)
  }

  function forgetOldest(count: number): void {
    let left = count
    for (const [name, value] of entries) {
      if (left-- === 0) return
      entries.delete(name)
      forgotten?.(value)
    }
  }

  const remove = (name: string): void => void entries.delete(name)

  return { get, set, remove, size: () => entries.size }
}
