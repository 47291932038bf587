import {
  type KeyObject,
  createPrivateKey,
  createPublicKey,
  generateKeyPair,
  randomUUID,
} from 'node:crypto'
import { promisify } from 'node:util'
import { SealError } from '../../shared/sealing/sealing.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './store.ts'
import type { SigningAlgorithm } from '../types.ts'

type Deps = Pick<Shared, 'pool' | 'now' | 'sealing'> & {
  readonly alg: SigningAlgorithm
}

/** A private key, ready for signing. */
export interface SigningKey {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly key: KeyObject
}

interface KeySet {
  readonly loadedAt: number
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
 * The issuer's signing keys. Private keys are encrypted at rest. Exactly one key is active, and the
 * next one is published before it signs. Keys are reloaded after 30 seconds, because other
 * processes may rotate them.
 */
export function createSigningKeys({ pool, sealing, alg, now }: Deps) {
  let keySet: KeySet | null = null
  let loading: Promise<KeySet> | null = null
  let missedAt = -Infinity

  /** Creates the active and the next key if they are missing, and loads the key set. */
  async function prepare(): Promise<void> {
    const rows = await store.publishedKeys(pool, now())
    for (const status of ['active', 'next'] as const) {
      if (!rows.some((row) => row.status === status))
        await store.insertSigningKey(pool, await generate(status))
    }
    await reload()
  }

  /** Generates a key pair without storing it. */
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
      sealedPrivate: sealing.seal(privateKey, store.placeOfKey(kid)),
    }
  }

  function reload(): Promise<KeySet> {
    loading ??= load().finally(() => {
      loading = null
    })
    return loading
  }

  async function load(): Promise<KeySet> {
    const rows = await store.publishedKeys(pool, now())
    const active = rows.find((row) => row.status === 'active')
    if (!active) throw new Error('there is no active signing key')
    const pkcs8 = open(active)
    keySet = {
      loadedAt: now().getTime(),
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
    return keySet
  }

  function open({ kid, sealed_private }: store.SigningKeyRow): Buffer {
    try {
      return sealing.unseal(sealed_private, store.placeOfKey(kid))
    } catch (error) {
      if (!(error instanceof SealError)) throw error
      throw new Error(
        'KEY_ENCRYPTION_KEY does not open the signing keys in the database; set the one they were made with, ' +
          `or add that to KEY_ENCRYPTION_KEYS_OLD (${error.message})`,
        { cause: error },
      )
    }
  }

  /**
   * Returns the key set and reloads it when it is old. If the reload fails, the old set stays in
   * use.
   */
  async function current(): Promise<KeySet> {
    if (keySet && now().getTime() - keySet.loadedAt < freshMs) return keySet
    return reload().catch((error: unknown) => {
      if (keySet) return keySet
      throw error
    })
  }

  const active = async () => (await current()).active
  const jwks = async () => (await current()).jwks

  /**
   * Returns the public key by id, or null. Unknown ids reload the key set at most once in five
   * seconds.
   */
  async function findPublicKey(kid: string) {
    const at = now().getTime()
    const known = (await current()).publicKeys.get(kid)
    if (known || at - missedAt < missCooldownMs) return known ?? null
    const { publicKeys } = await reload()
    // Set this only after the reload: while the database is unavailable, the id is not known to be
    // wrong.
    missedAt = at
    return publicKeys.get(kid) ?? null
  }

  /** Reloads the key set now, after any load that is already running. */
  async function refresh(): Promise<void> {
    await loading?.catch(() => undefined)
    await reload()
  }

  return { alg, prepare, generate, active, jwks, findPublicKey, refresh }
}

export type SigningKeys = ReturnType<typeof createSigningKeys>
