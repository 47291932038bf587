import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import type { CoreClient, TokenIds } from '../core-client.ts'

export interface RevokedTokensOptions {
  readonly core: Pick<CoreClient, 'checkToken'>
  /** The age from which core is asked about a token. */
  readonly ttlSeconds: number
  readonly max: number
  readonly now: Now
}

// Core's clock and ours differ a little.
const marginSeconds = 60

/**
 * What ended lately of all that JWTs descend from. A token that was issued while the invalidations were received is judged
 * here alone, because the end of what it descends from would have been received. Core is asked about a token that was
 * issued before, or is so old that an end may have been evicted; the caller remembers the answer for a minute at most.
 */
export function createRevokedTokens({ core, ttlSeconds, max, now }: RevokedTokensOptions) {
  let completeSince = Infinity
  // By id the instant in Unix milliseconds before which it ended, for things that go on.
  const ends = new LRUCache<string, number>({
    max,
    ttl: (ttlSeconds + 2 * marginSeconds) * 1000,
    // After an eviction the list is no longer complete.
    dispose: (_value, _id, reason) => {
      if (reason === 'evict') restart()
    },
  })

  /** Notes that from now on every revocation is received, and that earlier ones may be missing. */
  function restart(): void {
    completeSince = now().getTime() / 1000
  }

  const revoke = (id: string, endsBefore = Infinity): void =>
    void ends.set(id, Math.max(endsBefore, ends.get(id) ?? 0))

  /** Throws when core must be asked and does not answer. */
  async function isRevoked(token: TokenIds): Promise<boolean> {
    const { grants, issuedAt } = token
    if (ends.size > 0 && grants.some((id) => (ends.get(id) ?? 0) > issuedAt * 1000)) return true
    const age = now().getTime() / 1000 - issuedAt
    if (issuedAt >= completeSince + marginSeconds && age <= ttlSeconds) return false
    return core.checkToken(token)
  }

  return { restart, revoke, isRevoked }
}

export type RevokedTokens = ReturnType<typeof createRevokedTokens>
