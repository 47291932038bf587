import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import { parseObject, readText } from '../../core/lib/json.ts'
import type { Now } from '../../core/lib/time.ts'
import type { Accounts } from '../wallets/accounts.ts'
import type { VerifiedIdentity } from './bound-identity.ts'
import { type Cache, tombstone } from '../cache/redis.ts'
import type { CacheEntries } from '../cache/signed-entries.ts'
import type { Versions } from '../cache/cached-state.ts'
import type { CoreClient } from '../core/client.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { type KeyLookup, isSignerSession } from './verifiers/api-key.ts'

export interface KeyDirectoryOptions {
  readonly core: Pick<CoreClient, 'verifyApiKey' | 'verifySignerSession'>
  /** Null without Redis; identities are cached in memory anyway (identities.ts). */
  readonly cache: Cache | null
  readonly entries: CacheEntries
  readonly accounts: Pick<Accounts, 'accountOf' | 'learn'>
  /** Milliseconds of a clock that never jumps. */
  readonly mono: () => number
  readonly versions: Versions
  readonly metrics: Pick<SidecarMetrics, 'countFailure' | 'countForgery'>
  readonly issuer: string
  readonly ttlSeconds: number
  readonly now: Now
}

/** A key's entry in the shared cache. */
interface CachedKey {
  readonly clientId: string
  readonly externalUserId: string
  readonly userId: string
  readonly keyId: string
  /** Ids that the key descends from, without the ids above. */
  readonly grants: readonly string[]
  /** Unix milliseconds, set when core verified the key. */
  readonly until: number
  readonly verifiedAt: number
  /** Unix seconds of a signer session's end; null for a key. */
  readonly expiresAt: number | null
}

const refusalReasons = new Set(['TOKEN_INVALID', 'NOT_FOUND', 'REQUEST_INVALID'])

/** Ids whose end also ends a key or a signer session. Only a signer session has `expiresAt`. */
const grantsOf = ({ clientId, userId, keyId, grants, expiresAt }: CachedKey): string[] => [
  expiresAt === null ? `key:${keyId}` : keyId,
  userId,
  clientId,
  `${clientId}:${Scope.signJob}`,
  ...grants,
]

/**
 * Looks up a key or an opaque signer session in the shared cache, then at core. Without the cache
 * it is slower, never wrong.
 */
export function createKeyDirectory(options: KeyDirectoryOptions): KeyLookup {
  const { core, cache, entries, accounts, versions, metrics, issuer, ttlSeconds, now, mono } =
    options

  function identityOf(cached: CachedKey): VerifiedIdentity {
    const { clientId, externalUserId, keyId, until, verifiedAt, expiresAt } = cached
    const ids = { issuer, clientId, externalUserId, keyId, grants: grantsOf(cached) }
    return { ...ids, issuedAt: null, expiresAt, verifiedAt, keepUntil: until }
  }

  async function readCache(name: string): Promise<CachedKey | null> {
    if (!cache) return null
    try {
      const entry = parseCachedKey(openEntry(name, await cache.get(name)))
      if (!entry || entry.until <= now().getTime()) return null
      const tombstones = await Promise.all(grantsOf(entry).map((id) => cache.get(tombstone(id))))
      return tombstones.every((stone) => stone === null) ? entry : null
    } catch {
      metrics.countFailure('cache')
      return null
    }
  }

  function openEntry(name: string, text: string | null): string | null {
    const value = text === null ? null : entries.open(name, text)
    if (text !== null && value === null) metrics.countForgery()
    return value
  }

  async function verifyAtCore(key: string) {
    if (!isSignerSession(key)) return { response: await core.verifyApiKey(key), expiresAt: null }
    const response = await core.verifySignerSession(key)
    return { response, expiresAt: Number(response.expiresAt) }
  }

  async function readCore(key: string): Promise<CachedKey | null> {
    const read = { at: mono(), version: versions.current() }
    try {
      const { response, expiresAt } = await verifyAtCore(key)
      if (!response.identity) return null
      if (!response.access) throw new Error('core answered without an access')
      const { clientId, externalUserId, userId, keyId, grants } = response.identity
      accounts.learn(accounts.accountOf(`${clientId}:${externalUserId}`), response.access, read)
      const verifiedAt = now().getTime()
      const until = Math.min(verifiedAt + ttlSeconds * 1000, (expiresAt ?? Infinity) * 1000)
      return { clientId, externalUserId, userId, keyId, grants, until, verifiedAt, expiresAt }
    } catch (error) {
      if (error instanceof DomainError && refusalReasons.has(error.reason)) return null
      throw error
    }
  }

  return async (key) => {
    const name = `tollgate:identity:${fingerprint(key)}`
    const cached = await readCache(name)
    if (cached) return { identity: identityOf(cached), source: 'redis' }
    const verified = await readCore(key)
    if (!verified) return null
    // Do not wait for the cache.
    if (cache) {
      const entry = entries.sign(name, JSON.stringify(verified))
      cache.set(name, entry, ttlSeconds).catch(() => metrics.countFailure('cache'))
    }
    return { identity: identityOf(verified), source: 'core' }
  }
}

function parseCachedKey(text: string | null): CachedKey | null {
  const entry = text === null ? null : parseObject(text)
  if (!entry) return null
  const [clientId, externalUserId] = [
    readText(entry['clientId']),
    readText(entry['externalUserId']),
  ]
  const [userId, keyId, until] = [
    readText(entry['userId']),
    readText(entry['keyId']),
    entry['until'],
  ]
  if (!clientId || !externalUserId || !userId || !keyId || typeof until !== 'number') return null
  const expiresAt = typeof entry['expiresAt'] === 'number' ? entry['expiresAt'] : null
  const verifiedAt = typeof entry['verifiedAt'] === 'number' ? entry['verifiedAt'] : until
  const grants = Array.isArray(entry['grants']) ? entry['grants'].map(readText) : []
  return { clientId, externalUserId, userId, keyId, grants, until, verifiedAt, expiresAt }
}
