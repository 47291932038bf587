import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import type { CoreClient } from '../core-client.ts'

/** What may end a JWT of ours before its time: itself, or the login that it came from. */
export interface TokenIds {
  readonly jti: string
  /** The login's id (`sid`); null for a token of no login. */
  readonly loginId: string | null
  /** Unix seconds. */
  readonly issuedAt: number
}

export interface RevokedTokensOptions {
  readonly core: Pick<CoreClient, 'checkToken'>
  /** How long something else than core may be believed; older tokens are asked about. */
  readonly ttlSeconds: number
  readonly max: number
  readonly now: Now
}

// Core's clock and ours differ a little.
const marginSeconds = 60

/**
 * The tokens and logins that were ended lately. What is issued while somebody listens to core is judged here alone: its
 * end would have been heard. What was issued before, or is so old that an end of it may have been lost, core is asked
 * about; its caller remembers the answer for a minute at most.
 */
export function createRevokedTokens({ core, ttlSeconds, max, now }: RevokedTokensOptions) {
  let knownSince = Infinity
  const ended = new LRUCache<string, true>({
    max,
    ttl: (ttlSeconds + 2 * marginSeconds) * 1000,
    // What falls out too early is not known any more.
    dispose: (_value, _id, why) => {
      if (why === 'evict') listenAnew()
    },
  })

  /** From now on every end is heard; until now some may have been missed. */
  function listenAnew(): void {
    knownSince = now().getTime() / 1000
  }

  const end = (id: string): void => void ended.set(id, true)

  /** Throws when core must be asked and does not answer. */
  async function isRevoked({ jti, loginId, issuedAt }: TokenIds): Promise<boolean> {
    if (ended.size > 0 && (ended.has(jti) || (loginId !== null && ended.has(loginId)))) return true
    const age = now().getTime() / 1000 - issuedAt
    if (issuedAt >= knownSince + marginSeconds && age <= ttlSeconds) return false
    return core.checkToken(jti, loginId ?? '')
  }

  return { listenAnew, end, isRevoked }
}

export type RevokedTokens = ReturnType<typeof createRevokedTokens>
