import type { JsonWebKey } from '../../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import type { CoreCalls } from '../../core/client.ts'

// Keys are published minutes before they sign, so a copy that is seconds old lacks none.
const freshMs = 5_000

/** The issuer's public keys, the one that signs first. Asked for at core once in five seconds, however many callers there are. */
export function createKeySet() {
  let loadedAt = -Infinity
  let keys: Promise<readonly JsonWebKey[]> = Promise.resolve([])

  function read(core: Pick<CoreCalls, 'tokens'>): Promise<readonly JsonWebKey[]> {
    if (performance.now() - loadedAt < freshMs) return keys
    loadedAt = performance.now()
    keys = load(core)
    return keys
  }

  async function load(core: Pick<CoreCalls, 'tokens'>): Promise<readonly JsonWebKey[]> {
    try {
      return (await core.tokens.jwks({})).keys
    } catch (error) {
      loadedAt = -Infinity
      throw error
    }
  }

  return { read }
}

export type KeySet = ReturnType<typeof createKeySet>
