import type { JsonWebKey } from '../../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import type { CoreCalls } from '../../core/client.ts'
import { type CachedDocument, cacheDocument } from '../../http/cached-document.ts'

// Keys are published minutes before they sign, so a copy that is seconds old is complete.
const freshMs = 5_000

type JwkSet = CachedDocument<{ readonly keys: ReturnType<typeof toJwk>[] }>

/**
 * Caches the issuer's public keys, the signing one first. Fetches them from core at most once in
 * five seconds.
 */
export function createKeySet() {
  let loadedAt = -Infinity
  let document: JwkSet | Promise<JwkSet> = cacheDocument({ keys: [] })

  /** Returns the keys, as a promise only while they are loading. */
  function read(core: () => Pick<CoreCalls, 'tokens'>): JwkSet | Promise<JwkSet> {
    if (performance.now() - loadedAt < freshMs) return document
    loadedAt = performance.now()
    return (document = load(core()))
  }

  async function load(core: Pick<CoreCalls, 'tokens'>): Promise<JwkSet> {
    try {
      const loaded = cacheDocument({ keys: (await core.tokens.getJwks({})).keys.map(toJwk) })
      document = loaded
      return loaded
    } catch (error) {
      loadedAt = -Infinity
      throw error
    }
  }

  return { read }
}

export type KeySet = ReturnType<typeof createKeySet>

/** Returns the members of RFC 7517. JSON omits members that the key lacks. */
const toJwk = ({ kty, kid, alg, use, n, e, crv, x, y }: JsonWebKey) => ({
  kty,
  kid,
  alg,
  use,
  n,
  e,
  crv,
  x,
  y,
})
