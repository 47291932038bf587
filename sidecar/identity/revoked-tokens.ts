import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import type { CoreClient, TokenIds } from '../core/client.ts'

export interface RevokedTokensOptions {
  readonly core: Pick<CoreClient, 'checkToken'>
  /** Age from which tokens are checked at core. */
  readonly ttlSeconds: number
  readonly max: number
  readonly now: Now
}

// Core's clock and ours may differ slightly.
const marginSeconds = 60

/**
 * Recently ended ids that JWTs descend from. A token issued while invalidations were received is
 * checked here alone, because the end of an id would have been received. Other tokens are checked
 * at core: those issued before, and those so old that an end may have been evicted. The caller
 * caches core's answer for a minute at most.
 */
export function createRevokedTokens({ core, ttlSeconds, max, now }: RevokedTokensOptions) {
  let completeSince = Infinity
  // By id, in Unix milliseconds: tokens issued before are revoked. Infinity if the id has ended; a
  // time if it continues.
  const ends = new LRUCache<string, number>({
    max,
    ttl: (ttlSeconds + 2 * marginSeconds) * 1000,
    // After an eviction the list is no longer complete.
    dispose: (_value, _id, reason) => {
      if (reason === 'evict') restart()
    },
  })

  /** Marks the list as complete from now on; earlier revocations may be missing. */
  function restart(): void {
    completeSince = now().getTime() / 1000
  }

  const revoke = (id: string, endsBefore = Infinity): void =>
    void ends.set(id, Math.max(endsBefore, ends.get(id) ?? 0))

  /** Throws if core must be called and does not answer. */
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
