import { type JSONWebKeySet, type JWTVerifyGetKey, createLocalJWKSet, errors } from 'jose'
import { createIssuerKeys, providerBounds } from '../../core/lib/foreign-tokens/issuer-keys.ts'
import { fetchText } from '../../core/lib/text/fetch.ts'
import type { Now } from '../../core/lib/time.ts'

const cooldownMs = 10_000
const maxAgeMs = 300_000
// Fetching foreign keys and then access takes less than two seconds, which the signer is promised.
const foreignWaitMs = 1_000

interface KeySet {
  readonly find: JWTVerifyGetKey
  readonly at: number
}

/**
 * The keys of our own issuer, loaded from core. An unknown `kid` reloads them, once at a time and
 * at most every ten seconds. Throws if a key is missing and the keys cannot be loaded, so that an
 * outage of core does not reject the token.
 */
export function createOwnKeys({
  load,
  now,
}: {
  load: () => Promise<JSONWebKeySet>
  now: Now
}): JWTVerifyGetKey {
  let latest: KeySet | null = null
  let loading: Promise<KeySet> | null = null

  function reload(): Promise<KeySet> {
    loading ??= load()
      .then((keys) => (latest = { find: createLocalJWKSet(keys), at: now().getTime() }))
      .finally(() => void (loading = null))
    return loading
  }

  /** Returns keys no older than `ageMs`. */
  async function keys(ageMs: number): Promise<KeySet> {
    const current = latest
    return current && now().getTime() - current.at < ageMs ? current : reload()
  }

  return async (header, token) => {
    // Use older keys while core does not answer: a published key stays valid.
    const older = latest
    const keySet = await keys(maxAgeMs).catch((error: unknown) => {
      if (older) return older
      throw error
    })
    try {
      return await keySet.find(header, token)
    } catch (error) {
      const newer = error instanceof errors.JWKSNoMatchingKey ? await keys(cooldownMs) : keySet
      if (newer === keySet) throw error
      return newer.find(header, token)
    }
  }
}

/**
 * The keys of the operator's own provider, with the same limits as those of issuers that apps
 * trust.
 */
export function createForeignKeys({
  issuer,
  jwksUrl,
  now,
}: {
  issuer: string
  jwksUrl: string | undefined
  now: Now
}): JWTVerifyGetKey {
  const { findKey } = createIssuerKeys({ fetchText: (url) => fetchText(url, providerBounds), now })
  const source = { issuer, jwksUri: jwksUrl ?? null }
  return async (header) => {
    const match = await findKey(source, { header }, foreignWaitMs)
    if (!match) throw new errors.JWKSNoMatchingKey()
    return match.key
  }
}
