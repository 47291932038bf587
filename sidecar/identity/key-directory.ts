import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import type { Now } from '../../core/lib/time.ts'
import type { AccessBook } from '../accounts/access.ts'
import type { Cache } from './cache.ts'
import type { CoreClient } from '../core-client.ts'
import { parseObject, textOf } from '../http/json.ts'
import type { Marks } from './versions.ts'
import type { Meters } from '../metrics.ts'
import { type KeyLookup, isSignerSession } from './verifiers/api-key.ts'
import type { VerifiedIdentity } from './bound-identity.ts'

export interface KeyDirectoryOptions {
  readonly core: Pick<CoreClient, 'verifyApiKey' | 'verifySignerSession'>
  readonly cache: Cache
  readonly access: AccessBook
  readonly marks: Marks
  readonly meters: Meters
  readonly issuer: string
  readonly ttlSeconds: number
  readonly now: Now
}

/**
 * What the shared cache holds of a key; `until` in Unix milliseconds, fixed when core verified
 * it.
 */
interface Shared {
  readonly clientId: string
  readonly externalUserId: string
  readonly userId: string
  readonly keyId: string
  readonly until: number
  /** Unix seconds of a signer session's end; null for a key. */
  readonly expiresAt: number | null
}

const refusing = new Set(['TOKEN_INVALID', 'NOT_FOUND', 'REQUEST_INVALID'])
export const tombstone = (id: string): string => `tollgate:revoked:${id}`

/**
 * Looks a key, or an opaque signer session, up in the shared cache, then at core. Without the cache it is slower, never wrong.
 */
export function createKeyDirectory(options: KeyDirectoryOptions): KeyLookup {
  const { core, cache, access, marks, meters, issuer, ttlSeconds, now } = options

  function identity(shared: Shared): VerifiedIdentity {
    const { until, ...who } = shared
    return { ...who, issuer, issuedAt: null, keepUntil: until }
  }

  async function fromCache(name: string): Promise<Shared | null> {
    try {
      const shared = parseShared(await cache.get(name))
      if (!shared || shared.until <= now().getTime()) return null
      const revoked = await Promise.all(
        [shared.keyId, shared.userId].map((id) => cache.get(tombstone(id))),
      )
      return revoked.every((stone) => stone === null) ? shared : null
    } catch {
      meters.failed('cache')
      return null
    }
  }

  async function ask(key: string) {
    if (!isSignerSession(key)) return { response: await core.verifyApiKey(key), expiresAt: null }
    const response = await core.verifySignerSession(key)
    return { response, expiresAt: Number(response.expiresAt) }
  }

  async function fromCore(key: string): Promise<Shared | null> {
    const since = marks.point()
    try {
      const { response, expiresAt } = await ask(key)
      if (!response.identity || !response.access)
        throw new Error('core answered without an identity')
      const { clientId, externalUserId, userId, keyId } = response.identity
      access.keep(`${clientId}:${externalUserId}`, response.access, since)
      const until = Math.min(now().getTime() + ttlSeconds * 1000, (expiresAt ?? Infinity) * 1000)
      return { clientId, externalUserId, userId, keyId, until, expiresAt }
    } catch (error) {
      if (error instanceof DomainError && refusing.has(error.reason)) return null
      throw error
    }
  }

  return async (key) => {
    const name = `tollgate:identity:${fingerprint(key)}`
    const cached = await fromCache(name)
    if (cached) return { identity: identity(cached), source: 'cache' }
    const verified = await fromCore(key)
    if (!verified) return null
    // Nobody waits for the cache to be filled.
    cache.set(name, JSON.stringify(verified), ttlSeconds).catch(() => meters.failed('cache'))
    return { identity: identity(verified), source: 'core' }
  }
}

function parseShared(text: string | null): Shared | null {
  const entry = text === null ? null : parseObject(text)
  if (!entry) return null
  const [clientId, externalUserId] = [textOf(entry['clientId']), textOf(entry['externalUserId'])]
  const [userId, keyId, until] = [textOf(entry['userId']), textOf(entry['keyId']), entry['until']]
  if (!clientId || !externalUserId || !userId || !keyId || typeof until !== 'number') return null
  const expiresAt = typeof entry['expiresAt'] === 'number' ? entry['expiresAt'] : null
  return { clientId, externalUserId, userId, keyId, until, expiresAt }
}
