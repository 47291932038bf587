import {
  type KeyObject,
  createPrivateKey,
  createPublicKey,
  generateKeyPair,
  randomUUID,
} from 'node:crypto'
import { promisify } from 'node:util'
import { seal, unseal } from '../../lib/crypto.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { SigningKey } from './jws.ts'
import * as store from './store.ts'
import type { SigningAlgorithm } from '../types.ts'

export interface SigningKeysDeps {
  readonly pool: Pool
  readonly sealingKey: Buffer
  readonly alg: SigningAlgorithm
  readonly now: Now
}

interface Loaded {
  readonly at: number
  readonly active: SigningKey
  readonly publicKeys: ReadonlyMap<
    string,
    { readonly alg: SigningAlgorithm; readonly key: KeyObject }
  >
  readonly jwks: readonly store.PublicJwk[]
}

const freshMs = 30_000
const missCooldownMs = 5_000
const makeKeyPair = promisify(generateKeyPair)

/**
 * The issuer's keys: private parts encrypted at rest, exactly one active, the next one published before it signs.
 * Other processes may rotate, so what was loaded is looked at again after half a minute.
 */
export function createSigningKeys({ pool, sealingKey, alg, now }: SigningKeysDeps) {
  let loaded: Loaded | null = null
  let loading: Promise<Loaded> | null = null
  let missedAt = -Infinity

  /** Makes the first active and next key where there is none. */
  async function prepare(): Promise<void> {
    const rows = await store.publishedKeys(pool, now())
    for (const status of ['active', 'next'] as const) {
      if (!rows.some((row) => row.status === status))
        await store.insertSigningKey(pool, await generate(status))
    }
    await reload()
  }

  /** A new key pair, not stored yet. */
  async function generate(status: 'active' | 'next'): Promise<store.NewSigningKey> {
    const kid = randomUUID()
    const pair =
      alg === 'RS256'
        ? await makeKeyPair('rsa', { modulusLength: 2048 })
        : await makeKeyPair('ec', { namedCurve: 'P-256' })
    const privateKey = pair.privateKey.export({ format: 'der', type: 'pkcs8' })
    const jwk = pair.publicKey.export({ format: 'jwk' })
    const members = Object.entries({ ...jwk, kid, alg, use: 'sig' }).filter(
      ([, value]) => typeof value === 'string',
    )
    return {
      kid,
      alg,
      status,
      at: now(),
      publicJwk: Object.fromEntries(members) as store.PublicJwk,
      sealedPrivate: seal(privateKey, sealingKey, `signing-key:${kid}`),
    }
  }

  function reload(): Promise<Loaded> {
    loading ??= load().finally(() => {
      loading = null
    })
    return loading
  }

  async function load(): Promise<Loaded> {
    const rows = await store.publishedKeys(pool, now())
    const active = rows.find((row) => row.status === 'active')
    if (!active) throw new Error('there is no active signing key')
    const pkcs8 = open(active)
    loaded = {
      at: now().getTime(),
      active: {
        kid: active.kid,
        alg: active.alg,
        key: createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' }),
      },
      publicKeys: new Map(
        rows.map((row) => [
          row.kid,
          { alg: row.alg, key: createPublicKey({ key: row.public_jwk, format: 'jwk' }) },
        ]),
      ),
      jwks: rows.map((row) => row.public_jwk),
    }
    return loaded
  }

  function open({ kid, sealed_private }: store.SigningKeyRow): Buffer {
    try {
      return unseal(sealed_private, sealingKey, `signing-key:${kid}`)
    } catch (error) {
      throw new Error(
        'KEY_ENCRYPTION_KEY does not open the signing keys in the database; set the one they were made with',
        { cause: error },
      )
    }
  }

  /** What is loaded, refreshed when old; a refresh that fails leaves what was there. */
  async function current(): Promise<Loaded> {
    if (loaded && now().getTime() - loaded.at < freshMs) return loaded
    return reload().catch((error: unknown) => {
      if (loaded) return loaded
      throw error
    })
  }

  const active = async () => (await current()).active
  const jwks = async () => (await current()).jwks

  /** The public key of that id, or null; unknown ids are looked for once in a few seconds. */
  async function publicKey(kid: string) {
    const at = now().getTime()
    const found = (await current()).publicKeys.get(kid)
    if (found || at - missedAt < missCooldownMs) return found ?? null
    missedAt = at
    return (await reload()).publicKeys.get(kid) ?? null
  }

  /** Looks again at once, after what is being loaded already. */
  async function refresh(): Promise<void> {
    await loading?.catch(() => undefined)
    await reload()
  }

  return { prepare, generate, active, jwks, publicKey, refresh }
}

export type SigningKeys = ReturnType<typeof createSigningKeys>
