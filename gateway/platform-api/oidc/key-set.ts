import type { JsonWebKey } from '../../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import type { CoreCalls } from '../../core/client.ts'
import { type HeldDocument, holdDocument } from '../../http/held-document.ts'

// Keys are published minutes before they sign, so a copy that is seconds old lacks none.
const freshMs = 5_000

type JwkSet = HeldDocument<{ readonly keys: ReturnType<typeof toJwk>[] }>

/** The issuer's public keys, the one that signs first. Asked for at core once in five seconds, however many callers there are. */
export function createKeySet() {
  let loadedAt = -Infinity
  let document: JwkSet | Promise<JwkSet> = holdDocument({ keys: [] })

  /** A promise only while they are being loaded. */
  function read(core: () => Pick<CoreCalls, 'tokens'>): JwkSet | Promise<JwkSet> {
    if (performance.now() - loadedAt < freshMs) return document
    loadedAt = performance.now()
    return (document = load(core()))
  }

  async function load(core: Pick<CoreCalls, 'tokens'>): Promise<JwkSet> {
    try {
      const loaded = holdDocument({ keys: (await core.tokens.jwks({})).keys.map(toJwk) })
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

/** The members of RFC 7517; those that a key has not are left out of the text. */
export const toJwk = ({ kty, kid, alg, use, n, e, crv, x, y }: JsonWebKey) => ({
  kty,
  kid,
  alg,
  use,
  ...(n === undefined ? {} : { n }),
  ...(e === undefined ? {} : { e }),
  ...(crv === undefined ? {} : { crv }),
  ...(x === undefined ? {} : { x }),
  ...(y === undefined ? {} : { y }),
})
