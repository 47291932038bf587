import { type KeyObject, createHmac, createSecretKey, hkdfSync, timingSafeEqual } from 'node:crypto'
import { type Reloadable, deriveLive } from '../../core/lib/settings/reloadable.ts'

const macLength = 43

/**
 * Signs entries of the cache that sidecars share, so that write access to Redis does not suffice to
 * forge an identity. HMAC-SHA-256 over the entry and its name, with a key derived for this purpose
 * only (HKDF, RFC 5869) from the secret that sidecars and core share.
 */
export function createCacheEntries(secret: Reloadable<string>) {
  const key = deriveLive(secret, keyOf)
  const macOf = (name: string, value: string): string =>
    createHmac('sha256', key()).update(`${name}\n${value}`).digest('base64url')

  const sign = (name: string, value: string): string => macOf(name, value) + value

  /** Returns the value of an entry; null if it was not signed with this key under this name. */
  function open(name: string, entry: string): string | null {
    const value = entry.slice(macLength)
    const mac = Buffer.from(entry.slice(0, macLength))
    const expected = Buffer.from(macOf(name, value))
    return mac.length === expected.length && timingSafeEqual(mac, expected) ? value : null
  }

  return { sign, open }
}

const keyOf = (secret: string): KeyObject =>
  createSecretKey(Buffer.from(hkdfSync('sha256', secret, '', 'tollgate cache entries', 32)))

export type CacheEntries = ReturnType<typeof createCacheEntries>
