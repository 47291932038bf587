import { LRUCache } from 'lru-cache'
import { DomainError } from '../../proto/errors.ts'

/** Counts failures by name; RATE_LIMITED after `max` within the window. Remembers the last ten thousand names. */
export function createAttempts({ max, windowMs }: { max: number; windowMs: number }) {
  const failures = new LRUCache<string, number>({ max: 10_000, ttl: windowMs })

  function require(name: string): void {
    if ((failures.get(name) ?? 0) < max) return
    throw new DomainError('RATE_LIMITED', 'too many wrong codes; wait ten minutes')
  }

  /** The window begins with the first failure. */
  function count(name: string): void {
    const held = failures.get(name)
    failures.set(
      name,
      (held ?? 0) + 1,
      held === undefined ? {} : { ttl: failures.getRemainingTTL(name) },
    )
  }

  return { require, count }
}
