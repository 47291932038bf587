import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import type { CoreClient } from '../core-client.ts'

/** The ids by which a JWT of ours can be revoked: its own, and that of the login it came from. */
export interface TokenIds {
  readonly jti: string
  /** The login's id (`sid`); null for a token of no login. */
  readonly loginId: string | null
  /** Unix seconds. */
  readonly issuedAt: number
}

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
 * The tokens and logins that were revoked lately. A token that was issued while the invalidations
 * were received is judged here alone, because its revocation would have been received. Core is
 * asked about a token that was issued before, or is so old that its revocation may have been
 * evicted; the caller remembers the answer for a minute at most.
 */
export function createRevokedTokens({ core, ttlSeconds, max, now }: RevokedTokensOptions) {
  let completeSince = Infinity
  const revoked = new LRUCache<string, true>({
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

  const revoke = (id: string): void => void revoked.set(id, true)

  /** Throws when core must be asked and does not answer. */
  async function isRevoked({ jti, loginId, issuedAt }: TokenIds): Promise<boolean> {
    if (revoked.size > 0 && (revoked.has(jti) || (loginId !== null && revoked.has(loginId))))
      return true
    const age = now().getTime() / 1000 - issuedAt
    if (issuedAt >= completeSince + marginSeconds && age <= ttlSeconds) return false
    return core.checkToken(jti, loginId ?? '')
  }

  return { restart, revoke, isRevoked }
}

export type RevokedTokens = ReturnType<typeof createRevokedTokens>
