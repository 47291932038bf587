import { inject } from 'vitest'
import './parts.ts'

/** The Redis of this vitest project, or null where the in-process cache is to be used. */
export function redisUrl(): string | null {
  return inject('parts').redisUrl
}
