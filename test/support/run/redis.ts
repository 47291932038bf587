import { inject } from 'vitest'
import './parts.ts'

/** Returns the Redis of this vitest project, or null for the in-process cache. */
export function redisUrl(): string | null {
  return inject('parts').redisUrl
}
